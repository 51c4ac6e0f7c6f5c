"""Reliability of comparisons between dumps: devices that died, dumps that are outdated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints, filled_array
from rankscope.analysis.facts import Facts
from rankscope.analysis.presence import UNKNOWN_SEQ
from rankscope.analysis.signatures import ROOTED_OPS
from rankscope.schema.dataset import latest_ns

CLOCK_SKEW_NS = 60 * 1_000_000_000
"""Largest difference between clocks of hosts and of file systems."""
COMPLETION_LAG_NS = 2_000_000_000
"""A working device finishes, and its watchdog notices, within this time after its peers."""
NOTICE_LAG_NS = 10_000_000_000
"""A hook, which checks completions once a second, notices them within this time, even on a busy machine."""


@dataclass(frozen=True)
class Reliability:
    """Ranks whose absences prove nothing, and devices that stopped."""

    outdated: frozenset[int]
    """Ranks whose dump is older than operations that their peers saw of them."""
    written_ns: dict[int, int]
    """The time of each rank's dump, if the file's modification time can be believed."""
    dead_devices: dict[int, tuple[int, int]]
    """Ranks whose completions stopped while those of their peers went on, with the (group, seq) that shows it."""
    newest_ns: dict[int, int]
    """The newest event in the dump of each rank."""

    def overdue(self, rank: int, created_ns: int | None) -> bool:
        """Whether a hook would have noticed the completion of an operation of a rank by then, as far as times tell."""
        seen = max(self.written_ns.get(rank, 0), self.newest_ns.get(rank, 0))
        return created_ns is not None and seen - created_ns > NOTICE_LAG_NS

    def is_outdated(self, rank: int, since_ns: int | None) -> bool:
        """Whether the dump of a rank cannot show an operation that others issued at `since_ns`."""
        written = self.written_ns.get(rank)
        return rank in self.outdated or (written is not None and since_ns is not None and since_ns > written)

    def lagging_groups(self, facts: Facts, rank: int) -> list[int]:
        """Groups in which a rank has finished less than a peer."""
        return [g for (r, g), seq in facts.completed.items() if r == rank and seq < facts.furthest[g]]


def judge_reliability(facts: Facts) -> Reliability:
    """Compares the completion frontiers of all members of every group."""
    outdated, newest = _outdated(facts), _newest(facts)
    reliability = Reliability(outdated, _written(facts, newest), {}, newest)
    return replace(reliability, dead_devices=_dead_devices(facts, reliability))


def shows(written_ns: Mapping[int, int], rank: int, since_ns: int) -> bool:
    """Whether the dump of a rank is new enough to show its device at that time; True if it is unknown."""
    enough = since_ns + COMPLETION_LAG_NS
    return written_ns.get(rank, enough) >= enough


def _outdated(facts: Facts) -> frozenset[int]:
    """Ranks whose dump lacks an operation that a peer finished: impossible unless the dump is older.

    A collective in which every member takes part cannot finish before all have issued it. Gloo also retires failed
    operations, so one operation proves nothing there; two prove that the group went on.
    """
    fronts = facts.presence.frontiers.columns
    slack = np.isin(fronts.group, list(facts.gloo_groups)).astype(np.int64)
    reached = _by_group(facts.reached, fronts.group)
    behind = (fronts.enqueued != UNKNOWN_SEQ) & (fronts.enqueued + slack < reached)
    return frozenset(fronts.rank[behind].tolist())


def _by_group(values: Mapping[int, int], groups: Ints) -> Ints:
    """The value of each of these groups; UNKNOWN_SEQ without one."""
    table = np.full(max([int(groups.max(initial=0)), *values]) + 1, UNKNOWN_SEQ)
    table[list(values)] = list(values.values())
    found: Ints = table[groups]
    return found


def _newest(facts: Facts) -> dict[int, int]:
    """The newest event of each rank that has one; 0 for an event without a time."""
    ops = facts.dataset.ops
    starts = facts.first_rows
    columns = [ops[name] for name in ("created_ns", "completed_ns", "started_ns")]
    events = [filled_array(column, 0) for column in columns if column.null_count() < len(column)]
    none = np.zeros(len(starts), np.int64)
    latest = np.max([none, *(np.maximum.reduceat(times, starts) for times in events)], axis=0)
    return dict(zip(ops["rank"].gather(starts).to_list(), latest.tolist(), strict=True))


def _written(facts: Facts, newest: dict[int, int]) -> dict[int, int]:
    """Modification times of the dumps that are not older than their events.

    If some are much older, all times were lost in copying; a dump without events does not show that itself.
    """
    times = dict(facts.dataset.written.iter_rows())
    lost = any(mtime + CLOCK_SKEW_NS < newest.get(rank, 0) for rank, mtime in times.items())
    return {
        rank: max(mtime, newest.get(rank, 0))
        for rank, mtime in times.items()
        if (latest_ns(mtime) >= newest[rank] if rank in newest else not lost)
    }


def _dead_devices(facts: Facts, reliability: Reliability) -> dict[int, tuple[int, int]]:
    """Ranks that issued a collective that their peers finished and they did not.

    Only for operations in which every member takes part, not where sends and receives share the counter, and not if the
    rank's dump is as old as the first completion of a peer. A hook may also not have noticed the completion yet.
    """
    outdated, written_ns = reliability.outdated, reliability.written_ns
    done = facts.completions
    behind = (done.seq < _by_group(facts.furthest, done.group)) & (done.enqueued > done.seq)
    behind &= np.isin(done.group, list(facts.counts_alone)) & ~np.isin(done.rank, list(outdated))
    group, following = done.group[behind], done.seq[behind] + 1
    ops, reached = _ops_at(facts, group, following), facts.reached
    # ranks and groups of a hook in which nothing has been pending long enough to be noticed
    oldest = facts.pending.group_by("rank", "group").agg(pl.col("created_ns").min())
    waits = facts.hooked.join(oldest, on=["rank", "group"], how="left")
    unnoticed = {(rank, group) for rank, group, ns in waits.iter_rows() if not reliability.overdue(rank, ns)}
    out: dict[int, tuple[int, int]] = {}
    for rank, key in zip(done.rank[behind].tolist(), zip(group.tolist(), following.tolist(), strict=True), strict=True):
        op, finished_ns = ops.get(key, (None, None))
        early = finished_ns is not None and not shows(written_ns, rank, finished_ns)
        if early or (rank, key[0]) in unnoticed:
            continue
        if reached.get(key[0], -1) >= key[1] or (op is not None and op not in ROOTED_OPS):
            out.setdefault(rank, key)
    return out


def _ops_at(facts: Facts, group: Ints, seq: Ints) -> dict[tuple[int, int], tuple[str | None, int | None]]:
    """Names of the operations with these groups and sequence numbers, and their first completion by a member."""
    if not len(group):
        return {}
    places = pl.DataFrame({"group": group, "seq": seq}, schema_overrides={"group": pl.UInt32}).unique()
    finished = pl.col("completed_ns").filter(pl.col("state") == "completed").min()
    rows = (
        facts.calls_at(places).group_by("group", "seq").agg(pl.col("key").drop_nulls().cast(pl.String).max(), finished)
    )
    return {(group, seq): (op, at) for group, seq, op, at in rows.iter_rows()}
