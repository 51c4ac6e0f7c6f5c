"""The content of one trace, as arrays and small tables, and its form between processes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankscope.features.traces.read.recognition import TraceOrigin
from rankscope.parsers.matrices import Codes, ColumnMatrix, Numbers
from rankscope.parsers.members import GroupConfig, config_from
from rankscope.parsers.safe_values import rank_list, safe_integer, safe_text

# The header of a trace: keys before its events and behind them.

KEYS = ("distributedInfo", "baseTimeNanoseconds", "host_name")
LATEST_NS = 4 * 10**18
_VERSION = re.compile(r"\d+(?:\.\d+){1,3}")
_LONGEST = 4 << 20
"""Bytes that are searched on either side of the events."""


class TraceHeader(NamedTuple):
    """Facts on the process and the job; None or empty where the trace lacks them."""

    rank: int | None = None
    world_size: int | None = None
    backend: str = ""
    host: str = ""
    base_ns: int | None = None
    library_version: str = ""
    groups: list[GroupConfig] = []


def trace_header(before: bytes, after: bytes) -> TraceHeader:
    """The header in the bytes around the events, key by key: the rest of them may be no JSON."""
    found: dict[str, Any] = {}
    for part in (before[:_LONGEST], after[-_LONGEST:]):
        said = part.decode("utf-8", "replace")
        for key in KEYS:
            value = _value(said, key)
            if value is not None:
                found[key] = value
    return _about_job(found)


def _value(said: str, key: str) -> Any:
    match = re.search(rf'"{key}"\s*:\s*', said)
    if match is None:
        return None
    try:
        return json.JSONDecoder(strict=False).raw_decode(said, match.end())[0]
    except (ValueError, RecursionError):
        return None


def _about_job(found: Mapping[str, Any]) -> TraceHeader:
    info = found.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    version = safe_text(info.get("nccl_version")) or ""
    rows = info.get("pg_config")
    return TraceHeader(
        rank=_natural(info.get("rank")),
        world_size=_natural(info.get("world_size")),
        backend=safe_text(info.get("backend")) or "",
        host=safe_text(found.get("host_name")) or "",
        base_ns=_base(found.get("baseTimeNanoseconds")),
        library_version=version if _VERSION.fullmatch(version) else "",
        groups=[_group(row) for row in rows if isinstance(row, dict)] if isinstance(rows, list) else [],
    )


def _base(value: Any) -> int | None:
    number = safe_integer(value)
    return number if number is not None and 0 <= number < LATEST_NS else None


def _natural(value: Any) -> int | None:
    number = safe_integer(value)
    return number if number is not None and 0 <= number < 1 << 18 else None


def _group(row: Mapping[str, Any]) -> GroupConfig:
    name = row.get("pg_name", row.get("uid", ""))
    ranks = row.get("ranks")
    return GroupConfig(safe_text(str(name)) or "", safe_text(row.get("pg_desc")) or "", rank_list(ranks))


NUMBERS = ("start_ns", "duration_ns", "correlation")
"""Columns with a separate number for each span. `start_ns` counts from the base of the file's clock."""
CODES = ("name", "lane")
"""Columns of indices into a table of repeated values."""
CALL_NUMBERS = ("span", "external", "seq", "correlation", "comms_id")
CALL_CODES = ("call",)
VALUE_NUMBERS = ("span", "name")
MEMORY_NUMBERS = ("time_ns", "type", "index", "allocated", "reserved", "samples")
"""Columns of memory events: c10::DeviceType, number of the device, bytes, NULL where one is unknown, and the number of
events that it stands for.
"""


class EventLane(NamedTuple):
    """One category of events of a thread or stream."""

    category: str
    """The category as in the file."""
    pid: int | None
    """None where the file has a text."""
    tid: int | None


class TracedCall(NamedTuple):
    """Repeated arguments of operations; None where the version of the format lacks them."""

    collective: str | None
    dtype: str | None
    in_elements: int | None
    out_elements: int | None
    group_size: int | None
    group: str | None
    description: str | None
    members: str | None
    """Text of a list, with `...` in the middle of a long one."""
    rank: int | None
    """Rank in the group; for a send or receive, the peer's."""
    start: int | None
    stride: int | None
    source: int | None
    target: int | None
    dims: str | None
    """JSON text of the shapes of all arguments."""
    types: str | None
    in_splits: str | None
    """JSON text of the parts of an all_to_all for each member, with `...` in the middle of a long one; "[]": equal."""
    out_splits: str | None


class Label(NamedTuple):
    """The name of a process or thread, from a metadata event."""

    kind: str
    """process_name, process_labels, thread_name, thread_sort_index, ..."""
    pid: int | None
    tid: int | None
    text: str
    number: int | None


_TABLES: dict[str, type[Any]] = {"lanes": EventLane, "calls": TracedCall, "labels": Label}


