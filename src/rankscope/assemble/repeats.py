"""Earlier dumps of one recorder: whether the job progressed between an earlier one and the used one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.assemble.recorders import records_no_states
from rankscope.assemble.sources import DumpVersions, SourceFile
from rankscope.kinds.input_kinds import DUPLICATE
from rankscope.parsers.flight_recorder.model import Dump
from rankscope.parsers.matrices import NULL, Numbers
from rankscope.schema.dataset import latest_ns
from rankscope.schema.tables import REPEATS

Row = dict[str, Any]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

STAGES = {"scheduled": 0, "started": 1, "completed": 2}
UNTOLD = -1
"""Stage of an operation with unknown state."""


def repeat_table(sources: Sequence[SourceFile]) -> pl.DataFrame:
    """A row for each source with a used `newer` one, unless it is a copy of that; columns of REPEATS.

    A watched file with several versions has rows for them, behind all others. `sources` are all files, in the order of
    their rows.
    """
    placed = list(enumerate(sources))
    earlier = [_row(place, source, source.newer) for place, source in placed if source.newer is not None]
    watched = [row for place, source in placed if source.used for row in _version_rows(place, source)]
    rows = [row for row in earlier if row is not None] + watched
    return pl.DataFrame(rows, schema=REPEATS)


def _row(place: int, source: SourceFile, used: SourceFile) -> Row | None:
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


def _version_rows(place: int, source: SourceFile) -> Iterator[Row]:
    versions = source.versions
    if versions is None or source.dump is None:
        return
    spans = [(versions.moved, True), (versions.unchanged, False)]
    for span, moved in spans:
        if span is not None:
            yield {
                "rank": source.rank,
                "file": place,
                "written_ns": span[0],
                "later_ns": span[1],
                "progressed": moved,
            }


def _swapped(source: SourceFile, used: SourceFile) -> bool:
    """Whether the unused one was written later: it holds no newer event, and fewer explaining facts."""
    same_end = (source.span or (0, 0))[1] == (used.span or (0, 0))[1]
    return same_end and (source.mtime_ns or 0) > (used.mtime_ns or 0)


def _may_be_copy(one: SourceFile, other: SourceFile) -> bool:
    """Whether two equal dumps may be one: without time between them, or in another form."""
    forms = [(bool(s.dump and s.dump.stacks), s.shown.lower().endswith(".json")) for s in (one, other)]
    return None in (one.mtime_ns, other.mtime_ns) or one.mtime_ns == other.mtime_ns or forms[0] != forms[1]


def _believed(source: SourceFile) -> bool:
    """Whether a file is not older than its content."""
    return source.mtime_ns is not None and latest_ns(source.mtime_ns) >= (source.span or (0, 0))[1]


def progressed(before: Dump, after: Dump, written_ns: int | None) -> bool | None:
    """Whether an operation was issued, started or completed between two dumps of one recorder; None if unknown.

    `written_ns` is the write time of the later one. An operation that ended only after its timeout was aborted, which
    is no progress.
    """
    if before.truncated or after.truncated:
        return None
    if _issued(before, after):
        return True
    if not before.rows:
        return _has_counted(before, after, ("started", "completed"))
    mine, theirs = _shared(_key(before), _key(after))
    return _went_on(before, after, mine, theirs, written_ns) or _has_left(before, mine, written_ns)


def _issued(before: Dump, after: Dump) -> bool:
    newer = bool(after.rows) and (not before.rows or int(_key(after).max()) > int(_key(before).max()))
    return newer or _has_counted(before, after, ("enqueued",))


def _has_counted(before: Dump, after: Dump, counters: tuple[str, ...]) -> bool:
    old = {status.pg_id: status for status in before.status or ()}
    pairs = [(old[status.pg_id], status) for status in after.status or () if status.pg_id in old]
    return any(getattr(late, name) > getattr(early, name) for early, late in pairs for name in counters)


def _key(dump: Dump) -> Numbers:
    """A rising number that identifies an entry in all dumps of a recorder."""
    records = dump.column("record_id")
    return dump.column("created_ns") if (records == NULL).any() else records


def _shared(before: Numbers, after: Numbers) -> tuple[Places, Places]:
    """Indices of the entries that are in both."""
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


def _has_left(before: Dump, mine: Places, written_ns: int | None) -> bool:
    """Whether a pending operation is gone: only completed ones are left out."""
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
    """Whether an operation was past its timeout at its end, or when the later dump was written."""
    limits = np.array([call.timeout_ms or 0 for call in dump.calls], np.int64)[dump.code("call")] * 1_000_000
    ended, created = dump.column("completed_ns"), dump.column("created_ns")
    ended = np.where(ended == NULL, NULL if written_ns is None else written_ns, ended)
    known = (ended != NULL) & (created != NULL) & (limits > 0)
    late: Flags = known & (np.where(known, ended, 0) - np.where(known, created, 0) >= limits)
    return late


# Dumps of one recorder that were written several times: the newest is used.


def set_aside(sources: Iterable[SourceFile]) -> list[SourceFile]:
    """The dumps without copies, which get a note."""
    by_rank: dict[int | None, list[SourceFile]] = defaultdict(list)
    for source in sources:
        by_rank[source.rank].append(source)
    return [kept for rank, group in by_rank.items() for kept in (group if rank is None else _distinct(group))]


def _distinct(sources: list[SourceFile]) -> list[SourceFile]:
    kept: list[SourceFile] = []
    for source in sorted(sources, key=_worth, reverse=True):
        better = next((k for k in kept if same_recorder(k, source)), None)
        if better is None:
            kept.append(source)
        else:
            source.kind, source.newer = DUPLICATE.name, better
            source.note = f"another dump of the same recorder: {better.shown} is used"
    return kept


def _worth(source: SourceFile) -> tuple[int, int, int, bool, bool, int, str]:
    """Order of copies: the newest by events and by counters, the most rows, stacks, written groups, the file's time.

    gloo retires operations out of order, so its counter of completed ones goes back, too.
    """
    dump = source.dump or Dump()
    resolved = any(group.name for group in dump.config)
    newest = source.span[1] if source.span else 0
    counted = sum(status.enqueued + status.started for status in dump.status or ())
    if source.libraries != {"gloo"}:
        counted += sum(status.completed for status in dump.status or ())
    written = source.mtime_ns or 0
    return newest, counted, dump.rows, bool(dump.stacks), resolved, written, source.shown


def same_recorder(one: SourceFile, other: SourceFile) -> bool:
    """Whether two dumps of a rank hold the same entries, or one continues the other."""
    if one.dump is None or other.dump is None:
        return False
    if not one.dump.rows or not other.dump.rows:
        return one.directory == other.directory and _same_header(one.dump, other.dump)
    if one.libraries.isdisjoint(other.libraries) or not _compatible(one, other):
        return False
    if _overlap(one.dump, other.dump):
        return True
    older, newer = sorted((one, other), key=lambda s: s.span or (0, 0))
    continues = _bounds(newer.dump)[0] > _bounds(older.dump)[1] >= 0
    return continues and bool(older.threads & newer.threads)


def _same_header(one: Dump, other: Dump) -> bool:
    return bool(one.config) and one.config == other.config


def _compatible(one: SourceFile, other: SourceFile) -> bool:
    """Whether both can be of one process."""
    threads = not one.threads or not other.threads or bool(one.threads & other.threads)
    places = one.candidates is None or other.candidates is None or bool(one.candidates & other.candidates)
    return threads and places


def _overlap(one: Dump, other: Dump) -> bool:
    """Whether both have a common entry: the same record at the same nanosecond."""
    return bool(np.isin(_key_of_copy(one), _key_of_copy(other)).any())


def _key_of_copy(dump: Dump) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    with np.errstate(over="ignore"):
        return dump.column("created_ns") * np.int64(1_000_003) + dump.column("record_id")


def _bounds(dump: Dump | None) -> tuple[int, int]:
    records = dump.column("record_id") if dump is not None else np.empty(0, np.int64)
    return (int(records.min()), int(records.max())) if records.size else (-1, -1)


# Versions of one dump that was written anew while it was watched, and the time since its last change.


def first_version(source: SourceFile, restarted: bool = False) -> DumpVersions | None:
    """The history of a single version, which begins the count. None without a time."""
    if source.dump is None or source.mtime_ns is None:
        return None
    return DumpVersions(source.mtime_ns, source.mtime_ns, restarted=restarted)


def next_version(before: SourceFile, after: SourceFile) -> DumpVersions | None:
    """The history with a newer version of the dump `before`; both times are of one clock, the file server's."""
    old, new = before.versions, first_version(after)
    if old is None or new is None or before.dump is None or after.dump is None or new.newest_ns <= old.newest_ns:
        return new
    if before.dump.rows and after.dump.rows and not same_recorder(before, after):
        return first_version(after, restarted=True)
    moved = progressed(before.dump, after.dump, after.mtime_ns)
    if moved is None:
        return DumpVersions(new.newest_ns, new.newest_ns, restarted=old.restarted)
    if moved:
        return DumpVersions(new.newest_ns, new.newest_ns, (old.newest_ns, new.newest_ns), old.restarted)
    return DumpVersions(old.since_ns, new.newest_ns, old.moved, old.restarted)
