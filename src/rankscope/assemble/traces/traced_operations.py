"""Table of traced operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import polars as pl

from rankscope import schema
from rankscope.assemble.op_names import P2P_OPS
from rankscope.assemble.traces import device_operations
from rankscope.assemble.traces.device_operations import DeviceOperation
from rankscope.assemble.traces.span_roles import SpanRoles
from rankscope.assemble.traces.trace_groups import TraceGroups
from rankscope.assemble.traces.trace_window import TraceWindow
from rankscope.parsers.matrices import NULL, Numbers
from rankscope.parsers.torch_profiler.model import TracedCall

DTYPES = {
    "float": "Float", "double": "Double", "c10::Half": "Half", "c10::BFloat16": "BFloat16", "int": "Int",
    "long int": "Long", "short int": "Short", "unsigned char": "Byte", "signed char": "Char", "bool": "Bool",
    "c10::Float8_e4m3fn": "Float8_e4m3fn", "c10::Float8_e5m2": "Float8_e5m2",
}  # fmt: skip
"""Types by their names in operators and in groups."""


def operation_values(window: TraceWindow, groups: TraceGroups) -> tuple[pl.DataFrame, Numbers]:
    """The operations of a window in order of issue, and for each of its spans the row of its operation, or -1."""
    roles = SpanRoles(window)
    rows = device_operations.device_rows(roles) + device_operations.host_operations(roles)
    executes = np.full(len(window.start), -1, np.int64)
    if not rows:
        return _complete(pl.DataFrame(schema=_COLUMNS), window), executes
    told = _OperationValues(roles, groups)
    columns = dict(zip(_COLUMNS, map(list, zip(*map(told.values, rows), strict=True)), strict=True))
    order = _issue_order(columns)
    place = np.argsort(order)
    runs = roles.span[[run for row in rows for run in row.runs]]
    executes[runs] = np.repeat(place, [len(row.runs) for row in rows])
    return _complete(pl.DataFrame(columns, schema=_COLUMNS)[order], window), executes


def no_values(window: TraceWindow) -> tuple[pl.DataFrame, Numbers]:
    """The tables of a window with operations of several processes: without operations."""
    return schema.empty(schema.TRACED), np.full(len(window.start), -1, np.int64)


_COLUMNS: dict[str, Any] = {
    name: pl.String if schema.TRACED[name] == pl.Categorical else schema.TRACED[name]
    for name in (
        "group", "seq", "p2p_seq", "is_p2p", "library", "op", "peer", "coalesced", "state", "retired", "created_ns",
        "started_ns", "completed_ns", "duration_ns", "in_sizes", "out_sizes", "in_dtypes", "out_dtypes", "thread",
        "comms_id",
    )
}  # fmt: skip


class _OperationValues:
    """Values of the columns of an operation."""

    def __init__(self, roles: SpanRoles, groups: TraceGroups) -> None:
        self._roles, self._groups = roles, groups
        self._start = roles.window.start[roles.span].tolist()
        self._end = roles.window.end[roles.span].tolist()
        self._lane = roles.window.content.code("lane")[roles.span].tolist()
        self._code = roles.window.content.call_codes[0].tolist()
        self._arguments: dict[TracedCall, tuple[str | None, ...]] = {}

    def values(self, row: DeviceOperation) -> tuple[Any, ...]:
        """Values in the order of _COLUMNS."""
        roles = self._roles
        is_p2p, seq = row.op in P2P_OPS, device_operations.number_of(roles, row, "seq")
        group = self._group(row)
        began = min((self._start[i] for i in row.runs), default=None)
        ended = max((self._end[i] for i in row.runs), default=None)
        issued = row.issue >= 0
        lane = roles.window.content.lanes[self._lane[row.issue if issued else row.runs[0]]]
        return (
            group, seq, seq if is_p2p else None, is_p2p, row.library, row.op, _peer(row, self._groups.members(group)),
            row.coalesced, "unknown" if ended is None else "completed", None if ended is None else True,
            self._start[row.issue] if issued else None, began, ended,
            None if began is None or ended is None else ended - began, *self._said(row.call),
            str(lane.tid) if issued and lane.tid is not None else None,
            device_operations.number_of(roles, row, "comms_id"),
        )  # fmt: skip

    def _group(self, row: DeviceOperation) -> int:
        if row.group is not None:
            return self._groups.of(self._roles.window, row.group)
        return self._groups.of(self._roles.window, self._code[_telling_candidate(self._roles, row)])

    def _said(self, call: TracedCall | None) -> tuple[str | None, ...]:
        """Input and output sizes and types: equal for all calls with the same arguments."""
        assert call is not None
        if call not in self._arguments:
            dtypes = _dtypes(call)
            self._arguments[call] = _in_sizes(call), _elements(call.out_elements), dtypes, dtypes
        return self._arguments[call]


def _telling_candidate(roles: SpanRoles, row: DeviceOperation) -> int:
    """The candidate whose arguments name the group."""
    named = [i for i in (row.issue, *row.runs) if i >= 0 and roles.calls[i].group is not None]
    return named[0] if named else row.issue if row.issue >= 0 else row.runs[0]


def _peer(row: DeviceOperation, members: Sequence[int]) -> int | None:
    if row.op not in P2P_OPS or row.peer is None:
        return None
    return members[row.peer] if 0 <= row.peer < len(members) else None


def _in_sizes(call: TracedCall) -> str | None:
    """Input elements, else the shape in the annotation."""
    if call.in_elements is not None:
        return _elements(call.in_elements)
    shapes = _json(call.dims)
    return orjson.dumps(shapes[:1]).decode() if isinstance(shapes, list) and shapes and _is_shape(shapes[0]) else None


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(size, int) for size in value)


def _elements(count: int | None) -> str | None:
    return None if count is None else f"[[{count}]]"


def _dtypes(call: TracedCall) -> str | None:
    """Input and output types; a trace has one for both."""
    dtype = call.dtype
    if dtype is None:
        types = _json(call.types)
        first = types[0] if isinstance(types, list) and types and isinstance(types[0], str) else ""
        dtype = DTYPES.get(first)
    return None if not dtype else orjson.dumps([dtype]).decode()


def _json(said: str | None) -> Any:
    try:
        return None if said is None else orjson.loads(said)
    except orjson.JSONDecodeError:
        return None


def _issue_order(columns: dict[str, list[Any]]) -> Numbers:
    """Rows by time of issue on the host; operations issued before the window come first, by time of execution."""
    created = [NULL if t is None else t for t in columns["created_ns"]]
    started = [0 if t is None else t for t in columns["started_ns"]]
    return np.lexsort((np.array(started, np.int64), np.array(created, np.int64)))


def _complete(frame: pl.DataFrame, window: TraceWindow) -> pl.DataFrame:
    """The frame with the columns that are the same for all rows of a window."""
    frame = frame.with_columns(
        source=pl.lit("profiler"), file=pl.lit(window.place), attempt=pl.lit(window.source.attempt or 0),
        rank=pl.lit(window.rank), host=pl.lit(window.host or None, pl.String), op_id=pl.lit(None),
        stack_id=pl.lit(None), timeout_ms=pl.lit(None), record_id=pl.int_range(pl.len()),
    )  # fmt: skip
    return frame.select([pl.col(name).cast(kind) for name, kind in schema.TRACED.items()])
