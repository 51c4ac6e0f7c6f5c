"""Something a log tells that is no row of a collective: a watchdog's report, an exception, the end of a process."""

from __future__ import annotations

from typing import Any, NamedTuple

from rankscope.parsers.logs.log_record import Record, Stamp


class Event(NamedTuple):
    """One such thing."""

    kind: str
    offset: int
    """Of the first byte of its record in the file, after unpacking."""
    line: int
    """Line of the file, from 1."""
    rank: int | None
    """Global rank, where the log says it."""
    stamp: Stamp | None
    text: str
    """What a person would read of it, without control characters."""
    values: dict[str, Any]
    """What was read from it, as JSON scalars; the keys belong to `kind`."""
    torn: bool = False
    """Part of it is missing."""


def record_event(kind: str, record: Record, text: str = "", **values: Any) -> Event:
    """An event of a record; its text is the record's unless another is given."""
    return Event(
        kind, record.offset, record.line, record.rank, record.stamp, text or record.text, values, record.torn
    )  # fmt: skip


def event_from(row: list[Any]) -> Event:
    """The event that went through JSON as a list."""
    kind, offset, line, rank, stamp, text, values, torn = row
    return Event(kind, offset, line, rank, Stamp(*stamp) if stamp is not None else None, text, values, torn)
