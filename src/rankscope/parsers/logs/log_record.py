"""One message of a log, without the prefixes of launchers and collectors."""

from __future__ import annotations

from typing import Any, NamedTuple


class Stamp(NamedTuple):
    """A printed time."""

    ns: int
    """Nanoseconds since the epoch, read as UTC; a time without date or year counts from the epoch."""
    resolution_ns: int
    """1_000_000_000 for a time with seconds only."""
    has_date: bool
    has_year: bool
    is_utc: bool
    """The text says UTC; otherwise it is local time of an unknown zone."""


class Record(NamedTuple):
    """The text of one print, as far as it survived."""

    offset: int
    """Offset of its first byte in the unpacked file."""
    line: int
    """Line of the file, from 1."""
    text: str
    """Text without prefixes, colours and line ends, with a replacement for bytes that are no UTF-8."""
    rank: int | None = None
    """Global rank, from a prefix such as `[rank3]:`."""
    label: str = ""
    """The launcher's prefix, "" without one: `3: `, `[1,3]<stdout>:`, `(Worker pid=615, ip=10.0.0.6)`."""
    stamp: Stamp | None = None
    """The time before it, or in its head."""
    torn: bool = False
    """Its end or its beginning is missing: a number next to the cut is not reliable."""
    level: str = ""
    """The level of Python's logging in its prefix: "WARNING", "ERROR"; "" without one."""


# An event of a log: a watchdog's report, an exception, the end of a process, but no operation.


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
