"""Warnings of NCCL, and the calls that returned their error: `init.cc:867 -> 5` in the same thread, innermost first."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.parsers.logs import bounded_rows
from rankscope.parsers.logs.c10d.endings import ranges_in
from rankscope.parsers.logs.c10d.event_builder import message_event
from rankscope.parsers.logs.log_record import Event, Record
from rankscope.parsers.logs.model import NcclWarning
from rankscope.parsers.logs.nccl.packed_words import NcclHead

TRAIL_LINE = re.compile(r"(?P<place>[\w./+\-]{1,200}:\d{1,6}) -> (?P<result>\d{1,3})(?: \[[^\]]{0,60}\])?\s*$")
MOST_THREADS = 10_000
"""Most threads that are followed."""
TRAIL_LIMIT = 64
TEXT_LIMIT = 2_000


class WarningReader:
    """Collector of the warnings of a log."""

    def __init__(self) -> None:
        self._rows = bounded_rows.bounded_warnings()
        self._open: dict[tuple[int, int | None], NcclWarning | None] = {}
        self._said: dict[tuple[int, int | None], tuple[NcclHead, Record]] = {}

    def result(self) -> list[NcclWarning]:
        """The kept warnings, in the order of the log."""
        return self._rows.result()

    def left_out(self) -> dict[str, int]:
        """The numbers of dropped warnings."""
        return self._rows.left_out()

    def warn(self, process: int, head: NcclHead, record: Record) -> None:
        """Takes a warning or an error."""
        row = NcclWarning(
            process, head.level, head.place, head.message[:TEXT_LIMIT], [], record.offset, record.line, head.tid,
            record.stamp, record.torn,
        )  # fmt: skip
        self._rows.add([row])
        if len(self._open) < MOST_THREADS:
            self._open[process, head.tid] = row

    def note_text(self, process: int, head: NcclHead, record: Record) -> None:
        """Takes any other text of a thread: an error may follow it."""
        known = self._said.get((process, head.tid))
        if len(self._said) < MOST_THREADS and (known is None or known[1].offset < record.offset):
            self._said[process, head.tid] = head, record

    def trail(self, process: int, head: NcclHead, record: Record) -> bool:
        """Takes a line of the calls; False for any other line."""
        if not TRAIL_LINE.match(head.message):
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


def setting_pair(message: str) -> tuple[str, str] | None:
    """Name and value of a setting, but for the version (`version_pair`). A printed number has a dot behind it."""
    if found := _ENV.match(message):
        return found["name"], found["value"]
    if told := version_pair(message):
        return told
    for name, pattern in _OTHERS:
        if found := pattern.match(message):
            return name, found[1].strip()
    return None


def version_pair(message: str) -> tuple[str, str] | None:
    """The version of the library: a line without a head up to 2.21."""
    found = _VERSION.match(message)
    return ("version", f"{found['library']} {found['value']}") if found else None


# Results of hardware checks of NCCL 2.31 and later (NCCL_RUN_DIAGNOSTICS, `ncclras -D`).

LITERALS = ("NCCL DIAG [",)
KIND = "nccl-diagnosis"
_LINE = re.compile(r"NCCL DIAG \[(OK|INFO|WARN|ERROR|FAIL)\] (.{1,1000})")
_RANKS = re.compile(r"rank\(s\) (\d[\d,\- ]{0,2000})")
_SINGLE_RANK = re.compile(r"\b(?:write |read )?rank (\d{1,7}) \((\S{1,255})\): (.{1,200}?)(?: in comm |$)")
_SIZE = re.compile(r"\bacross (\d{1,7}) ranks\b")
_COMM = re.compile(r"\bin comm (0x[0-9a-fA-F]{1,16})\b")
_HOST = re.compile(r"\bon host (\S{1,255}?)(?:[.,;]? |$)")
_DIFFER = re.compile(r"\bmismatch\b|\bdiffers? from\b")
_OFF = re.compile(r"\boff median\b")


def events(record: Record) -> Iterator[Event]:
    """The event of a line that reports a fault or the size of a communicator.

    Values: `level`; `what`: "fault", "differs" or ""; `ranks`, first and last of ranges; `size` and `comm` of the
    communicator; `node`, the host of a fault. Unknown values are None, or [].
    """
    found = _LINE.search(record.text)
    if found is None:
        return
    level, text = found.groups()
    one, size, comm, host = _SINGLE_RANK.search(text), _SIZE.search(text), _COMM.search(text), _HOST.search(text)
    listed = _RANKS.search(text)
    ranks = [[int(one[1])] * 2] if one else ranges_in(listed[1].replace(" ", "")) if listed else []
    differs = _DIFFER.search(text) is not None
    wrong = level not in ("OK", "INFO") or (one is not None and _OFF.search(text) is not None)
    what = "" if not wrong else "differs" if differs else "fault"
    if what or size is not None:
        yield message_event(
            KIND, record, text, level=level, what=what, ranks=ranks, size=int(size[1]) if size else None,
            comm=comm[1] if comm else None, node=one[2] if one else host[1] if host else None,
        )  # fmt: skip
