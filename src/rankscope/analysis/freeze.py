"""Standstill of the job: whether it was stopped when its dumps were written, or still moving.

The recorder does not store the time of the dump. So the file's modification time is compared with the newest event of
any rank, and operations that the watchdog gave up are counted. A job was still if nothing had happened on any rank for
more than 2 s, for more than 20 times the usual gap between two events of the job (99th percentile), and for more than
twice the longest gap after which it went on; or if an operation was older than its timeout. Two equal dumps of the same
recorders, as far apart, prove a standstill whatever their times.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints
from rankscope.analysis.collective_calls import IS_PENDING
from rankscope.analysis.facts import Facts
from rankscope.analysis.job_state import JobState, StateEvidence, noted_ends, state_of
from rankscope.schema import Dataset
from rankscope.schema.tables import State
from rankscope.text.wording import duration

FLOOR_NS = 2_000_000_000
GAP_FACTOR = 20
PAUSE_NS = 30_000_000_000
"""A job that dumps periodically must be still for longer: loading, compiling or saving for less is no hang."""
INTERVAL_COUNT = 10
"""Number of dumps in a row that suffice if they come more often."""
DELAY_FACTOR = 2
"""Smallest ratio of a standstill to the duration or delay of a dump."""
GAP_QUANTILE = 0.99
COPY_AGE_NS = 86_400 * 1_000_000_000
"""A file written a day after its newest event is a copy: no watchdog waits that long."""
SLOT_BITS = 22
"""Gaps are measured to one part in 2^22 of the time that the dumps cover."""
POLL_NS = 200_000_000
"""Twice the watchdog's period, 100 ms."""


@dataclass(frozen=True)
class Freeze:
    """The known facts about the standstill of the job."""

    stopped: bool | None
    """None: unknown."""
    still_ns: int | None
    """Time from the newest event to the last dump; None if file times cannot be believed."""
    needed_ns: int
    """Time that the job must have been still to count as stopped."""
    reason: str
    proven: bool = False
    """A watchdog gave up, or should have: no job goes on after that, however short the time was."""
    watched: bool = False
    """The job is watched, so its movement was observed."""
    timed: bool = False
    """The proof is an operation older than its timeout, by the time of a file."""
    ends: frozenset[str] = frozenset()
    """How the processes of all ranks ended, as they noted it; empty unless all have ended. Then nothing moves any more,
    though what is pending may be only what each end cut off."""


def judge_freeze(facts: Facts) -> Freeze:
    """Weighs the age of the newest event against the usual gap between events, timeouts, and earlier dumps."""
    freeze, repeats = replace(_weigh(facts), ends=noted_ends(facts.dataset)), DumpPairs(facts.dataset)
    if facts.dataset.repeats.is_empty():
        return freeze
    since, until = repeats.still or (0, 0)
    newest = _newest_ns(facts)
    copied = newest is not None and since >= newest + COPY_AGE_NS
    if not copied and until - since > FLOOR_NS and until - since > _needed_twice_ns(facts, freeze.needed_ns):
        reason = f"two dumps {duration(until - since)} apart show the same frontiers"
        return replace(freeze, stopped=True, still_ns=freeze.still_ns or until - since, reason=reason)
    if not copied and freeze.stopped is False and FLOOR_NS < (freeze.still_ns or 0) < COPY_AGE_NS and until > since:
        least = _needed_twice_ns(facts, freeze.needed_ns)
        same = f"two dumps {duration(until - since)} apart show the same frontiers"
        return replace(freeze, reason=f"{same}, but only more than {duration(least)} shows a standstill of this job")
    if repeats.moved:
        apart = max(later - written for written, later in repeats.moved.values())
        return replace(freeze, reason=f"{freeze.reason}; operations went on between two dumps {duration(apart)} apart")
    return freeze


