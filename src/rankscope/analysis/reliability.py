"""How far the dumps of the ranks can be held against each other: devices that died, dumps that are too old."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from rankscope.analysis.arrays import filled
from rankscope.analysis.facts import Array, Facts
from rankscope.analysis.group_frontiers import NONE
from rankscope.analysis.signatures import ROOTED
from rankscope.schema import latest_ns

CLOCKS_NS = 60 * 1_000_000_000
"""Clocks of hosts and of file systems differ by less."""
LATER_NS = 2_000_000_000
"""So long after its peers a device that works has finished, and its watchdog has noticed."""
UNNOTICED_NS = 10_000_000_000
"""A hook, which looks for completions once a second, notices them sooner, also on a machine that is busy."""


@dataclass(frozen=True)
class Reliability:
    """Which absences prove nothing, and which devices stopped."""

    outdated: frozenset[int]
    """Ranks whose dump is older than what their peers saw of them."""
    written_ns: dict[int, int]
    """When each rank's dump was written, where the file's modification time can be believed."""
    dead_devices: dict[int, tuple[int, int]]
    """Ranks whose completions stopped while their peers' went on, with the (group, seq) that shows it."""
    newest_ns: dict[int, int]
    """The newest event in the dump of each rank."""

    def overdue(self, rank: int, created_ns: int | None) -> bool:
        """Whether a hook would have noticed by then that an operation of a rank is finished, as far as times tell."""
        seen = max(self.written_ns.get(rank, 0), self.newest_ns.get(rank, 0))
        return created_ns is not None and seen - created_ns > UNNOTICED_NS

    def is_outdated(self, rank: int, since_ns: int | None) -> bool:
        """Whether the dump of a rank cannot tell if it issued something that others issued at `since_ns`."""
        written = self.written_ns.get(rank)
        return rank in self.outdated or (written is not None and since_ns is not None and since_ns > written)

    def lagging_groups(self, facts: Facts, rank: int) -> list[int]:
        """Groups in which a rank has finished less than a peer."""
        return [g for (r, g), seq in facts.completed.items() if r == rank and seq < facts.furthest[g]]


def judge_reliability(facts: Facts) -> Reliability:
    """Compares completion frontiers of all members of every group."""
    outdated, newest = _outdated(facts), _newest(facts)
    reliability = Reliability(outdated, _written(facts, newest), {}, newest)
    return replace(reliability, dead_devices=_dead_devices(facts, reliability))


def shows(written_ns: Mapping[int, int], rank: int, since_ns: int) -> bool:
    """Whether the dump of a rank is late enough to show what its device did at a moment; also if nobody knows."""
    enough = since_ns + LATER_NS
    return written_ns.get(rank, enough) >= enough


def _outdated(facts: Facts) -> frozenset[int]:
    """Ranks that never issued, says their dump, what a peer finished: impossible unless the dump is older.

    A collective in which every member takes part cannot finish before all have issued it. Gloo also retires what
    failed, so nothing follows there from one operation; two are proof that the group went on.
    """
    fronts = facts.presence.frontiers.columns
    slack = np.isin(fronts.group, list(facts.gloo_groups)).astype(np.int64)
    reached = _by_group(facts.reached, fronts.group)
    behind = (fronts.enqueued != NONE) & (fronts.enqueued + slack < reached)
    return frozenset(fronts.rank[behind].tolist())


def _by_group(values: Mapping[int, int], groups: Array) -> Array:
    """What a mapping has for each of these groups; NONE for nothing."""
    table = np.full(max([int(groups.max(initial=0)), *values]) + 1, NONE)
    table[list(values)] = list(values.values())
    found: Array = table[groups]
    return found


def _newest(facts: Facts) -> dict[int, int]:
    """The newest event of each rank that has one; 0 for one without a time."""
    ops = facts.dataset.ops
    starts = facts.first_rows
    columns = [ops[name] for name in ("created_ns", "completed_ns", "started_ns")]
    events = [filled(column, 0) for column in columns if column.null_count() < len(column)]
    none = np.zeros(len(starts), np.int64)
    latest = np.max([none, *(np.maximum.reduceat(times, starts) for times in events)], axis=0)
    return dict(zip(ops["rank"].gather(starts).to_list(), latest.tolist(), strict=True))


def _written(facts: Facts, newest: dict[int, int]) -> dict[int, int]:
    """Modification times of dumps, of those that are not older than what is in them.

    Where some are older by far, all were lost on the way; a dump without events does not show it itself.
    """
    times = dict(facts.dataset.written.iter_rows())
    lost = any(mtime + CLOCKS_NS < newest.get(rank, 0) for rank, mtime in times.items())
    return {
        rank: max(mtime, newest.get(rank, 0))
        for rank, mtime in times.items()
        if (latest_ns(mtime) >= newest[rank] if rank in newest else not lost)
    }


def _dead_devices(facts: Facts, reliability: Reliability) -> dict[int, tuple[int, int]]:
    """Ranks that issued a collective that its peers finished and they did not.

    Only where every member takes part in the operation, not where point-to-point operations share the counter, and
    not if the rank's dump was written when the first of its peers finished, or before. A hook may only not have
    noticed yet that it finished.
    """
    outdated, written_ns = reliability.outdated, reliability.written_ns
    done = facts.completions
    behind = (done.seq < _by_group(facts.furthest, done.group)) & (done.enqueued > done.seq)
    behind &= np.isin(done.group, list(facts.counts_alone)) & ~np.isin(done.rank, list(outdated))
    group, following = done.group[behind], done.seq[behind] + 1
    ops, reached = _ops_at(facts, group, following), facts.reached
    unnoticed = _unnoticed(facts, reliability)
    out: dict[int, tuple[int, int]] = {}
    for rank, key in zip(done.rank[behind].tolist(), zip(group.tolist(), following.tolist(), strict=True), strict=True):
        op, finished_ns = ops.get(key, (None, None))
        early = finished_ns is not None and not shows(written_ns, rank, finished_ns)
        if early or (rank, key[0]) in unnoticed:
            continue
        if reached.get(key[0], -1) >= key[1] or (op is not None and op not in ROOTED):
            out.setdefault(rank, key)
    return out


def _unnoticed(facts: Facts, reliability: Reliability) -> set[tuple[int, int]]:
    """Ranks and groups of a hook of which nothing has been pending for so long that it must have been noticed."""
    hooked = facts.hooked
    oldest = facts.pending.group_by("rank", "group").agg(pl.col("created_ns").min())
    found = hooked.join(oldest, on=["rank", "group"], how="left")
    return {(rank, group) for rank, group, ns in found.iter_rows() if not reliability.overdue(rank, ns)}


def _ops_at(facts: Facts, group: Array, seq: Array) -> dict[tuple[int, int], tuple[str | None, int | None]]:
    """Names of the operations with these groups and sequence numbers, and when a member finished them first."""
    if not len(group):
        return {}
    places = pl.DataFrame({"group": group, "seq": seq}, schema_overrides={"group": pl.UInt32}).unique()
    finished = pl.col("completed_ns").filter(pl.col("state") == "completed").min()
    rows = (
        facts.calls_at(places).group_by("group", "seq").agg(pl.col("key").drop_nulls().cast(pl.String).max(), finished)
    )
    return {(group, seq): (op, at) for group, seq, op, at in rows.iter_rows()}
