"""Stack of the failed collective, which torch 2.6 and later print below the watchdog's message."""

from __future__ import annotations

import re

from rankscope.parsers.logs.c10d.event_builder import TEXT_LIMIT, message_event
from rankscope.parsers.logs.log_record import Event, Record

LITERALS = ("Stack trace of the failed collective: ",)
FRAME_LIMIT = 256
_FRAME = re.compile(r"^#(\d{1,4}) (.{1,1000}?) from (.{0,4096}):(\d{1,9})$")


class FailedStack:
    """Collector of one stack; value `frames`, innermost first, of rows [function, file, line]."""

    patience = 8
    quotes = True
    told_rank = None

    def __init__(self, record: Record) -> None:
        self._record = record
        self._frames: list[list[str | int]] = []

    def consumes(self, record: Record) -> bool:
        """Whether a line is the next frame; reads it if so."""
        frame = _FRAME.match(record.text[:TEXT_LIMIT].strip())
        if frame is None or int(frame[1]) != len(self._frames) or len(self._frames) >= FRAME_LIMIT:
            return False
        self._frames.append([frame[2], frame[3], int(frame[4])])
        return True

    def result(self) -> list[Event]:
        """The event, at the line that announces the stack."""
        return [message_event("failed-collective-stack", self._record, frames=self._frames)] if self._frames else []


def begins(record: Record) -> FailedStack | None:
    """A stack that begins with this record."""
    return FailedStack(record) if LITERALS[0] in record.text else None