def _weigh(facts: Facts) -> Freeze:
    """The standstill by the newest dumps alone."""
    newest, (written, half) = _newest_ns(facts), _written_ns(facts)
    needed = max(_needed_ns(*_gaps_ns(facts, newest)), _dumping_ns(facts))
    if newest is None:
        return Freeze(None, None, needed, "no operation carries a time")
    still = _still_ns(newest, written, half, max(FLOOR_NS, _dumping_ns(facts)))
    by_watchdog = pl.col("retired").fill_null(False) & (pl.col("coalesced") != "inner") & (pl.col("library") != "gloo")
    if facts.dataset.ops.select((IS_PENDING & by_watchdog).any()).item():
        return Freeze(True, still, needed, "a watchdog gave up an operation", proven=True)
    if still is None:
        return Freeze(None, None, needed, "file times do not prove that the job had stopped")
    proven = _timed_out(facts, own=True)
    if still > needed and (proven or interval_ns(facts.dataset) is None):
        return Freeze(
            True, still, needed, "the job was quiet for long before the dumps were written", proven, timed=proven
        )
    if proven or _timed_out(facts, own=False):
        return Freeze(True, still, needed, "an operation is older than its timeout", proven, timed=proven)
    if still <= FLOOR_NS:
        return Freeze(False, still, needed, "the dumps were written within moments of the newest event")
    quiet = f"{duration(still)} without an event before the dumps were written"
    if still > needed:
        # dumps that come again and again may have come late
        return Freeze(False, still, needed, f"{quiet}, but only one dump of each rank shows it")
    return Freeze(
        False, still, needed, f"{quiet}, but only more than {duration(needed)} shows a standstill of this job"
    )


def snapshot_state(freeze: Freeze) -> tuple[JobState, str]:
    """State and reason of a job with pending operations by its files alone.

    Files within moments of the newest event show that the job moved. Older ones show neither that nor, unless the
    standstill is long enough, that it had stopped.
    """
    evidence = StateEvidence(
        pending=True,
        usual_ns=FLOOR_NS,
        frozen_ns=None,
        proof=freeze.reason if freeze.stopped else "",
        ends=freeze.ends,
        still_ns=freeze.still_ns,
        still_reason=freeze.reason,
        pause_ns=FLOOR_NS,
        moves=freeze.stopped is False,
    )
    return state_of(evidence)


def interval_ns(dataset: Dataset) -> int | None:
    """The dump interval of the ranks; None if it is not known for all."""
    told = dataset.dumps["interval_ns"]
    longest = told.max()
    return longest if isinstance(longest, int) and not told.null_count() else None


def _dumping_ns(facts: Facts) -> int:
    """The least standstill of a job that dumps periodically; 0 if the interval is unknown.

    The longest duration or delay of a dump counts twice, because the machine had no time for the job either.
    """
    dumps = facts.dataset.dumps.select("interval_ns", "delay_ns").max().row(0)
    interval, delay = (int(value) if value is not None else 0 for value in dumps)
    return max(min(PAUSE_NS, INTERVAL_COUNT * interval), DELAY_FACTOR * delay)


def _still_ns(newest: int, written: int | None, half: int | None, ahead: int) -> int | None:
    """Time from the newest event until half of the ranks had dumped; None if file times cannot be believed.

    A source that notes the time of the request, and not of the file, may be `ahead` of the copied events.
    """
    if written is None or half is None or not newest - ahead <= written < newest + COPY_AGE_NS:
        return None
    return max(0, half - newest)


def _needed_ns(usual: int, longest: int) -> int:
    return max(FLOOR_NS, GAP_FACTOR * usual, 2 * longest)


def _needed_twice_ns(facts: Facts, needed: int) -> int:
    """Required distance of two dumps: `needed`, or less by the gaps of each rank on its own clock, if a clock is
    off."""
    ops = facts.dataset.ops.select("rank", "created_ns").drop_nulls()
    own = pl.col("created_ns").diff().filter(pl.col("rank") == pl.col("rank").shift())
    gaps = ops.select(own).to_series().to_numpy()
    if not len(gaps):
        return needed
    own_needed = _needed_ns(int(np.quantile(gaps, GAP_QUANTILE, method="higher")), int(gaps.max()))
    return max(min(needed, own_needed), _dumping_ns(facts))


