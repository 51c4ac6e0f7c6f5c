"""Dumps of one recorder that were written more than once: the newest is used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from rankscope.assemble.repeats import progressed
from rankscope.assemble.sources import Source, Versions
from rankscope.kinds.input_kinds import DUPLICATE
from rankscope.parsers.flight_recorder.model import Dump


def set_aside(sources: Iterable[Source]) -> list[Source]:
    """The dumps without the copies, which get a note."""
    by_rank: dict[int | None, list[Source]] = defaultdict(list)
    for source in sources:
        by_rank[source.rank].append(source)
    return [kept for rank, group in by_rank.items() for kept in (group if rank is None else _distinct(group))]


def _distinct(sources: list[Source]) -> list[Source]:
    kept: list[Source] = []
    for source in sorted(sources, key=_worth, reverse=True):
        better = next((k for k in kept if same_recorder(k, source)), None)
        if better is None:
            kept.append(source)
        else:
            source.kind, source.newer = DUPLICATE.name, better
            source.note = f"another dump of the same recorder: {better.shown} is used"
    return kept


def _worth(source: Source) -> tuple[int, int, int, bool, bool, int, str]:
    """Orders copies: the newest by events and by counters, the most rows, stacks, written groups, the file's time."""
    dump = source.dump or Dump()
    resolved = any(group.name for group in dump.config)
    newest = source.span[1] if source.span else 0
    counted = sum(status.enqueued + status.started + status.completed for status in dump.status or ())
    written = source.mtime_ns or 0
    return newest, counted, dump.rows, bool(dump.stacks), resolved, written, source.shown


def same_recorder(one: Source, other: Source) -> bool:
    """Whether two dumps of a rank hold the same entries, or one goes on where the other ended."""
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


def _compatible(one: Source, other: Source) -> bool:
    """Nothing speaks against their being of one process."""
    threads = not one.threads or not other.threads or bool(one.threads & other.threads)
    places = one.candidates is None or other.candidates is None or bool(one.candidates & other.candidates)
    return threads and places


def _overlap(one: Dump, other: Dump) -> bool:
    """Whether any entry is in both: the same record at the same nanosecond."""
    return bool(np.isin(_key(one), _key(other)).any())


def _key(dump: Dump) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    with np.errstate(over="ignore"):
        return dump.column("created_ns") * np.int64(1_000_003) + dump.column("record_id")


def _bounds(dump: Dump | None) -> tuple[int, int]:
    records = dump.column("record_id") if dump is not None else np.empty(0, np.int64)
    return (int(records.min()), int(records.max())) if records.size else (-1, -1)


# What the versions of one dump say that was written anew while it was watched: since when nothing has changed.


def first_version(source: Source, restarted: bool = False) -> Versions | None:
    """What one version says by itself: nothing, but it begins the count. None without a time."""
    if source.dump is None or source.mtime_ns is None:
        return None
    return Versions(source.mtime_ns, source.mtime_ns, restarted=restarted)


def next_version(before: Source, after: Source) -> Versions | None:
    """What is known with a newer version of the dump `before`; the times are of one clock, the file server's."""
    old, new = before.versions, first_version(after)
    if old is None or new is None or before.dump is None or after.dump is None or new.newest_ns <= old.newest_ns:
        return new
    if before.dump.rows and after.dump.rows and not same_recorder(before, after):
        return first_version(after, restarted=True)
    moved = progressed(before.dump, after.dump, after.mtime_ns)
    if moved is None:
        return Versions(new.newest_ns, new.newest_ns, restarted=old.restarted)
    if moved:
        return Versions(new.newest_ns, new.newest_ns, (old.newest_ns, new.newest_ns), old.restarted)
    return Versions(old.since_ns, new.newest_ns, old.moved, old.restarted)
