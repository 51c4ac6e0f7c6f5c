"""Tables of traces for one attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import polars as pl

from rankscope.assemble.gathering import Gathered, GatheredJob
from rankscope.assemble.memory_table import memory_rows, with_memory
from rankscope.assemble.op_names import P2P_OPS
from rankscope.assemble.sources import SourceFile
from rankscope.features.traces.read.model import MEMORY_NUMBERS, TraceContent, TracedCall
from rankscope.features.traces.rows import device_operations, span_tables, trace_ranks
from rankscope.features.traces.rows.device_operations import DeviceOperation, TraceGroups
from rankscope.features.traces.rows.span_tables import SpanRoles
from rankscope.features.traces.rows.trace_window import TraceWindow, current_table, settle_clock_bases
from rankscope.kinds.input_kinds import DUPLICATE, LOG, TRACE
from rankscope.parsers.matrices import NULL, Numbers
from rankscope.parsers.safe_values import RANK_LIMIT
from rankscope.schema.tables import HOST, SPAN_VALUES, SPANS, TRACED, TRACES, TRACKS

Tables = dict[str, pl.DataFrame]
_OF_TRACES = (TRACED, TRACKS, SPANS, SPAN_VALUES)


@dataclass(frozen=True, kw_only=True)
class TraceWindows(Gathered):
    """The traces of a job, with settled ranks and clocks."""

    all: list[TraceWindow]
    """Those of the chosen run."""

    def add_tables(self, tables: Tables, world: int) -> tuple[Tables, int]:
        """The tables with those of traces; the number of ranks stays."""
        return {**tables, **add_trace_tables(tables, self, world)}, world


def arrange_trace(source: SourceFile) -> None:
    """Sorts the spans of a trace directly after its read, while others are still being read."""
    if isinstance(source.content, TraceContent):
        source.drawn = span_tables.arrange_spans(TraceWindow(-1, source, source.content))


def gather_traces(job: GatheredJob) -> TraceWindows | None:
    """The traces of a job with their ranks; None without one. Raises NoSuchAttemptError."""
    traces = [(place, source) for place, source in enumerate(job.sources) if source.kind == TRACE.name]
    windows = _distinct(
        [TraceWindow(at, source, source.content) for at, source in traces if isinstance(source.content, TraceContent)]
    )
    if not windows:
        return None
    dumped, (chosen, pattern, _) = job.runs, job.choice
    alone = not dumped and not any(source.kind == LOG.name and source.content is not None for source in job.sources)
    settle_clock_bases(windows)
    for window in windows:
        trace_ranks.claim_trace_rank(window, pattern)
    runs = trace_ranks.split_trace_runs(windows)
    run = trace_ranks.chosen_run(runs, dumped, chosen, asked=job.asked, alone=alone)
    for number, one in enumerate(runs):
        trace_ranks.settle_trace_ranks(one.windows)
        for window in one.windows:
            window.source.attempt = number if not dumped else chosen if number == run else None
            window.source.used = number == run and window.source.note != trace_ranks.UNTOLD
    used = [window for window in runs[run].windows if window.source.used]
    trace_ranks.settle_loops(used)
    _, unread = current_table()
    if unread is not None:
        used[0].source.note = "; ".join(filter(None, (used[0].source.note, unread)))
    return TraceWindows(all=used, world=trace_world(used), attempt=(run, trace_ranks.trace_attempts(runs)))


def _distinct(windows: Sequence[TraceWindow]) -> list[TraceWindow]:
    """The windows without copies: a trace is often beside an archive with it."""
    seen: dict[tuple[object, ...], TraceWindow] = {}
    for window in windows:
        content = window.content
        times = content.column("start_ns"), content.column("duration_ns")
        told = tuple(content.names), tuple(content.calls), content.about.rank
        same = window.pid, content.rows, *(int(column.sum()) for column in times), told
        first = seen.setdefault(same, window) if content.rows else window
        if first is not window:
            window.source.kind = DUPLICATE.name
            window.source.note = f"a copy of {first.source.shown}, which is used"
    return [window for window in windows if window.source.kind != DUPLICATE.name]


def trace_world(windows: Sequence[TraceWindow]) -> int:
    """The number of ranks: groups count more than the world's size beside them; operations name groups, too."""
    told = [1 + window.rank for window in windows]
    for call in {call for window in windows for call in window.content.calls}:
        told += [1 + max(device_operations.written_members(call), default=-1), min(call.group_size or 0, RANK_LIMIT)]
    stated = [1 + max(g.ranks) for w in windows for g in w.content.about.groups if g.ranks]
    told += stated or [w.content.about.world_size or 0 for w in windows]
    return max(told, default=0)


def add_trace_tables(tables: Tables, found: TraceWindows, world: int) -> Tables:
    """The tables that traces add or change, beside `tables` of dumps and logs."""
    groups = TraceGroups(tables["groups"], found.all, world)
    made: dict[str, list[pl.DataFrame]] = {table.name: [table.empty()] for table in _OF_TRACES}
    track = op = span = 0
    for window in found.all:
        rows, executes = operation_values(window, groups) if window.content.writers == 1 else no_values(window)
        drawn = window.source.drawn or span_tables.arrange_spans(window)
        made["traced"].append(rows)
        made["tracks"].append(span_tables.track_table(window, track))
        made["spans"].append(span_tables.span_table(window, drawn, executes, track, op))
        made["span_values"].append(span_tables.value_table(window, drawn, span))
        track, op = track + made["tracks"][-1].height, op + rows.height
        span += made["spans"][-1].height
    told = {name: pl.concat(parts) for name, parts in made.items()}
    memory = [event_rows(window) for window in found.all if window.content.memory.size and window.content.writers == 1]
    if memory:
        told["memory"] = with_memory(tables.get("memory"), memory)
    return {**told, "groups": groups.frame(), "traces": with_hosts(trace_table(found.all), tables)}