def _gaps_ns(facts: Facts, newest: int | None) -> tuple[int, int]:
    """(99th percentile, longest) time between two successive events of the job, on any rank.

    Differing host clocks only make gaps shorter, as long as no rank works alone. Events after `newest` were only
    noticed when a dump was written; they would turn the standstill into a gap.
    """
    columns = [facts.dataset.ops[name].drop_nulls().to_numpy() for name in ("created_ns", "completed_ns")]
    times = [kept for column in columns if len(kept := _until(column, newest))]
    count = sum(map(len, times))
    if count < 2:
        return 0, 0
    first, last = min(int(t.min()) for t in times), max(int(t.max()) for t in times)
    # a bitmap of time slots takes a tenth of the time of sorting; a day has slots of 20 ms
    shift = max(0, (last - first).bit_length() - SLOT_BITS)
    slots = np.zeros((last - first >> shift) + 1, np.bool_)
    for t in times:
        slots[(t - first) >> shift] = True
    gaps = np.diff(np.flatnonzero(slots))
    place = min(int(GAP_QUANTILE * (count - 1)) + 1, count - 1) - 1 - (count - 1 - len(gaps))
    usual = int(np.searchsorted(np.cumsum(np.bincount(gaps)), place, "right")) if place >= 0 else 0
    return usual << shift, int(gaps.max(initial=0)) << shift


def _until(times: Ints, newest: int | None) -> Ints:
    return times if newest is None or times.max(initial=newest) == newest else times[times <= newest]


def _newest_ns(facts: Facts) -> int | None:
    """The newest event of any rank, without events that the recorder noticed only while it wrote a dump."""
    ops = facts.dataset.ops.select("file", "created_ns", "started_ns", "completed_ns")
    issued = ops["created_ns"].max()
    written = facts.dataset.files.select("file", "mtime_ns")
    # most rows have no later column, which is fast to see
    later = ops if issued is None else ops.filter((ops["started_ns"] > issued) | (ops["completed_ns"] > issued))
    later = later.with_columns(noticed=pl.max_horizontal("started_ns", "completed_ns"))
    at_dump = (pl.col("noticed") > pl.col("mtime_ns") - POLL_NS).fill_null(False)
    noticed = later.join(written, on="file", how="left").filter(~at_dump)["noticed"].max()
    return max((int(t) for t in (issued, noticed) if isinstance(t, int)), default=None)


def _written_ns(facts: Facts) -> tuple[int | None, int | None]:
    """Times at which the last rank, and half of the ranks, had dumped; a rank that dumps alone later does not count."""
    latest = facts.dataset.written["written_ns"].sort(descending=True)
    if latest.is_empty():
        return None, None
    half = (facts.dataset.dumps["rank"].drop_nulls().n_unique() + 1) // 2
    return int(latest[0]), int(latest[min(half, len(latest)) - 1])


def _timed_out(facts: Facts, *, own: bool) -> bool:
    """Whether an operation was older than its timeout when its `own` dump was written, or when the last one was."""
    pending = facts.dataset.ops.select("file", "created_ns", "timeout_ms", "state").filter(IS_PENDING)
    if own:
        times = pending.join(facts.dataset.timed_dumps.select("file", "mtime_ns"), on="file", how="inner")
    else:
        times = pending.with_columns(mtime_ns=pl.lit(_written_ns(facts)[0], dtype=pl.Int64))
    late = pl.col("mtime_ns") - pl.col("created_ns") > pl.col("timeout_ms") * 1_000_000
    return bool(times.select(late.fill_null(False).any()).item())


# Pairs of dumps of one recorder: whether anything moved between them.

Span = tuple[int, int]
"""Times at which the earlier and the later of two dumps were written, in nanoseconds since the epoch."""


