"""One message of a log, freed of what launchers and collectors put in front of it."""

from __future__ import annotations

from typing import NamedTuple


class Stamp(NamedTuple):
    """A time as it was printed."""

    ns: int
    """Nanoseconds since the epoch, read as UTC; without a date or a year from the epoch's own."""
    resolution_ns: int
    """1_000_000_000 for a time with seconds only."""
    has_date: bool
    has_year: bool
    is_utc: bool
    """The text said so; otherwise it is local time of an unknown zone."""


class Record(NamedTuple):
    """What was printed in one go, as far as it survived."""

    offset: int
    """Of its first byte in the file, after unpacking."""
    line: int
    """Line of the file, from 1."""
    text: str
    """Without prefixes, colours and line ends; what is not UTF-8 is replaced."""
    rank: int | None = None
    """Global rank, where a prefix says so: `[rank3]:`."""
    label: str = ""
    """The launcher's prefix as it stood, "" without one: `3: `, `[1,3]<stdout>:`, `(Worker pid=615, ip=10.0.0.6)`."""
    stamp: Stamp | None = None
    """The time in front of it, or in its head."""
    torn: bool = False
    """Its end or its beginning is missing: no number next to the cut can be believed."""
