"""Log processes of one attempt, the lives of their communicators over all files, and checked values of lines: numbers,
times, and operations and types in the words of the flight recorder.
"""

from __future__ import annotations

import calendar
import time
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from rankscope.analysis.signatures import element_count
from rankscope.assemble.sources import SourceFile
from rankscope.features.logs.read.model import Comm, LogContent
from rankscope.parsers.line_prefixes import Stamp
from rankscope.parsers.safe_values import RANK_LIMIT


class LogFile(NamedTuple):
    """One log file."""

    place: int
    """Row of `files`."""
    source: SourceFile
    content: LogContent
    speakers: list[int]
    """For each process of the file, the index of its log process."""

    @property
    def own(self) -> bool:
        """Whether NCCL wrote it for one process alone (NCCL_DEBUG_FILE), line by line: no line is lost at the end."""
        only_nccl = all(event.kind == "known-error" for event in self.content.events)
        return len(self.content.processes) == 1 and not self.content.processes[0].label and only_nccl


@dataclass
class LogProcess:
    """A process that wrote lines, over all files."""

    host: str
    pid: int
    told: set[int] = field(default_factory=set)
    """Global ranks in prefixes of its lines."""
    labels: set[str] = field(default_factory=set)
    """Launchers' prefixes."""
    device: int | None = None
    """The device of threads that issue operations."""
    rank: int | None = None
    """Global rank; None if it is not certain."""
    old: bool = False
    """It belongs to an earlier run of the job in the same log."""
    how: str = ""
    """Source of the rank: "prefix", "name", "communicator", "launcher", "device"; "" without one."""


@dataclass(eq=False)
class CommLife:
    """One life of a communicator in one process, or one file's piece of a life over several files."""

    speaker: int
    log: int
    at: int
    """Its index into the log's communicators."""
    comm: Comm
    index: int = 0
    """Its index among all lives."""
    parent: CommLife | None = None
    identity: str = ""
    """A text that is equal for all members; "" if the communicator is not identified."""
    recalled: str = ""
    """Its identity before the identifying lines were lost."""
    rank: int | None = None
    """Global rank."""
    group: int | None = None
    """Row of `groups`."""
    twin: bool = False
    """Another row has more of the same life."""
    rest: list[CommLife] = field(default_factory=list)
    """Its further pieces, in the order of printing."""
    goes_on: bool = False
    """It is a further piece: the first one represents the life."""
    before: tuple[int, int] = (0, 0)
    """For a further piece: collectives, and sends and receives, in the pieces before it."""
    adrift: bool = False
    """Lines between this piece and those before it are missing: its operations cannot be counted."""

    @property
    def pieces(self) -> tuple[CommLife, ...]:
        """All pieces of the life."""
        return (self, *self.rest)

    @property
    def stands(self) -> bool:
        """Whether it represents its life."""
        return not (self.twin or self.goes_on)

    @property
    def operation_count(self) -> int:
        """The number of printed operations."""
        return sum(piece.comm.collectives + piece.comm.p2p for piece in self.pieces)

    def set_group(self, group: int | None) -> None:
        """Sets the group of all pieces of the life."""
        for piece in self.pieces:
            piece.group = group


