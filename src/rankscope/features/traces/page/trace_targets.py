"""Places of operations of the sequence on the lanes of traces."""

from __future__ import annotations

import re

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.model import Finding
from rankscope.features.traces.page.activity import NOTHING
from rankscope.features.traces.page.lanes import TraceLanes
from rankscope.features.traces.page.lineup import traced_of_item
from rankscope.features.traces.page.trace_board import TraceBoard
from rankscope.features.traces.page.trace_selection import kind_of
from rankscope.features.traces.rules.lateness import is_short
from rankscope.tui.model import Model
from rankscope.tui.search import Hits, Target


def go_item(board: TraceBoard, model: Model, item: int) -> bool:
    """Moves to the operation of an item of the lanes of operations; False if its window has none of it."""
    row = traced_of_item(board.lanes, model, item)
    if row is None or row not in board.lanes.span_of_row:
        return False
    board.go_span(board.lanes.span_of_row[row], "communication")
    return True


def go_finding(board: TraceBoard, finding: Finding) -> bool:
    """Moves to the cause of a late rank, else to the collective that it held up longest; False if neither is known."""
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
    """In a window too short for a verdict, moves to the rank that came last by the most; False elsewhere."""
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
    """Moves to the typed place; ValueError says why it cannot."""
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


# Finds spans by text: name, operation, group, number, rank.

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
_RANK = re.compile(r"rank\s*(\d+)", re.IGNORECASE | re.ASCII)
_SEQ = re.compile(r"#\s*(\d{1,18})", re.ASCII)


def search_spans(lanes: TraceLanes, text: str) -> Hits:
    """Spans with every word of `text` in their name, operation or group, letters of either case alike.

    "rank 3" keeps to one rank, "#12" to collectives of that number.
    """
    ranks = {int(number) for number in _RANK.findall(text)}
    numbers = [int(number) for number in _SEQ.findall(text)]
    words = _SEQ.sub(" ", _RANK.sub(" ", text)).lower().split()
    masks = [_numbered(lanes, number) for number in numbers] + [_worded(lanes, word) for word in words]
    if not masks and not ranks:
        return Hits(np.empty(0, np.int64), 0)
    # a search does not find hidden spans
    shown = (lanes.spans.op < 0) | (lanes.spans.activity != NOTHING)
    found: Ints = np.flatnonzero(np.logical_and.reduce([shown, *masks])).astype(np.int64)
    if ranks:
        of_track = np.full(len(lanes.spans.numbers), -1, np.int64)
        for strand in lanes.strands:
            of_track[list(strand.tracks)] = lanes.ranks[strand.lane]
        found = found[np.isin(of_track[_tracks(lanes, found)], list(ranks))]
    starts = lanes.spans.start[found] + lanes.spans.shift[_tracks(lanes, found)]
    return Hits(found[np.argsort(starts, kind="stable")], 0)


def _worded(lanes: TraceLanes, word: str) -> Mask:
    names = lanes.dataset.spans["name"]
    table = pl.DataFrame({"code": names.to_physical(), "name": names}).unique("code")
    lowered = pl.col("name").cast(pl.String).str.to_lowercase()
    codes = table.filter(lowered.str.contains(word, literal=True))["code"]
    named: Mask = names.to_physical().is_in(codes.implode()).fill_null(False).to_numpy()
    # rows of `traced` with the word in their operation, or in the name or description of their group
    described = pl.col("description").str.to_lowercase().str.contains(word, literal=True)
    groups = lanes.dataset.groups.filter(described | (pl.col("name") == word))["group"]
    ops = lanes.dataset.traced.select("op").unique().drop_nulls()["op"].cast(pl.String)
    fitting = ops.filter(ops.str.to_lowercase().str.contains(word, literal=True)).to_list()
    fits = pl.col("op").cast(pl.String).is_in(fitting) | pl.col("group").is_in(groups.implode())
    return named | _of_rows(lanes, lanes.dataset.traced.select(fits.fill_null(False).alias("fits"))["fits"].to_numpy())


def _numbered(lanes: TraceLanes, number: int) -> Mask:
    """Spans of matched collectives of that number; the trace gives the number of unmatched ones."""
    fits = (lanes.dataset.traced["seq"] == number).fill_null(False).to_numpy().copy()
    matched = lanes.traces.matched.select(pl.col("row").cast(pl.Int64), "seq")
    fits[matched["row"].to_numpy()] = (matched["seq"] == number).fill_null(False).to_numpy()
    return _of_rows(lanes, fits)


def _of_rows(lanes: TraceLanes, fits: Mask) -> Mask:
    """The spans that execute these rows of `traced`."""
    op = lanes.spans.op
    found: Mask = (op >= 0) & np.append(fits, False)[op]
    return found


def _tracks(lanes: TraceLanes, spans: Ints) -> Ints:
    return np.searchsorted(lanes.spans.bounds, spans, side="right").astype(np.int64) - 1


def first_after(lanes: TraceLanes, hits: Ints, moment: int) -> int:
    """The index of the first hit that starts at or after an aligned time; 0 if none does."""
    starts = lanes.spans.start[hits] + lanes.spans.shift[_tracks(lanes, hits)]
    later = np.flatnonzero(starts >= moment)
    return int(later[0]) if len(later) else 0