@dataclass
class TraceContent(ColumnMatrix):
    """One trace, or a range of one."""

    number_names = NUMBERS
    code_names = CODES

    about: TraceHeader = field(default_factory=TraceHeader)
    names: list[str] = field(default_factory=list)
    lanes: list[EventLane] = field(default_factory=list)
    calls: list[TracedCall] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    detail: str = "all"
    resolution_ns: int = 1000
    events: int = 0
    lost: int = 0
    ended: bool = False
    """The read reached the end of the file; `whole` says whether the file closes everything that it opens."""
    whole: bool = False
    writers: int = 1
    problem: str | None = None
    origin: TraceOrigin = field(default_factory=TraceOrigin)
    ranged: bool = False
    """The content is a range of a file, and is joined with the other ranges."""
    numbers: Numbers = field(default_factory=lambda: np.empty((len(NUMBERS), 0), np.int64))
    """Shape (len(NUMBERS), spans), in the order of the file."""
    codes: Codes = field(default_factory=lambda: np.empty((len(CODES), 0), np.int32))
    call_numbers: Numbers = field(default_factory=lambda: np.empty((len(CALL_NUMBERS), 0), np.int64))
    """Shape (len(CALL_NUMBERS), operations and events around them); `span` is the row in the arrays above."""
    call_codes: Codes = field(default_factory=lambda: np.empty((len(CALL_CODES), 0), np.int32))
    value_names: list[str] = field(default_factory=list)
    value_numbers: Numbers = field(default_factory=lambda: np.empty((len(VALUE_NUMBERS), 0), np.int64))
    """Shape (len(VALUE_NUMBERS), numbers that spans hold): row in the arrays above, and of `value_names`."""
    values: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty((1, 0), np.float64))
    """Shape (1, numbers): the numbers themselves."""
    memory: Numbers = field(default_factory=lambda: np.empty((len(MEMORY_NUMBERS), 0), np.int64))
    """Shape (len(MEMORY_NUMBERS), memory events); of many only those with the most memory and the last."""

    @property
    def rows(self) -> int:
        """Number of spans."""
        return int(self.numbers.shape[1])

    def header(self) -> dict[str, Any]:
        """All but the arrays, as JSON values."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        tables = {name: list(map(tuple, getattr(self, name))) for name in _TABLES}
        calls = int(self.call_numbers.shape[1])
        return {**plain, **tables, "about": _plain_header(self.about), "spans": self.rows, "called": calls,
                "measured": int(self.values.shape[1]), "sampled": int(self.memory.shape[1]),
                "origin": astuple(self.origin)}  # fmt: skip

    def body(self) -> list[memoryview]:
        """The arrays as bytes."""
        arrays: tuple[npt.NDArray[Any], ...] = (
            self.numbers, self.codes, self.call_numbers, self.call_codes, self.value_numbers, self.values,
            self.memory,
        )  # fmt: skip
        return [np.ascontiguousarray(a).data.cast("B") for a in arrays if a.size]


_PLAIN = (
    "names", "value_names", "detail", "resolution_ns", "events", "lost", "ended", "whole", "writers", "problem",
    "ranged",
)  # fmt: skip


def trace_from(header: dict[str, Any], body: memoryview, *_: object) -> TraceContent:
    """The trace whose `header()` and `body()` these are; the arrays are views of `body`."""
    tables: dict[str, Any] = {name: list(map(kind._make, header[name])) for name, kind in _TABLES.items()}
    content = TraceContent(**{name: header[name] for name in _PLAIN}, **tables, about=_about(header["about"]),
                           origin=TraceOrigin(*header["origin"]))  # fmt: skip
    place = 0
    for name, count, kind in (
        ("numbers", header["spans"], np.int64), ("codes", header["spans"], np.int32),
        ("call_numbers", header["called"], np.int64), ("call_codes", header["called"], np.int32),
        ("value_numbers", header["measured"], np.int64), ("values", header["measured"], np.float64),
        ("memory", header["sampled"], np.int64),
    ):  # fmt: skip
        rows = len(getattr(content, name))
        size = rows * count * np.dtype(kind).itemsize
        setattr(content, name, np.frombuffer(body[place : place + size], kind).reshape(rows, count))
        place += size
    return content


def _plain_header(about: TraceHeader) -> tuple[Any, ...]:
    return tuple(about._replace(groups=[group.row() for group in about.groups]))  # type: ignore[misc]


def _about(values: list[Any]) -> TraceHeader:
    about = TraceHeader(*values)
    return about._replace(groups=list(map(config_from, about.groups)))


def origin_of(trace: TraceContent) -> tuple[str | None, str | None]:
    """Host and version of the library that a trace names, each None if it names none."""
    return trace.about.host or None, trace.about.library_version or None