@dataclass
class LogScene:
    """All log files, log processes and communicator lives of one attempt."""

    logs: list[LogFile]
    speakers: list[LogProcess]
    lives: list[CommLife]
    by_place: dict[tuple[int, int], CommLife]
    """Lives by log and index in it."""
    since: dict[int, int] = field(default_factory=dict)
    """By log, the offset of the last run of the job, if there are several."""
    lines_before: dict[int, int] = field(default_factory=dict)
    """By row of `files`, the number of earlier lines of its process in other files, if any."""
    mixed_prints: dict[int, int] = field(default_factory=dict)
    """By log, the number of fingerprints without a known group."""
    told_groups: dict[tuple[int, int], int] = field(default_factory=dict)
    """Rows of `groups` for lines without a group name, by log and offset."""
    world: int = 0
    """Ranks of the job, if logs have them; else 0."""
    sized: bool = True
    """Whether a line has that number; else it is only the highest rank in a line."""
    is_covered: bool = False
    """Whether every rank up to the highest one has a line, and there are several."""

    _ranked: dict[int, bool] = field(default_factory=dict)

    def ranked(self, number: int) -> bool:
        """Whether prefixes of lines of that log, in the chosen run, hold ranks."""
        if number not in self._ranked:
            since, events = self.since.get(number, 0), self.logs[number].content.events
            self._ranked[number] = any(event.rank is not None for event in events if event.offset >= since)
        return self._ranked[number]

    def identities(self) -> dict[str, list[CommLife]]:
        """The identified communicators, with their lives."""
        found: dict[str, list[CommLife]] = defaultdict(list)
        for life in self.lives:
            if life.identity and life.stands:
                found[life.identity].append(life)
        return dict(found)


_LONG = 1 << 62
_INT = 1 << 31


def int64_or_none(value: Any) -> int | None:
    """An integer for a column of 64 bits; else None."""
    fits = isinstance(value, int) and not isinstance(value, bool) and -_LONG < value < _LONG
    return value if fits else None


def int32_or_none(value: Any) -> int | None:
    """An integer for a column of 32 bits; else None."""
    found = int64_or_none(value)
    return found if found is not None and -_INT < found < _INT else None


def valid_rank(value: Any) -> int | None:
    """A rank, or a place in a group; else None."""
    found = int64_or_none(value)
    return found if found is not None and 0 <= found < RANK_LIMIT else None


def valid_size(value: Any) -> int | None:
    """A number of ranks; else None."""
    found = int64_or_none(value)
    return found if found is not None and 0 < found <= RANK_LIMIT else None


_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND


