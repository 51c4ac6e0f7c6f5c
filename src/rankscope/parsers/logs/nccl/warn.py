"""Warnings, and the calls that returned their error: `init.cc:867 -> 5` in the same thread, innermost first."""

from __future__ import annotations

import re

from rankscope.parsers.logs import kept
from rankscope.parsers.logs.model import Warned
from rankscope.parsers.logs.nccl.heads import Head
from rankscope.parsers.logs.record import Record

TRAIL = re.compile(r"(?P<place>[\w./+\-]{1,200}:\d{1,6}) -> (?P<result>\d{1,3})(?: \[[^\]]{0,60}\])?\s*$")
MOST = 10_000
"""So many threads are followed."""
TRAIL_LIMIT = 64
TEXT_LIMIT = 2_000


class Warnings:
    """The warnings of a log."""

    def __init__(self) -> None:
        self._rows = kept.warnings()
        self._open: dict[tuple[int, int | None], Warned | None] = {}
        self._said: dict[tuple[int, int | None], tuple[Head, Record]] = {}

    def done(self) -> list[Warned]:
        """Those that are kept, in the order of the log."""
        return self._rows.done()

    def left_out(self) -> dict[str, int]:
        """How many are not kept."""
        return self._rows.left_out()

    def warn(self, process: int, head: Head, record: Record) -> None:
        """A warning or an error."""
        row = Warned(
            process, head.level, head.place, head.message[:TEXT_LIMIT], [], record.offset, record.line, head.tid,
            record.stamp, record.torn,
        )  # fmt: skip
        self._rows.add([row])
        if len(self._open) < MOST:
            self._open[process, head.tid] = row

    def said(self, process: int, head: Head, record: Record) -> None:
        """Any other text of a thread: an error follows its text, also where that is no warning."""
        known = self._said.get((process, head.tid))
        if len(self._said) < MOST and (known is None or known[1].offset < record.offset):
            self._said[process, head.tid] = head, record

    def trail(self, process: int, head: Head, record: Record) -> bool:
        """Takes a line of the calls; False if it is none."""
        if not TRAIL.match(head.message):
            return False
        open_ = self._open.get((process, head.tid))
        if open_ is None:
            before = self._said.get((process, head.tid), (head._replace(message=""), record))
            self.warn(process, *before)
            open_ = self._open.get((process, head.tid))
        if open_ is not None and len(open_.trail) < TRAIL_LIMIT:
            open_.trail.append(head.message.strip()[:200])
        return True