@dataclass(frozen=True)
class DumpPairs:
    """The pairs of dumps of a Dataset whose times can be believed."""

    dataset: Dataset

    @cached_property
    def unchanged(self) -> dict[int, Span]:
        """By rank the longest time in which none of its operations was issued, started or completed."""
        return self._spans(pl.col("progressed").eq(False), pl.col("written_ns").min())

    @cached_property
    def moved(self) -> dict[int, Span]:
        """By rank the latest time in which one of its operations was issued, started or completed."""
        return self._spans(pl.col("progressed").eq(True), pl.col("written_ns").max())

    def _spans(self, chosen: pl.Expr, since: pl.Expr) -> dict[int, Span]:
        known = self.dataset.repeats.filter(chosen & pl.col("written_ns").is_not_null() & pl.col("rank").is_not_null())
        spans = known.group_by("rank").agg(since, pl.col("later_ns").max()).sort("rank")
        return {rank: (written, later) for rank, written, later in spans.iter_rows()}

    @cached_property
    def still(self) -> Span | None:
        """The time of standstill that the unchanged dumps of all ranks share.

        None unless most ranks have two equal dumps, and no other rank shows an event in that time. A rank without a
        dump from the standstill is only known to have moved before.
        """
        seen, unchanged = self.dataset.seen_ranks, self.unchanged
        if 2 * len(unchanged) <= len(seen):
            return None
        since, until = max(s for s, _ in unchanged.values()), min(u for _, u in unchanged.values())
        if any(later > since for rank, (_, later) in self.moved.items() if rank not in unchanged):
            return None
        return (since, until) if since < until and self._quiet_since(since) else None

    def _quiet_since(self, since: int) -> bool:
        """Whether the ranks with only one dump show no event after a time."""
        others = self.dataset.ops.filter(~pl.col("rank").is_in(list(self.unchanged)))
        newest = others.select(pl.max_horizontal("created_ns", "completed_ns", "started_ns").max()).item()
        return newest is None or newest <= since


# Operations of which only the issue is known: logs of NCCL, and some hooks, never tell that one is finished. Once the
# job is known to stand still, a rank that issued a collective which another member never reached waits in it.


def as_waiting(dataset: Dataset, files: Collection[int] | None = None) -> Dataset | None:
    """The dataset with such operations of `files` (or all) as pending; None if there are none.

    Only in groups with a known frontier of every member.
    """
    least = _least(dataset) if files is None else _least(dataset, among=dataset.seen_ranks)
    rows = dataset.ops.select("file", "group", "seq", "is_p2p", "state").join(
        least, on="group", how="left", maintain_order="left"
    )
    waits = (pl.col("state") == "unknown") & ~pl.col("is_p2p") & (pl.col("seq") > pl.col("least"))
    if files is not None:
        waits &= pl.col("file").is_in(list(files))
    waiting = rows.select(waits.fill_null(value=False)).to_series()
    if not waiting.any():
        return None
    state = pl.when(pl.lit(waiting)).then(pl.lit("scheduled", dtype=State)).otherwise("state")
    return replace(dataset, ops=dataset.ops.with_columns(state=state))


def _least(dataset: Dataset, among: Sequence[int] | None = None) -> pl.DataFrame:
    """By group the last collective that every member is known to have issued: group, least.

    If only the ranks `among` left a dump, a group with other members waits for these in its last operation at the
    latest, so `least` is one less.
    """
    members = dataset.groups.select("group", rank="ranks").explode("rank")
    told = members if among is None else members.filter(pl.col("rank").is_in(list(among)))
    sizes = members.group_by("group").agg(size=pl.len()).join(told.group_by("group").agg(told=pl.len()), on="group")
    known = (
        dataset.frontiers.drop_nulls("last_enqueued")
        .group_by("group")
        .agg(least=pl.col("last_enqueued").min(), known=pl.len())
    )
    return (
        sizes.join(known, on="group")
        .filter(pl.col("known") == pl.col("told"))
        .select("group", least=pl.col("least") - (pl.col("told") < pl.col("size")).cast(pl.Int64))
    )
