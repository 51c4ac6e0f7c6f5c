"""One message of a log, without the prefixes of launchers and collectors."""

from __future__ import annotations

from typing import NamedTuple


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
