"""History of a watched job: when it moved, how fast, and how often files came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from rankscope.kinds.input_kinds import LOG
from rankscope.schema import Dataset

SECOND = 1_000_000_000
STANDSTILL_FACTOR = 2
"""Smallest ratio of a standstill to the longest one that the job recovered from."""
WRITING_NS = 3 * SECOND
"""Once all ranks have left files, more files of one dump may come for this long."""
MOST_SAMPLES = 16
"""Most samples from which rates are computed."""
RATE_WINDOW_NS = 30 * SECOND
"""Oldest sample for rates, except that two samples are always kept."""


@dataclass(frozen=True)
class CollectiveRate:
    """Collectives per second that the ranks of a group issue."""

    group: str
    description: str
    per_s: float


@dataclass(frozen=True)
class JobProgress:
    """The progress of the job at one update."""

    at_ns: int
    """Time of the update, on a monotonic clock."""
    fresh: bool
    """Whether files were written since the last update."""
    age_ns: int = 0
    """At the first update: the age of the newest file."""
    unread: bool = False
    """Whether some files have not been read at all yet."""
    ahead_ns: int = 0
    """How far the newest file is in the future, by the clock of this machine."""
    now_ns: int | None = None
    """Time of the update since the epoch, by the clock of this machine; None if it does not matter."""


Key = tuple[str, str]
"""Name and description of a group; its name and members if names repeat."""


@dataclass(frozen=True)
class ProgressHistory:
    """Bounded history of earlier updates."""

    samples: tuple[tuple[int, Mapping[Key, int]], ...] = ()
    """Frontiers by group, with the time of the newest event."""
    newest_ns: int | None = None
    still_ns: int = 0
    """Longest observed part of the current standstill."""
    got_over_ns: int = 0
    """The longest standstill that the job recovered from."""
    fresh_at_ns: int | None = None
    """The time since which nothing came, as far as it could be observed."""
    news_at_ns: int | None = None
    """The last time that something came: earlier than `fresh_at_ns` if the files were out of sight for a time."""
    gaps_ns: tuple[int, ...] = ()
    """The last gaps between files."""
    ranks: frozenset[int] = frozenset()
    """Ranks that have left files."""
    ranks_at_ns: int = 0
    """The last time that `ranks` grew."""
    rank_gap_ns: int = 0
    """The longest time after which `ranks` grew again."""
    least_ns: int | None = None
    """The shortest time from the newest event in a dump to its file time."""
    has_moved: bool = False
    """Whether newer dumps have shown newer events."""
    printed_ns: int | None = None
    """The last time a log was written, if no line and no dump tells issue times.

    The newest event is then the file time of the logs at the last increase of their operations.
    """
    issued: int = 0
    """Number of those operations: the sum of the frontiers of all ranks in all groups."""
    resumed_ns: int = 0
    """The newest event after the end of a standstill: rates do not include the standstill."""


def updated_history(memory: ProgressHistory, dataset: Dataset, look: JobProgress) -> ProgressHistory:
    """The history after an update of a whole job."""
    fronts = _frontiers(dataset)
    issued = _issued(dataset)
    newest, printed = _newest(memory, dataset, issued)
    if memory.fresh_at_ns is None:
        written_ns = look.at_ns - max(0, look.age_ns)
        told = replace(memory, fresh_at_ns=written_ns, news_at_ns=written_ns)
    else:
        told = refreshed_history(memory, look.at_ns) if look.fresh else memory
    told = _grown(told, dataset, look, first=memory.fresh_at_ns is None)
    came = memory.fresh_at_ns is not None and bool(told.ranks - memory.ranks)
    if came and not dataset.dumps.is_empty() and not dataset.repeats["progressed"].any():
        # the first dumps of more ranks tell nothing of how the job goes on
        told = replace(told, samples=((newest, fronts),) if newest is not None else ())
    else:
        told = _moved(told, newest, fronts)
    told = replace(told, newest_ns=newest, printed_ns=printed, issued=issued)
    return replace(told, least_ns=_least_ns(dataset, memory.least_ns))


def _grown(memory: ProgressHistory, dataset: Dataset, look: JobProgress, *, first: bool) -> ProgressHistory:
    """The history with the ranks that have left files, at its `first` update and at later ones."""
    ranks = frozenset(dataset.seen_ranks)
    if first:
        # files may keep the times of the place that they are copied from, and more of them may come
        age_ns = 0 if dataset.missing_ranks and not dataset.dumps.is_empty() else max(0, look.age_ns)
        return replace(memory, ranks=ranks, ranks_at_ns=look.at_ns - age_ns)
    if not ranks - memory.ranks:
        return replace(memory, ranks=ranks)
    gap = max(memory.rank_gap_ns, look.at_ns - memory.ranks_at_ns)
    return replace(memory, ranks=ranks, ranks_at_ns=look.at_ns, rank_gap_ns=gap)


def _newest(memory: ProgressHistory, dataset: Dataset, issued: int) -> tuple[int | None, int | None]:
    """The newest event, and the last write of a log if nothing else tells the time."""
    newest = _newest_ns(dataset)
    printed = _printed_ns(dataset) if newest is None and issued else None
    if printed is None:
        return newest, None
    # more lines are not an event
    return printed if not memory.samples or issued != memory.issued else memory.newest_ns, printed


def _moved(memory: ProgressHistory, newest: int | None, fronts: Mapping[Key, int]) -> ProgressHistory:
    """The history with the current newest event and frontiers; the event itself is not yet recorded."""
    moved = memory.newest_ns is not None and newest is not None and newest > memory.newest_ns
    resumed = moved and memory.still_ns > pause_ns(memory)
    samples = memory.samples
    if newest is not None and (not samples or resumed or fronts != samples[-1][1]):
        back = bool(samples) and any(fronts.get(key, count) < count for key, count in samples[-1][1].items())
        samples = ((newest, fronts),) if back else (*samples, (newest, fronts))
        old = [s for s in samples[:-2] if newest - s[0] <= RATE_WINDOW_NS]
        samples = (*old, *samples[-2:])[-MOST_SAMPLES:]
    return replace(
        memory, samples=samples, still_ns=0 if moved else memory.still_ns, has_moved=memory.has_moved or moved,
        got_over_ns=max(memory.got_over_ns, memory.still_ns) if moved else memory.got_over_ns,
        resumed_ns=newest if resumed and newest is not None else memory.resumed_ns,
    )  # fmt: skip


def refreshed_history(memory: ProgressHistory, at_ns: int) -> ProgressHistory:
    """The history after files came at a time."""
    if memory.fresh_at_ns is None:
        return memory
    gaps = (*memory.gaps_ns, at_ns - memory.fresh_at_ns)[-MOST_SAMPLES:]
    return replace(memory, gaps_ns=gaps, fresh_at_ns=at_ns, news_at_ns=at_ns)


def pause_ns(memory: ProgressHistory) -> int:
    """Standstill after which a group has no rate any more."""
    return max(WRITING_NS, STANDSTILL_FACTOR * memory.got_over_ns)


def rates_of(memory: ProgressHistory) -> tuple[CollectiveRate, ...]:
    """Rates of the moving groups, the fastest first."""
    samples = [sample for sample in memory.samples if sample[0] >= memory.resumed_ns]
    if len(samples) < 2:
        return ()
    (begin, first), (end, last) = samples[0], samples[-1]
    seconds = (end - begin) / SECOND
    if seconds <= 0:
        return ()
    moved = [(key, count - first[key]) for key, count in last.items() if count > first.get(key, count)]
    rates = [
        CollectiveRate(name.rpartition("@")[0], description, count / seconds) for (name, description), count in moved
    ]
    return tuple(sorted(rates, key=lambda rate: (-rate.per_s, rate.group)))


def _least_ns(dataset: Dataset, before: int | None) -> int | None:
    """The shortest time seen from the newest event of a dump to the time of its file.

    It is small for a moving job, unless the clock of the files (of a server, or of a copy) is ahead of the ranks'.
    """
    events = dataset.ops.group_by("file").agg(newest=pl.max_horizontal(pl.col("created_ns", "completed_ns").max()))
    times = events.join(dataset.dumps.select("file", "mtime_ns"), on="file").drop_nulls()
    ages = (times["mtime_ns"] - times["newest"]).to_list()
    return min((max(0, age) for age in (*ages, *([] if before is None else [before]))), default=None)


def _newest_ns(dataset: Dataset) -> int | None:
    """The newest issue time; completions may be noticed only because a dump was written."""
    newest = dataset.ops["created_ns"].max()
    done = dataset.ops["completed_ns"].max()
    return max((int(t) for t in (newest, done) if isinstance(t, int)), default=None)


def _printed_ns(dataset: Dataset) -> int | None:
    """The last time a log was written."""
    written = dataset.files.filter(pl.col("used") & (pl.col("kind") == LOG.name))["mtime_ns"].max()
    return int(written) if isinstance(written, int) else None


def _issued(dataset: Dataset) -> int:
    """The sum of the frontiers of all ranks in all groups."""
    return int(dataset.frontiers.select(pl.coalesce("last_enqueued", "last_kept").sum()).item() or 0)


def _frontiers(dataset: Dataset) -> dict[Key, int]:
    """The frontier of the first rank of each group, in collectives; groups without one are left out."""
    reached = pl.coalesce("last_enqueued", "last_kept")
    table = dataset.frontiers.group_by("group").agg(reached.max().alias("reached")).drop_nulls()
    names = dataset.groups.select("group", "name", "description", pl.col("ranks").list.first().alias("first"))
    rows = table.join(names, on="group").select("name", "description", "first", "reached").iter_rows()
    return {(f"{name}@{first}", description): reached for name, description, first, reached in rows}