def trace_table(windows: Sequence[TraceWindow]) -> pl.DataFrame:
    """The table of traces, with the hosts in the traces themselves."""
    rows = [
        {
            "file": w.place, "rank": w.rank, "host": w.host, "start_ns": w.bounds[0], "end_ns": w.bounds[1],
            "events": w.content.events, "lost": w.content.lost, "detail": w.content.detail,
            "backend": w.content.about.backend, "resolution_ns": w.content.resolution_ns,
        }
        for w in windows
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=TRACES)


# Memory events of the allocators of a process.

_DEVICE_TYPES = {0: HOST, 1: "cuda", 6: "hip", 12: "xpu", 20: "privateuseone"}
"""Names of c10::DeviceType; torch_npu and other vendors are "privateuseone"."""


def event_rows(window: TraceWindow) -> pl.DataFrame:
    """The rows of `memory` that a window tells."""
    columns: dict[str, Any] = dict(zip(MEMORY_NUMBERS, window.content.memory, strict=True))
    types, places = columns.pop("type").tolist(), columns.pop("index").tolist()
    names = {
        key: kind
        if (kind := _DEVICE_TYPES.get(key[0], f"device{max(key[0], 0)}")) == HOST
        else f"{kind}:{max(key[1], 0)}"
        for key in set(zip(types, places, strict=True))
    }
    columns["time_ns"] = columns["time_ns"] + window.base_ns
    devices = [names[key] for key in zip(types, places, strict=True)]
    # the allocator of the host reserves nothing, and says 0
    columns["reserved"] = np.where(np.array(devices) == HOST, NULL, columns["reserved"])
    return memory_rows({**columns, "device": devices}, window.rank, window.host or None, window.place, "profiler")


# Hosts of ranks whose traces lack them, from other files of the ranks: traces name the host from 2026 on.


def with_hosts(traces: pl.DataFrame, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """`traces` with the host of each rank for which the other tables have exactly one."""
    told = [
        tables[name].select("rank", "host").unique().cast({"host": pl.String}) for name in ("ops", "comms", "threads")
        if name in tables and "host" in tables[name].columns
    ]  # fmt: skip
    if not told:
        return traces
    known = pl.concat(told).drop_nulls().filter(pl.col("host") != "").unique()
    sole = known.filter(pl.len().over("rank") == 1).rename({"host": "told"})
    joined = traces.join(sole, on="rank", how="left", maintain_order="left")
    return joined.with_columns(
        host=pl.when(pl.col("host") == "").then(pl.col("told").fill_null("")).otherwise("host")
    ).drop("told")


# Table of traced operations.

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
    return TRACED.empty(), np.full(len(window.start), -1, np.int64)


_COLUMNS: dict[str, Any] = {
    name: pl.String if TRACED[name] == pl.Categorical else TRACED[name]
    for name in (
        "group", "seq", "p2p_seq", "is_p2p", "library", "op", "peer", "coalesced", "state", "retired", "created_ns",
        "started_ns", "completed_ns", "duration_ns", "in_sizes", "out_sizes", "in_dtypes", "out_dtypes",
        "in_splits", "out_splits", "thread", "comms_id",
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
        if row.group is not None:
            group = self._groups.of(self._roles.window, row.group)
        else:
            group = self._groups.of(self._roles.window, self._code[_telling_candidate(self._roles, row)])
        began = min((self._start[i] for i in row.runs), default=None)
        ended = max((self._end[i] for i in row.runs), default=None)
        issued = row.issue >= 0
        lane = roles.window.content.lanes[self._lane[row.issue if issued else row.runs[0]]]
        members = self._groups.members(group)
        if row.op not in P2P_OPS or row.peer is None:
            peer: int | None = None
        else:
            peer = members[row.peer] if 0 <= row.peer < len(members) else None
        return (
            group, seq, seq if is_p2p else None, is_p2p, row.library, row.op, peer,
            row.coalesced, "unknown" if ended is None else "completed", None if ended is None else True,
            self._start[row.issue] if issued else None, began, ended,
            None if began is None or ended is None else ended - began, *self._said(row.call),
            str(lane.tid) if issued and lane.tid is not None else None,
            device_operations.number_of(roles, row, "comms_id"),
        )  # fmt: skip

    def _said(self, call: TracedCall | None) -> tuple[str | None, ...]:
        """Input and output sizes, types and splits: equal for all calls with the same arguments."""
        assert call is not None
        if call not in self._arguments:
            dtypes = _dtypes(call)
            splits = _splits(call.in_splits), _splits(call.out_splits)
            self._arguments[call] = _in_sizes(call), _elements(call.out_elements), dtypes, dtypes, *splits
        return self._arguments[call]


def _telling_candidate(roles: SpanRoles, row: DeviceOperation) -> int:
    """The candidate whose arguments name the group."""
    named = [i for i in (row.issue, *row.runs) if i >= 0 and roles.calls[i].group is not None]
    return named[0] if named else row.issue if row.issue >= 0 else row.runs[0]


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


def _splits(said: str | None) -> str | None:
    """The parts of an all_to_all as a JSON list of numbers; None if it does not list them all."""
    parts = _json(said)
    if not isinstance(parts, list) or not parts:
        return None
    whole = all(type(part) is int and 0 <= part < _MOST_ELEMENTS for part in parts)
    return orjson.dumps(parts).decode() if whole else None


_MOST_ELEMENTS = 1 << 53


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
    return frame.select([pl.col(name).cast(kind) for name, kind in TRACED.items()])
