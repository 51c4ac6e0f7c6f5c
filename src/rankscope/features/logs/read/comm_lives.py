"""Processes of a log, the lives of their communicators, and what they print besides operations: settings, versions,
results of hardware checks (NCCL 2.31 and later: NCCL_RUN_DIAGNOSTICS, `ncclras -D`), warnings with the failed calls.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from rankscope.features.logs.read import bounded_rows
from rankscope.features.logs.read.c10d.endings import ranges_in
from rankscope.features.logs.read.log_record import Event, Record, message_event
from rankscope.features.logs.read.model import Comm, LogWriter, NcclWarning
from rankscope.features.logs.read.packed_words import NcclHead, Places
from rankscope.parsers.line_prefixes import Stamp
from rankscope.text.secrets import clip

MOST_ROWS = 100_000
"""Most processes, and most communicators, of one part of a log."""


class LogPlace(NamedTuple):
    """A place in a log."""

    offset: int
    line: int


class ProcessTable:
    """The processes that wrote to a log."""

    def __init__(self) -> None:
        self.rows: list[LogWriter] = []
        self.places: dict[tuple[str, int], int] = {}
        self._records: Counter[int] = Counter()
        self._devices: defaultdict[int, set[int]] = defaultdict(set)

    def of(self, host: str, pid: int, record: Record, glued: bool) -> int | None:
        """The index of a process; None if there are too many."""
        at = self.places.get((host, pid))
        if at is None:
            if len(self.rows) >= MOST_ROWS:
                return None
            at = self.places[host, pid] = len(self.rows)
            self.rows.append(LogWriter(host, pid, record.rank, record.label, offset=record.offset, glued=glued))
            return at
        row = self.rows[at]
        if record.offset < row.offset:
            row = self.rows[at] = row._replace(offset=record.offset)
        if (row.glued and not glued) or (row.rank is None and record.rank is not None):
            rank, label = row.rank if record.rank is None else record.rank, row.label or record.label
            self.rows[at] = row._replace(rank=rank, label=label, glued=row.glued and glued)
        return at

    def count(self, at: int, records: int, torn_at: int | None = None) -> None:
        """Adds records to a process; `torn_at` is the offset of a last record that is cut."""
        self._records[at] += records
        row = self.rows[at]
        if torn_at is not None and (row.torn_at is None or torn_at < row.torn_at):
            self.rows[at] = row._replace(torn_at=torn_at)

    def issued(self, at: int, device: int | None) -> None:
        """Notes that a thread with a current device issued an operation."""
        if device is not None:
            self._devices[at].add(device)

    def result(self) -> list[LogWriter]:
        """The rows of all processes."""
        return [
            row._replace(
                records=self._records[at], device=min(self._devices[at]) if len(self._devices[at]) == 1 else None
            )
            for at, row in enumerate(self.rows)
        ]


class CommTable:
    """Communicators by process and pointer, with a row for each life."""

    def __init__(self) -> None:
        self.rows: list[Comm] = []
        self.lives: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        self.owners: defaultdict[str, set[int]] = defaultdict(set)
        self.pointers: dict[int, str | None] = {}
        self.lost = 0
        """The number of lines about communicators beyond `MOST_ROWS`."""

    def life(self, process: int, pointer: str, state: str, facts: dict[str, Any], record: Record) -> None:
        """Takes a line of the initialisation or end of a communicator."""
        at = self._at(process, pointer, state, record)
        if at is None or not state:
            return
        row = self.rows[at]
        known = {name: value for name, value in facts.items() if getattr(row, name) in (None, "")}
        if facts.get("parent") and row.parent_comm is None:
            known["parent_comm"] = self._open(process, facts["parent"], record.offset)
        if state == "start":
            stamps: dict[str, Stamp | int | None] = {"started": record.stamp, "start_offset": record.offset}
        elif state == "complete":
            stamps = {"completed": record.stamp, "complete_offset": record.offset}
        else:
            stamps = {"ended": record.stamp, "end_offset": record.offset} if state in END_STATES else {}
        known.update(stamps)
        self.rows[at] = row._replace(state=state, init=row.init or state in ("start", "complete"), **known)

    def _at(self, process: int, pointer: str, state: str, record: Record) -> int | None:
        """The life of a line; it may begin with this line."""
        lives = self.lives.get((process, pointer))
        last = self.rows[lives[-1]] if lives else None
        if state == "start" or (state == "complete" and (last is None or last.state != "start")):
            return self._new(process, pointer, LogPlace(record.offset, record.line))
        if last is None:
            # its beginning was before this part of the log: collectives from there on are its own
            return self._new(process, pointer, LogPlace(0, 0))
        return lives[-1] if lives else None

    def _new(self, process: int, pointer: str, place: LogPlace) -> int | None:
        if len(self.rows) >= MOST_ROWS:
            self.lost += 1
            return None
        at = len(self.rows)
        self.rows.append(Comm(process, pointer, *place))
        lives = self.lives[process, pointer]
        lives.append(at)
        lives.sort(key=lambda i: self.rows[i].offset)
        self.owners[pointer].add(process)
        if self.pointers.setdefault(process, pointer) != pointer:
            self.pointers[process] = None
        return at

    def _open(self, process: int, pointer: str, offset: int) -> int | None:
        lives = self.lives.get((process, pointer), ())
        return max((i for i in lives if self.rows[i].offset <= offset), default=None)

    def only(self, process: int) -> str | None:
        """The pointer of a process with a single one; else None."""
        return self.pointers.get(process)

    def owner(self, pointer: str) -> int | None:
        """The only process with this pointer; None if no process or several have it."""
        owners = self.owners.get(pointer, set())
        return next(iter(owners)) if len(owners) == 1 else None

    def of_rows(self, process: int, pointer: str, offsets: Places, lines: Places) -> Places:
        """The life of each operation, in the order of the log; -1 beyond the limit."""
        lives = self.lives.get((process, pointer), [])
        if len(lives) == 1 and self.rows[lives[0]].end_offset is None and self.rows[lives[0]].offset <= offsets[0]:
            return np.full(len(offsets), lives[0], np.int64)
        found = np.full(len(offsets), -1, np.int64)
        begins = [self.rows[i].offset for i in lives]
        which = np.searchsorted(np.array(begins, np.int64), offsets, "right") - 1
        for place in np.unique(which).tolist():
            rows = np.flatnonzero(which == place)
            ended = self.rows[lives[place]].end_offset if place >= 0 else -1
            if place >= 0:
                found[rows] = lives[place]
            late = rows[offsets[rows] > ended] if ended is not None else rows[:0]
            if late.size:
                begins_at = LogPlace(int(offsets[late[0]]), int(lines[late[0]]))
                following = lives[place + 1] if place + 1 < len(lives) else None
                found[late] = self._without_init(process, pointer, following, begins_at)
        return found

    def _without_init(self, process: int, pointer: str, following: int | None, begins: LogPlace) -> int:
        """The life of operations without an initialisation: the following one, if that lacks its own, too."""
        if following is not None and not self.rows[following].init:
            self.rows[following] = self.rows[following]._replace(offset=begins.offset, line=begins.line)
            return following
        fresh = self._new(process, pointer, begins)
        return -1 if fresh is None else fresh

    def update(self, at: int, nranks: int | None, rank: int | None) -> None:
        """Takes the values in lines of operations."""
        row = self.rows[at]
        if (row.nranks is None and nranks is not None) or (row.rank is None and rank is not None):
            self.rows[at] = row._replace(
                nranks=nranks if row.nranks is None else row.nranks, rank=rank if row.rank is None else row.rank
            )


LIFE_LINE = re.compile(
    r"(?:\[Rank \d{1,9}\] )?(?:(?P<function>nccl\w{1,64}) )?comm (?P<pointer>0x[0-9a-fA-F]{1,16}) "
    r"rank (?P<rank>\d{1,9}) n[rR]anks (?P<nranks>\d{1,9}) (?P<pairs>.{0,600}?)- "
    r"(?P<what>Init|Destroy|Abort|Finalize|Revoke) (?P<step>START|COMPLETE)"
)
_NUMBERS = {
    "cudaDev": "device", "nvmlDev": "nvml_device", "splitCount": "split", "childCount": "split", "color": "color",
    "key": "key",
}  # fmt: skip
_TEXTS = {"busId": "bus_id", "commId": "comm_id", "parent": "parent"}
_STATES = {
    ("Init", "START"): "start", ("Init", "COMPLETE"): "complete", ("Finalize", "COMPLETE"): "finalized",
    ("Destroy", "COMPLETE"): "destroyed", ("Abort", "START"): "aborting", ("Abort", "COMPLETE"): "aborted",
    ("Revoke", "COMPLETE"): "revoked",
}  # fmt: skip
END_STATES = ("destroyed", "aborted")
"""States after which another communicator may get the pointer."""


def comm_life(message: str) -> tuple[str, str, dict[str, Any]] | None:
    """Pointer, new state and values of a communicator, as fields of Comm; None for any other line.

    The state is "" for a step without a change, as `Destroy START`.
    """
    line = LIFE_LINE.match(message)
    if line is None:
        return None
    facts: dict[str, Any] = {"rank": int(line["rank"]), "nranks": int(line["nranks"])}
    if line["function"]:
        facts["function"] = line["function"]
    words = line["pairs"].split()
    for name, value in zip(words[::2], words[1::2], strict=False):
        if name in _TEXTS:
            facts[_TEXTS[name]] = value[:64]
        elif name in _NUMBERS and value.lstrip("-").isdecimal() and len(value) < 19:
            facts[_NUMBERS[name]] = int(value)
    return line["pointer"], _STATES.get((line["what"], line["step"]), ""), facts


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
            process,
            head.level,
            head.place,
            clip(head.message, TEXT_LIMIT),
            [],
            record.offset,
            record.line,
            head.tid,
            record.stamp,
            record.torn,
        )
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


_ENV = re.compile(
    r"(?P<name>(?:NCCL|RCCL|OFI_NCCL|MSCCL|HSA)_\w{1,100}) set by environment to (?P<value>.{0,1000}?)\.?\s*$"
)
_VERSION = re.compile(r"(?P<library>NCCL|RCCL) version\s*:? (?P<value>\S{1,100}(?: compiled with \S+ \S{1,20})?)")
_OTHERS = (
    ("cuda-driver", re.compile(r"cudaDriverVersion (\d{1,9})")),
    ("network", re.compile(r"Using network (.{1,100})")),
    ("net-plugin", re.compile(r"NET/Plugin: Loaded net plugin (.{1,100})")),
    ("bootstrap", re.compile(r"Bootstrap ?: Using (.{1,200})")),
    ("sockets", re.compile(r"NET/Socket ?: Using (.{1,400})")),
    ("gpu-direct", re.compile(r"GPU Direct RDMA ((?:Disabled|Enabled) for .{1,100})")),
    ("channels", re.compile(r"(\d{1,4} coll channels, .{1,120})")),
    ("ib-devices", re.compile(r"NET/IB ?: (?:Using )?((?:\[\d|No device).{1,400}?)\.?$")),
)


def setting_pair(message: str) -> tuple[str, str] | None:
    """Name and value of a setting, but for the version (`version_pair`). A printed number has a dot behind it."""
    if found := _ENV.match(message):
        return found["name"], found["value"]
    if version := version_pair(message):
        return version
    for name, pattern in _OTHERS:
        if found := pattern.match(message):
            return name, found[1].strip()
    return None


def version_pair(message: str) -> tuple[str, str] | None:
    """The version of the library: a line without a head up to 2.21."""
    found = _VERSION.match(message)
    return ("version", f"{found['library']} {found['value']}") if found else None


LITERALS = ("NCCL DIAG [", " in comm 0x", "RAS Diagnostics ===", "NCCL Diagnostics ===")
KIND = "nccl-diagnosis"
_LINE = re.compile(
    r"NCCL DIAG \[(OK|INFO|WARN|ERROR|FAIL)\] (.{1,1000})"
    r"|^\s{0,8}\[(OK|INFO|WARN|ERROR|FAIL)\] (.{1,1000} in comm 0x.{1,200})"
)
"""A line of a log; and one of the client of RAS, which prints none of its fronts."""
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
    check = _LINE.search(record.text)
    if check is None:
        return
    level, text = (check[1], check[2]) if check[1] else (check[3], check[4])
    single, size, comm, host = _SINGLE_RANK.search(text), _SIZE.search(text), _COMM.search(text), _HOST.search(text)
    listed = _RANKS.search(text)
    ranks = [[int(single[1])] * 2] if single else ranges_in(listed[1].replace(" ", "")) if listed else []
    differs = _DIFFER.search(text) is not None
    wrong = level not in ("OK", "INFO") or (single is not None and _OFF.search(text) is not None)
    what = "" if not wrong else "differs" if differs else "fault"
    if what or size is not None:
        yield message_event(
            KIND,
            record,
            text,
            level=level,
            what=what,
            ranks=ranks,
            size=int(size[1]) if size else None,
            comm=comm[1] if comm else None,
            node=single[2] if single else host[1] if host else None,
        )