def print_time(stamp: Stamp | None, written_ns: int | None) -> int | None:
    """The time of a line; a missing year is the last one in which that day was before the file was written."""
    if stamp is None or not stamp.has_date:
        return None
    if stamp.has_year:
        return stamp.ns
    if written_ns is None:
        return None
    for midnight_ns in _midnights(stamp.ns // _DAY, written_ns // _DAY):
        there = midnight_ns + stamp.ns % _DAY
        if there <= written_ns + _DAY:
            return there
    return None


@lru_cache(maxsize=1024)
def _midnights(day: int, written: int) -> tuple[int, ...]:
    """The starts of a day of any year, in the year of another day and in the year before."""
    parts = time.gmtime(day * _DAY // _SECOND)
    year = time.gmtime(written * _DAY // _SECOND).tm_year
    dates = [(candidate, parts.tm_mon, parts.tm_mday, 0, 0, 0) for candidate in (year, year - 1)]
    return tuple(calendar.timegm(date) * _SECOND for date in dates)


NCCL_OPS = {
    "AllReduce": "all_reduce", "AllGather": "_all_gather_base", "ReduceScatter": "_reduce_scatter_base",
    "Broadcast": "broadcast", "Reduce": "reduce", "Send": "send", "Recv": "recv", "AlltoAll": "all_to_all",
    "AllToAll": "all_to_all", "AlltoAllv": "all_to_all", "AllToAllv": "all_to_all", "Gather": "gather",
    "Scatter": "scatter", "AllReduceWithBias": "all_reduce", "mscclpp_ncclAllReduce": "all_reduce",
    "mscclpp_ncclAllGather": "_all_gather_base", "PutSignal": "put_signal", "Signal": "signal",
    "WaitSignal": "wait_signal",
}  # fmt: skip
"""Operations by their name in a COLL or CALL line; other names stay."""
C10D_OPS = {
    "ALLREDUCE": "all_reduce", "ALLREDUCE_COALESCED": "allreduce_coalesced", "REDUCE": "reduce",
    "BROADCAST": "broadcast", "ALLGATHER": "all_gather", "_ALLGATHER_BASE": "_all_gather_base",
    "ALLGATHER_BASE": "_all_gather_base", "ALLGATHER_COALESCED": "all_gather_into_tensor_coalesced",
    "GATHER": "gather", "SCATTER": "scatter", "REDUCE_SCATTER": "reduce_scatter",
    "_REDUCE_SCATTER_BASE": "_reduce_scatter_base", "ALLTOALL_BASE": "all_to_all", "ALLTOALL": "all_to_all",
    "SEND": "send", "RECV": "recv", "RECVANYSOURCE": "recv", "BARRIER": "barrier", "COALESCED": "coalesced",
}  # fmt: skip
"""Operations by c10d's OpType."""
WIRE_OPS = {
    "_all_gather_base": "all_gather", "_allgather_base": "all_gather", "allgather": "all_gather",
    "all_gather_into_tensor": "all_gather", "_reduce_scatter_base": "reduce_scatter", "allreduce": "all_reduce",
    "reduce_scatter_tensor": "reduce_scatter", "_broadcast_oop": "broadcast", "_reduce_oop": "reduce",
    "alltoall": "all_to_all", "alltoall_base": "all_to_all", "all_to_all_single": "all_to_all",
    "barrier": "all_reduce", "all_reduce_barrier": "all_reduce",
}  # fmt: skip
"""Launched operations of NCCL, by the recorder's operation: a barrier is an all_reduce of one element."""
DTYPES = (
    "Char", "Byte", "Int", "UInt32", "Long", "UInt64", "Half", "Float", "Double", "BFloat16", "Float8_e4m3fn",
    "Float8_e5m2",
)  # fmt: skip
"""Types by NCCL's number."""
WIRE_DTYPES = {"Bool": "Byte", "Float8_e4m3fnuz": "Byte", "Float8_e5m2fnuz": "Byte"}
"""Types that NCCL transfers as another type."""


class ShapeTexts(NamedTuple):
    """JSON texts of shapes; None if unknown."""

    sent: str | None
    received: str | None


def nccl_op(name: str) -> str:
    """The recorder's name of a COLL line's operation."""
    return NCCL_OPS.get(name, name)


def c10d_op(name: str | None) -> str | None:
    """The operation of an OpType; None without one, and for UNKNOWN."""
    return None if name in (None, "", "UNKNOWN") else C10D_OPS.get(name, name.lower())


def coalesced_op(op: str | None, sent: int | None, received: int | None) -> str | None:
    """The operation of which a coalesced work has several, by the elements of its first one; any other as it is."""
    if op != "coalesced" or not sent or not received:
        return op
    if sent == received:
        return "allreduce_coalesced"
    return "all_gather_into_tensor_coalesced" if received > sent else "reduce_scatter_tensor_coalesced"


def wire_op(op: str) -> str:
    """The operation that NCCL launches for a recorder's one."""
    return WIRE_OPS.get(op, op)


def dtype_text(number: int) -> str | None:
    """JSON text of the type with NCCL's number; None for an unknown one."""
    return f'["{DTYPES[number]}"]' if 0 <= number < len(DTYPES) else None


def shape_texts(op: str, count: int | None, members: int | None) -> ShapeTexts:
    """Shapes of a COLL line: its count is the elements that a rank sends in a gather, or receives in a scatter."""
    if count is None:
        return ShapeTexts(None, None)
    one, all_ = f"[[{count}]]", None if members is None else f"[[{count * members}]]"
    gathers, scatters = op in ("AllGather", "Gather"), op in ("ReduceScatter", "Scatter")
    return ShapeTexts(all_ if scatters else one, all_ if gathers else one)


def wire_key(op: str | None, in_sizes: str | None, in_dtypes: str | None) -> str:
    """Operation, elements and type as NCCL gets them: equal for a line of a log and an entry of a recorder."""
    name = wire_op(op or "")
    if op is not None and op.endswith("barrier"):
        return f"{name} 1 Float"
    counted = name in ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter")
    count = element_count(in_sizes) if counted else None
    kind = (in_dtypes or "").strip('[]"')
    return f"{name} {'?' if count is None else count} {WIRE_DTYPES.get(kind, kind)}"
