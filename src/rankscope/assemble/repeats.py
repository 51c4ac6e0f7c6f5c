"""Dumps of one recorder some time apart: whether anything went on between an earlier one and the one that is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope import schema
from rankscope.assemble.recorders import records_no_states
from rankscope.assemble.sources import Source
from rankscope.parsers.columnar import NULL, Numbers
from rankscope.parsers.flight_recorder.model import Dump

Row = dict[str, Any]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

STAGES = {"scheduled": 0, "started": 1, "completed": 2}
UNTOLD = -1
"""Stage of an operation whose state is not told."""


def repeat_table(sources: Sequence[Source]) -> pl.DataFrame:
    """A row for each source with a `newer` that is used, unless it is only a copy of it; columns of schema.REPEATS.

    A file that was written anew while it was watched has rows for what its versions say, behind all others. `sources`
    are all files, in the order of their rows.
    """
    placed = list(enumerate(sources))
    earlier = [_row(place, source, source.newer) for place, source in placed if source.newer is not None]
    watched = [row for place, source in placed if source.used for row in _of_versions(place, source)]
    rows = [row for row in earlier if row is not None] + watched
    return pl.DataFrame(rows, schema=dict(schema.REPEATS))


def _row(place: int, source: Source, used: Source) -> Row | None:
    if not used.used or source.dump is None or used.dump is None:
        return None
    earlier, later = (used, source) if _swapped(source, used) else (source, used)
    progress = progressed(earlier.dump or Dump(), later.dump or Dump(), later.mtime_ns)
    if not progress and _may_be_copy(source, used):
        return None
    believed = _believed(earlier) and _believed(later) and (earlier.mtime_ns or 0) < (later.mtime_ns or 0)
    return {
        "rank": used.rank,
        "file": place,
        "written_ns": earlier.mtime_ns if believed else None,
        "later_ns": later.mtime_ns if believed else None,
        "progressed": progress,
    }


def _of_versions(place: int, source: Source) -> Iterator[Row]:
    versions = source.versions
    if versions is None or source.dump is None:
        return
    spans = [(versions.moved, True), (versions.unchanged, False)]
    for span, moved in spans:
        if span is not None:
            yield {
                "rank": source.rank, "file": place, "written_ns": span[0], "later_ns": span[1], "progressed": moved,
            }  # fmt: skip


def _swapped(source: Source, used: Source) -> bool:
    """Whether the one that is not used was written later: it holds no newer event, and less of what explains them."""
    same_end = (source.span or (0, 0))[1] == (used.span or (0, 0))[1]
    return same_end and (source.mtime_ns or 0) > (used.mtime_ns or 0)


def _may_be_copy(one: Source, other: Source) -> bool:
    """Whether two dumps that say the same may be one: no time between them, or the same in another form."""
    forms = [(bool(s.dump and s.dump.stacks), s.shown.lower().endswith(".json")) for s in (one, other)]
    return None in (one.mtime_ns, other.mtime_ns) or one.mtime_ns == other.mtime_ns or forms[0] != forms[1]


def _believed(source: Source) -> bool:
    """Whether a file is not older than what is in it."""
    return source.mtime_ns is not None and schema.latest_ns(source.mtime_ns) >= (source.span or (0, 0))[1]


def progressed(before: Dump, after: Dump, written_ns: int | None) -> bool | None:
    """Whether an operation was issued, started or completed between two dumps of one recorder; None: cannot be told.

    `written_ns` is when the later one was written. What ended only after its timeout was aborted, and is no progress.
    """
    if before.truncated or after.truncated:
        return None
    if _issued(before, after):
        return True
    if not before.rows:
        return _counted(before, after, ("started", "completed"))
    mine, theirs = _shared(_key(before), _key(after))
    return _went_on(before, after, mine, theirs, written_ns) or _left(before, mine, written_ns)


def _issued(before: Dump, after: Dump) -> bool:
    newer = bool(after.rows) and (not before.rows or int(_key(after).max()) > int(_key(before).max()))
    return newer or _counted(before, after, ("enqueued",))


def _counted(before: Dump, after: Dump, counters: tuple[str, ...]) -> bool:
    old = {status.pg_id: status for status in before.status or ()}
    pairs = [(old[status.pg_id], status) for status in after.status or () if status.pg_id in old]
    return any(getattr(late, name) > getattr(early, name) for early, late in pairs for name in counters)


def _key(dump: Dump) -> Numbers:
    """What identifies an entry in all dumps of a recorder, rising."""
    records = dump.column("record_id")
    return dump.column("created_ns") if (records == NULL).any() else records


def _shared(before: Numbers, after: Numbers) -> tuple[Places, Places]:
    """Places of the entries that are in both."""
    if np.array_equal(before, after):
        every = np.arange(len(before))
        return every, every
    _, mine, theirs = np.intersect1d(before, after, return_indices=True)
    return mine, theirs


def _went_on(before: Dump, after: Dump, mine: Places, theirs: Places, written_ns: int | None) -> bool:
    old, new = _stages(before)[mine], _stages(after)[theirs]
    noticed = (before.column("started_ns")[mine] == NULL) & (after.column("started_ns")[theirs] != NULL)
    aborted = (new == STAGES["completed"]) & _too_late(after, written_ns)[theirs]
    return bool((((new > old) & (old != UNTOLD) | noticed) & ~aborted).any())


def _left(before: Dump, mine: Places, written_ns: int | None) -> bool:
    """Whether an operation that was pending is gone: only what has completed is left out."""
    stages = _stages(before)
    gone = (stages == STAGES["scheduled"]) | (stages == STAGES["started"])
    gone[mine] = False
    return bool((gone & ~_too_late(before, written_ns)).any())


def _stages(dump: Dump) -> Places:
    stateless = records_no_states(dump)
    named = [
        STAGES["completed" if call.retired else "scheduled"] if stateless else STAGES.get(call.state or "", UNTOLD)
        for call in dump.calls
    ]
    return np.array(named, np.int64)[dump.code("call")]


def _too_late(dump: Dump, written_ns: int | None) -> Flags:
    """Whether an operation had its timeout behind it when it ended, or when the later dump was written."""
    limits = np.array([call.timeout_ms or 0 for call in dump.calls], np.int64)[dump.code("call")] * 1_000_000
    ended, created = dump.column("completed_ns"), dump.column("created_ns")
    ended = np.where(ended == NULL, NULL if written_ns is None else written_ns, ended)
    known = (ended != NULL) & (created != NULL) & (limits > 0)
    late: Flags = known & (np.where(known, ended, 0) - np.where(known, created, 0) >= limits)
    return late
