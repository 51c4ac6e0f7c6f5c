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


# Lines of settings and versions.

_ENV = re.compile(
    r"(?P<name>(?:NCCL|RCCL|OFI_NCCL|MSCCL|HSA)_\w{1,100}) set by environment to (?P<value>.{0,1000}?)\.?\s*$"
)
_VERSION = re.compile(r"(?P<library>NCCL|RCCL) version\s*:? (?P<value>\S{1,100}(?: compiled with \S+ \S{1,20})?)")
_OTHERS = (
    ("cuda-driver", re.compile(r"cudaDriverVersion (\d{1,9})")),
    ("network", re.compile(r"Using network (.{1,100})")),
    ("net-plugin", re.compile(r"NET/Plugin: Loaded net plugin (.{1,100})")),
    ("bootstrap", re.compile(r"Bootstrap ?: Using (.{1,200})")),
)


def setting(message: str) -> tuple[str, str] | None:
    """Name and value of a setting; the version is `version`. A number is printed with a dot behind it."""
    if found := _ENV.match(message):
        return found["name"], found["value"]
    if told := version(message):
        return told
    for name, pattern in _OTHERS:
        if found := pattern.match(message):
            return name, found[1].strip()
    return None


def version(message: str) -> tuple[str, str] | None:
    """The version of the library: a line without a head up to 2.21."""
    found = _VERSION.match(message)
    return ("version", f"{found['library']} {found['value']}") if found else None
