"""Output of pytest for a failed test: lines `E   ` with the exception, and code around them.

Source: _pytest/_code/code.py and reports.py.
"""

from __future__ import annotations

import re

from rankscope.parsers.logs.c10d.event_builder import PYTEST_MARK, message_event
from rankscope.parsers.logs.c10d.tracebacks import EXCEPTION, HEAD
from rankscope.parsers.logs.log_record import Event, Record

LITERALS = (PYTEST_MARK, "_ _ _ _ _ _", "____ ", "- Captured ", "= short test summary", "= warnings summary")
MESSAGE_LINES = 32
_SECTION = re.compile(r"(?:_ ){6,}|_{3,} \S.{0,200} _{3,}$")
_OVER = re.compile(r"={3,} \S.{0,200} ={3,}$|-{3,} Captured \S.{0,100} -{3,}$")
_CODE = re.compile(r">?\s{4,}\S")


def unmarked(record: Record) -> Record:
    """The line without the mark of an exception; its label then holds the mark."""
    text = record.text
    if not text.startswith("E") or not (text.startswith(PYTEST_MARK) or text.rstrip() == "E"):
        return record
    return record._replace(text=text[len(PYTEST_MARK) :], label=record.label + PYTEST_MARK)


class CodeLines:
    """Recognition of lines of code in a report: they quote messages that nobody printed."""

    def __init__(self) -> None:
        self._inside = False

    def has(self, record: Record) -> bool:
        """Whether a line is code. Takes lines in the order of the log."""
        text = record.text
        if _SECTION.match(text):
            self._inside = True
        elif _OVER.match(text):
            self._inside = False
        return self._inside and not record.label.endswith(PYTEST_MARK) and _CODE.match(text) is not None


class TestException:
    """Collector of the exception of a failed test. Values as of a traceback, without frames."""

    patience = 0
    quotes = False
    told_rank = None

    def __init__(self, record: Record, kind: str, message: str) -> None:
        self._record, self._kind, self._message, self._last = record, kind, [message], record.line

    def consumes(self, record: Record) -> bool:
        """Whether a line continues the message; reads it if so."""
        if (
            not record.label.endswith(PYTEST_MARK)
            or record.line != self._last + 1
            or HEAD in record.text
            or len(self._message) >= MESSAGE_LINES
        ):
            return False
        self._last = record.line
        self._message.append(record.text.strip())
        return True

    def result(self) -> list[Event]:
        """The event, at the first line."""
        message = "\n".join(self._message).strip()
        return [
            message_event(
                "traceback", self._record, f"{self._kind}: {message}" if message else self._kind, exception=self._kind,
                message=message, frames=[], causes=[], mixed=False, launcher=False,
            )
        ]  # fmt: skip


def begins(record: Record) -> TestException | None:
    """An exception that begins with this record."""
    found = EXCEPTION.match(record.text.strip()) if record.label.endswith(PYTEST_MARK) else None
    return TestException(record, found[1], found[2] or "") if found else None
