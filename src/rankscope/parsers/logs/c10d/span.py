"""What spans lines."""

from __future__ import annotations

from typing import Protocol

from rankscope.parsers.logs.event import Event
from rankscope.parsers.logs.record import Record


class Span(Protocol):
    """A report over several lines, in the making."""

    @property
    def patience(self) -> int:
        """How many other lines of its stream may come between two of its own."""

    @property
    def quotes(self) -> bool:
        """Whether the line taken last is code or a frame, and no message."""

    @property
    def told_rank(self) -> int | None:
        """The global rank that the current lines tell of, where they say so themselves."""

    def takes(self, record: Record) -> bool:
        """Whether a line belongs to it; reads it if so."""

    def done(self) -> list[Event]:
        """What it was."""
