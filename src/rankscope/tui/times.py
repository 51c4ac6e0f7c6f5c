"""The lanes on the axis of wall clock time: starts and ends of all items, with aligned clocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.tui.clocks import align_clocks
from rankscope.tui.letters import PENDING, SHIFT, Codes, Mark, find
from rankscope.tui.model import Model

Ints = NDArray[np.int64]
FOREVER = 2**62
LATEST = 2**61
"""Later times are replaced by this one: sums with it must not overflow. It is in the year 2043."""
TAIL = 16
"""The run shows this share of itself after its last event: there only operations without end go on."""


@dataclass(frozen=True)
class Times:
    """Items of a model that have a time, sorted by lane, then by start."""

    item: Ints
    """The index of each item in the model."""
    bounds: Ints
    """Lane i holds positions `bounds[i]:bounds[i+1]`."""
    start: Ints
    end: Ints
    """FOREVER for an item that never completed."""
    code: Codes
    longest: Ints
    """For each position, the position up to it in its lane with the latest end."""
    low: int
    high: int
    """The first start of all lanes, and a little after their last event."""
    note: str
    """A text about how reliable the clocks are."""

    def running(self, lanes: Ints, edges: Ints) -> tuple[Codes, Ints]:
        """The items that run across the left edge of each cell: codes (0 for none) and positions, as lanes x cells."""
        shape = (len(lanes), len(edges) - 1)
        low = np.broadcast_to(self.bounds[lanes][:, None], shape)
        high = np.broadcast_to(self.bounds[lanes + 1][:, None], shape)
        left = np.broadcast_to(edges[None, :-1], shape)
        before = find(self.start, low, high, left) - 1
        if not len(self.start):
            return np.zeros(shape, np.uint8), np.full(shape, -1, np.int64)
        position = self.longest[np.maximum(before, 0)]
        runs = (before >= low) & (self.end[position] > left)
        return np.where(runs, self.code[position], 0).astype(np.uint8), np.where(runs, position, -1)


def build_times(model: Model) -> Times:
    """Starts and ends of all items; an incomplete item ends with the next of its lane, or never if pending."""
    clocks = align_clocks(model.dataset)
    shift = np.array([clocks.offsets.get(rank, 0) for rank in model.ranks.tolist()], np.int64)
    items = model.items
    known = np.flatnonzero(items.created >= 0)
    moved = np.where(items.row[known] >= 0, shift[items.lane[known]], 0)
    start = np.clip(np.minimum(items.created[known], LATEST) - moved, 0, LATEST)
    order = np.lexsort((start, items.lane[known]))
    known, start = known[order], start[order]
    lane, code = items.lane[known], items.code[known]
    end = _ends(model, known, start, lane, shift)
    finite = end[end < FOREVER]
    bounds = np.searchsorted(lane, np.arange(len(model.ranks) + 1)).astype(np.int64)
    low = int(start.min()) if len(start) else 0
    last = max(int(start.max(initial=0)), int(finite.max(initial=0))) + 1
    high = last + (last - low) // TAIL
    return Times(known, bounds, start, end, code, _longest(end, lane), low, high, clocks.note)


def _ends(model: Model, known: Ints, start: Ints, lane: NDArray[np.int32], shift: Ints) -> Ints:
    """The end of each item."""
    rows = model.items.row[known]
    written = _written_ends(model)[np.maximum(rows, 0)] if model.dataset.ops.height else np.full(len(rows), -1)
    following = np.append(start[1:], FOREVER) if len(start) else start
    same = np.append(lane[1:] == lane[:-1], False) if len(lane) else np.zeros(0, np.bool_)
    mark = model.items.code[known] >> SHIFT
    pending = np.isin(mark, (*PENDING, Mark.MISMATCH_PENDING))
    end = np.where(same, following, start + 1)
    end = np.where((rows >= 0) & (written >= 0), np.clip(written - shift[lane], 0, LATEST), end)
    end = np.where(pending, FOREVER, np.maximum(end, start + 1))
    return np.where(rows < 0, start + 1, end).astype(np.int64)


def _written_ends(model: Model) -> Ints:
    """The end of each row of ops as its row tells it; -1 if it does not.

    A completion is noticed up to a tenth of a second late, so a duration that the device measured is added to the time
    of issue instead.
    """
    measured = pl.col("created_ns") + pl.col("duration_ns")
    ends = model.dataset.ops.select(pl.min_horizontal("completed_ns", measured).fill_null(-1).alias("end"))
    known: Ints = np.minimum(ends["end"].to_numpy(), LATEST)
    return known


def _longest(end: Ints, lane: NDArray[np.int32]) -> Ints:
    """For each position, the position up to it in its lane with the latest end; of several the last."""
    if not len(end):
        return np.zeros(0, np.int64)
    table = pl.DataFrame({"lane": lane, "end": end}).with_row_index("at")
    running = table.with_columns(pl.col("end").cum_max().over("lane").alias("top"))
    best = pl.when(pl.col("end") == pl.col("top")).then(pl.col("at").cast(pl.Int64)).otherwise(-1)
    return running.select(best.cum_max().alias("best"))["best"].to_numpy()
