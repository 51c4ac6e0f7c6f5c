"""What is kept of the looks at a job that is watched: when it moved, how fast, and how often something came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from rankscope.kinds.input_kinds import LOG
from rankscope.schema import Dataset

SECOND = 1_000_000_000
LONGER = 2
"""So many times as long as the job was seen to stand still before it went on."""
WRITING_NS = 3 * SECOND
"""Where all ranks have left something, more of one of them may come for so long."""
KEPT = 16
"""Looks of which the rates are made, at most."""
RATE_NS = 30 * SECOND
"""And no older than this, but for two."""


@dataclass(frozen=True)
class CollectiveRate:
    """How fast the ranks of a group issue collectives."""

    group: str
    description: str
    per_s: float


@dataclass(frozen=True)
class JobProgress:
    """What one update shows of the job."""

    at_ns: int
    """When it was made, on a clock that never goes back."""
    fresh: bool
    """Whether files were written since the last."""
    age_ns: int = 0
    """With the first look: how old the newest file is."""
    unread: bool = False
    """Whether there are files of which nothing was read yet."""
    ahead_ns: int = 0
    """So far in the future the newest file was written, by the clock of this machine."""


Key = tuple[str, str]
"""Name and description of a group, or its name and members where names repeat."""


@dataclass(frozen=True)
class ProgressHistory:
    """What earlier looks leave behind; bounded however many there were."""

    samples: tuple[tuple[int, Mapping[Key, int]], ...] = ()
    """Frontiers by group, with the time of the newest event."""
    newest_ns: int | None = None
    still_ns: int = 0
    """How long the job has been still, as far as was seen."""
    got_over_ns: int = 0
    """The longest that it was still and went on."""
    fresh_at_ns: int | None = None
    """Since when nothing came, as far as it could be seen."""
    news_at_ns: int | None = None
    """When something came last: before that where there was a time in which nothing could be seen."""
    gaps_ns: tuple[int, ...] = ()
    """Between files that came, the last ones."""
    ranks: frozenset[int] = frozenset()
    """Those that have left anything."""
    ranks_at_ns: int = 0
    """When they became more the last time."""
    least_ns: int | None = None
    """The least time that a dump was written after the newest event in it."""
    has_moved: bool = False
    """Whether newer dumps have shown newer events."""
    printed_ns: int | None = None
    """When a log was written to last, where no line and no dump says when anything was issued.

    The newest event is then what stood in the logs as they were when more operations stood in them the last time.
    """
    issued: int = 0
    """How many operations those were: the sum of how far each rank has got in each group."""
    resumed_ns: int = 0
    """The newest event when it had gone on after a standstill: rates are not taken over that."""


def remember(memory: ProgressHistory, dataset: Dataset, look: JobProgress) -> ProgressHistory:
    """The memory after a look at a whole job."""
    fronts = _frontiers(dataset)
    issued = _issued(dataset)
    newest, printed = _newest(memory, dataset, issued)
    if memory.fresh_at_ns is None:
        written_ns = look.at_ns - max(0, look.age_ns)
        told = replace(memory, fresh_at_ns=written_ns, news_at_ns=written_ns)
    else:
        told = fresh(memory, look.at_ns) if look.fresh else memory
    ranks, ranks_at = frozenset(dataset.seen_ranks), memory.ranks_at_ns
    if memory.fresh_at_ns is None:
        ranks_at = look.at_ns - max(0, look.age_ns)
    elif ranks - memory.ranks:
        ranks_at = look.at_ns
    told = replace(_moved(told, newest, fronts), newest_ns=newest, ranks=ranks, ranks_at_ns=ranks_at)
    told = replace(told, printed_ns=printed, issued=issued)
    return replace(told, least_ns=_least_ns(dataset, memory.least_ns))


def _newest(memory: ProgressHistory, dataset: Dataset, issued: int) -> tuple[int | None, int | None]:
    """The newest event, and when a log was written to last where that is all that tells it."""
    newest = _newest_ns(dataset)
    printed = _printed_ns(dataset) if newest is None and issued else None
    if printed is None:
        return newest, None
    # more lines are no event
    return printed if not memory.samples or issued != memory.issued else memory.newest_ns, printed


def _moved(memory: ProgressHistory, newest: int | None, fronts: Mapping[Key, int]) -> ProgressHistory:
    """The memory with the newest event and the frontiers as they are now; the event is not noted yet."""
    moved = memory.newest_ns is not None and newest is not None and newest > memory.newest_ns
    resumed = moved and memory.still_ns > pause_ns(memory)
    samples = memory.samples
    if newest is not None and (not samples or resumed or fronts != samples[-1][1]):
        back = bool(samples) and any(fronts.get(key, count) < count for key, count in samples[-1][1].items())
        samples = ((newest, fronts),) if back else (*samples, (newest, fronts))
        old = [s for s in samples[:-2] if newest - s[0] <= RATE_NS]
        samples = (*old, *samples[-2:])[-KEPT:]
    return replace(
        memory, samples=samples, still_ns=0 if moved else memory.still_ns, has_moved=memory.has_moved or moved,
        got_over_ns=max(memory.got_over_ns, memory.still_ns) if moved else memory.got_over_ns,
        resumed_ns=newest if resumed and newest is not None else memory.resumed_ns,
    )  # fmt: skip


def fresh(memory: ProgressHistory, at_ns: int) -> ProgressHistory:
    """The same where files came at a moment."""
    if memory.fresh_at_ns is None:
        return memory
    gaps = (*memory.gaps_ns, at_ns - memory.fresh_at_ns)[-KEPT:]
    return replace(memory, gaps_ns=gaps, fresh_at_ns=at_ns, news_at_ns=at_ns)


def pause_ns(memory: ProgressHistory) -> int:
    """What does not move for longer has no rate any more."""
    return max(WRITING_NS, LONGER * memory.got_over_ns)


def rates_of(memory: ProgressHistory) -> tuple[CollectiveRate, ...]:
    """How fast the groups go that move, the fastest first."""
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
    """The least time from the newest event of a dump to the time of its file, in all that was seen.

    Of a job that moves it is small, unless the clock of the files is ahead of that of the ranks: a server's, or that
    of a copy.
    """
    events = dataset.ops.group_by("file").agg(newest=pl.max_horizontal(pl.col("created_ns", "completed_ns").max()))
    times = events.join(dataset.dumps.select("file", "mtime_ns"), on="file").drop_nulls()
    ages = (times["mtime_ns"] - times["newest"]).to_list()
    return min((max(0, age) for age in (*ages, *([] if before is None else [before]))), default=None)


def _newest_ns(dataset: Dataset) -> int | None:
    """The newest event that somebody issued: what is noticed later may be noticed because a dump was written."""
    newest = dataset.ops["created_ns"].max()
    done = dataset.ops["completed_ns"].max()
    return max((int(t) for t in (newest, done) if isinstance(t, int)), default=None)


def _printed_ns(dataset: Dataset) -> int | None:
    """When a log was written to last."""
    written = dataset.files.filter(pl.col("used") & (pl.col("kind") == LOG.name))["mtime_ns"].max()
    return int(written) if isinstance(written, int) else None


def _issued(dataset: Dataset) -> int:
    """How far all ranks have got in all groups, together."""
    return int(dataset.frontiers.select(pl.coalesce("last_enqueued", "last_kept").sum()).item() or 0)


def _frontiers(dataset: Dataset) -> dict[Key, int]:
    """How far the first rank of each group has got, in collectives; groups that have none are left out."""
    reached = pl.coalesce("last_enqueued", "last_kept")
    table = dataset.frontiers.group_by("group").agg(reached.max().alias("reached")).drop_nulls()
    names = dataset.groups.select("group", "name", "description", pl.col("ranks").list.first().alias("first"))
    rows = table.join(names, on="group").select("name", "description", "first", "reached").iter_rows()
    return {(f"{name}@{first}", description): reached for name, description, first, reached in rows}
