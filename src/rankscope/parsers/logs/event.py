"""An event of a log: a watchdog's report, an exception, the end of a process, but no operation."""

from __future__ import annotations

from typing import Any, NamedTuple

from rankscope.parsers.logs.log_record import Record, Stamp


class Event(NamedTuple):
    """One event."""

    kind: str
    offset: int
    """Offset of the first byte of its record in the unpacked file."""
    line: int
    """Line of the file, counted from 1."""
    rank: int | None
    """Global rank, where the log has it."""
    stamp: Stamp | None
    text: str
    """The text for a reader, without control characters."""
    values: dict[str, Any]
    """Values as JSON scalars; the keys depend on `kind`."""
    torn: bool = False
    """Part of it is missing."""


def record_event(kind: str, record: Record, text: str = "", **values: Any) -> Event:
    """An event of a record, with the record's text unless another is given."""
    return Event(
        kind, record.offset, record.line, record.rank, record.stamp, text or record.text, values, record.torn
    )  # fmt: skip


def event_from(row: list[Any]) -> Event:
    """The event from its JSON list."""
    kind, offset, line, rank, stamp, text, values, torn = row
    return Event(kind, offset, line, rank, Stamp(*stamp) if stamp is not None else None, text, values, torn)
