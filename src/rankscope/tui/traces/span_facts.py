"""The known facts about the span under the cursor, for the detail pane; looked up when the cursor rests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from rankscope.tui.traces.activity import HOST_KINDS
from rankscope.tui.traces.lanes import TraceLanes
from rankscope.tui.traces.trace_board import TraceBoard
from rankscope.tui.traces.trace_paint import short_name


@dataclass(frozen=True)
class Member:
    """One rank in a matched collective."""

    rank: int
    late_ns: int
    """Delay after the first, in ns."""
    took_ns: int


@dataclass(frozen=True)
class Sight:
    """The facts about one place on the lanes."""

    rank: int
    at_ns: int
    """Time since the begin of the first window."""
    span: int | None
    name: str = ""
    category: str = ""
    start_ns: int = 0
    """Time since the begin of the first window."""
    length_ns: int = 0
    op: dict[str, Any] | None = None
    """The row of `traced` of a collective."""
    group: str = ""
    members: tuple[Member, ...] = ()
    """In the order of arrival; empty if it was not matched."""
    launch: int | None = None
    """The span on the host that started it."""
    launched_ns: int | None = None
    """Time from its launch to its begin."""
    stack: tuple[str, ...] = ()
    """The spans around it on the host, or around its launch, the innermost first."""
    step: dict[str, Any] | None = None
    """Its row of `steps`."""


def look(board: TraceBoard) -> Sight | None:
    """The facts about the place of the cursor; None if there are no lanes."""
    if not board.rows:
        return None
    lanes, span = board.lanes, board.span
    moment = board.moment
    step = _step(lanes, board.rank, moment)
    if span is None:
        return Sight(board.rank, moment - lanes.low, None, stack=_host_at(lanes, board.lane, moment), step=step)
    spans = lanes.spans
    start, end = spans.times(span)
    row = int(spans.op[span])
    op = _operation(lanes, row) if row >= 0 else None
    on_host = lanes.dataset.spans["category"][span] in ("cpu_op", "python_function", "cuda_runtime", "cuda_driver") or (
        int(spans.activity[span]) in HOST_KINDS
    )
    launch = None if on_host else launch_of(lanes, board.lane, span)
    inner = span if on_host else launch
    stack = tuple(_name(lanes, at) for at in spans.around(inner)) if inner is not None else ()
    if launch is not None:
        stack = (_name(lanes, launch), *stack)
    if inner is None:
        stack = _host_at(lanes, board.lane, _issued(lanes, op) or start)
    return Sight(
        board.rank, moment - lanes.low, span, _name(lanes, span), str(lanes.dataset.spans["category"][span]),
        start - lanes.low, end - start, op, _group(lanes, op), _members(lanes, row), launch,
        None if launch is None else start - spans.times(launch)[0], stack, step,
    )  # fmt: skip


def _operation(lanes: TraceLanes, row: int) -> dict[str, Any]:
    """A row of `traced`; if the trace tells no number, with the number in reports and for `:`."""
    op = lanes.dataset.traced.row(row, named=True)
    match = int(lanes.match_of[row])
    if op["seq"] is None and not op["is_p2p"] and match >= 0:
        op["seq"] = lanes.members(match)["seq"][0]
    return op


def _name(lanes: TraceLanes, span: int) -> str:
    return short_name(lanes.spans.name_of(span))


def _group(lanes: TraceLanes, op: dict[str, Any] | None) -> str:
    groups = lanes.dataset.group_list
    if op is None or op["group"] is None or op["group"] >= len(groups):
        return ""
    from rankscope.tui.detail.group_labels import group_label

    return group_label(groups[op["group"]])


def _issued(lanes: TraceLanes, op: dict[str, Any] | None) -> int | None:
    """The time when the host issued a collective, aligned."""
    if op is None or op["created_ns"] is None:
        return None
    return int(op["created_ns"]) + lanes.traces.offsets.get(op["file"], 0)


def _members(lanes: TraceLanes, row: int) -> tuple[Member, ...]:
    match = int(lanes.match_of[row]) if row >= 0 else -1
    if match < 0:
        return ()
    table = lanes.members(match).filter(pl.col("arrived_ns").is_not_null() & pl.col("ended_ns").is_not_null())
    rows = list(table.select("rank", "arrived_ns", "ended_ns").iter_rows())
    first = min((arrived for _, arrived, _ in rows), default=0)
    return tuple(Member(rank, arrived - first, ended - arrived) for rank, arrived, ended in rows)


def _step(lanes: TraceLanes, rank: int, moment: int) -> dict[str, Any] | None:
    inside = (pl.col("rank") == rank) & (pl.col("start_ns") <= moment) & (pl.col("end_ns") > moment)
    found = lanes.traces.steps.filter(inside)
    return found.row(0, named=True) if found.height else None


def launch_of(lanes: TraceLanes, lane: int, span: int) -> int | None:
    """The span on the host that started one on a device; None if the trace does not tell it."""
    number = lanes.dataset.spans["correlation"][span]
    if number is None:
        return None
    for track in _host_tracks(lanes, lane):
        low, high = int(lanes.spans.bounds[track]), int(lanes.spans.bounds[track + 1])
        found = (lanes.dataset.spans["correlation"].slice(low, high - low) == number).arg_true()
        if len(found):
            return low + int(found[-1])
    return None


def _host_tracks(lanes: TraceLanes, lane: int) -> list[int]:
    strands = [lanes.strands[s] for s in lanes.strands_of[lane]]
    return [track for strand in strands if strand.kind == "host" for track in strand.tracks]


def _host_at(lanes: TraceLanes, lane: int, moment: int) -> tuple[str, ...]:
    """The spans that run on the host at a moment, the innermost first, from the thread with the deepest stack."""
    active = [lanes.spans.active(track, moment) for track in _host_tracks(lanes, lane)]
    deepest = max(active, key=len, default=[])
    return tuple(_name(lanes, span) for span in deepest)
