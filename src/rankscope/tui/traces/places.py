"""Where operations of the sequence lie on the lanes of traces."""

from __future__ import annotations

import polars as pl

from rankscope.analysis.model import Finding
from rankscope.analysis.traces.lateness import is_short
from rankscope.tui.goto import Target
from rankscope.tui.model import Model
from rankscope.tui.traces.board import TraceBoard
from rankscope.tui.traces.lanes import TraceLanes
from rankscope.tui.traces.lineup import traced_of_item
from rankscope.tui.traces.pick import kind_of


def go_item(board: TraceBoard, model: Model, item: int) -> bool:
    """Moves to the operation that is an item of the lanes of operations; False where its window has none of it."""
    row = traced_of_item(board.lanes, model, item)
    if row is None or row not in board.lanes.span_of_row:
        return False
    board.go_span(board.lanes.span_of_row[row], "communication")
    return True


def go_finding(board: TraceBoard, finding: Finding) -> bool:
    """Moves to what made a rank late, else to the collective that it held up longest; False where neither is known."""
    ranks = [rank for rank in finding.culprit_ranks if rank in board.lanes.lane_of]
    for rank in ranks:
        cause = board.lanes.traces.causes.get(rank)
        if cause is not None and cause.row is not None and cause.row < len(board.lanes.spans.start):
            board.go_span(cause.row, kind_of(board.lanes, cause.row))
            return True
    for rank in ranks:
        worst = board.lanes.traces.last.filter(last=rank).sort("margin_ns", descending=True)["match"]
        members = board.lanes.members(int(worst[0])).filter(rank=rank)["row"] if len(worst) else worst
        span = board.lanes.span_of_row.get(int(members[0])) if len(members) else None
        if span is not None:
            board.go_span(span, "communication")
            return True
    return False


def go_last(board: TraceBoard) -> bool:
    """In a window that is too short for a verdict moves to whoever came last by most; False elsewhere."""
    last = board.lanes.traces.last
    if not is_short(last):
        return False
    worst = last.sort("margin_ns", "match", descending=[True, False]).row(0, named=True)
    members = board.lanes.members(worst["match"]).filter(rank=worst["last"])["row"]
    span = board.lanes.span_of_row.get(int(members[0])) if len(members) else None
    if span is None or worst["last"] not in board.lanes.lane_of:
        return False
    board.go_span(span, "communication")
    return True


def traced_row(lanes: TraceLanes, rank: int, group: int, seq: int, *, p2p: bool = False) -> int | None:
    """The row of `traced` of a rank for an operation; None if it was not matched."""
    same = (pl.col("group") == group) & (pl.col("seq") == seq) & (pl.col("is_p2p") == p2p) & (pl.col("rank") == rank)
    found = lanes.traces.matched.filter(same)["row"]
    return int(found[0]) if len(found) else None


def goto_on_traces(board: TraceBoard, target: Target) -> None:
    """Moves to what was typed; ValueError says why it cannot."""
    if target.rank is not None:
        if not board.go_rank(target.rank):
            raise ValueError(f"no rank {target.rank} here")
    elif target.step is not None:
        times, numbers = board.lanes.steps_of[board.lane]
        starts = dict(zip(numbers, times.tolist(), strict=True))
        if target.step not in starts:
            raise ValueError(f"rank {board.rank} has no step {target.step} in its trace")
        board.go_unit(starts[target.step])
    elif target.seq is not None:
        selection = board.selection
        group = 0 if selection is None or selection.group is None else selection.group
        row = traced_row(board.lanes, board.rank, group, target.seq)
        if row is None or row not in board.lanes.span_of_row:
            raise ValueError(f"no matched collective #{target.seq} in the group under the cursor")
        board.go_span(board.lanes.span_of_row[row], "communication")
    else:
        board.go_unit(target.time_ns if target.time_ns is not None else board.unit + (target.span_ns or 0))
