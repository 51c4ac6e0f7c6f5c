"""Where an operation of dumps lies on the lanes of traces, and the other way round."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.traces.recorded import UNTOLD, Series, same_operations, series_of
from rankscope.tui.model import Model
from rankscope.tui.traces.lanes import TraceLanes

Ints = NDArray[np.int64]


def item_of_traced(lanes: TraceLanes, model: Model, row: int) -> int | None:
    """The item of the lanes of operations that is a row of `traced`; None if there is none."""
    seen = lanes.dataset.traced.row(row, named=True)
    if seen["rank"] not in model.lane_of or seen["group"] is None:
        return None
    rows, items = pairs(lanes, model, seen["rank"], seen["group"], p2p=bool(seen["is_p2p"]))
    at = np.flatnonzero(rows == row)
    return int(items[at[0]]) if len(at) else None


def traced_of_item(lanes: TraceLanes, model: Model, item: int) -> int | None:
    """The row of `traced` that is an item of the lanes of operations; None if no profiler saw it."""
    lane = int(model.items.lane[item])
    group, p2p = int(model.items.group[item]), bool(model.items.p2p[item])
    rows, items = pairs(lanes, model, int(model.ranks[lane]), group, p2p=p2p)
    at = np.flatnonzero(items == item)
    return int(rows[at[0]]) if len(at) else None


def pairs(lanes: TraceLanes, model: Model, rank: int, group: int, *, p2p: bool) -> tuple[Ints, Ints]:
    """Rows of `traced` of a rank and group, and the items that are the same operations."""
    same = (pl.col("rank") == rank) & (pl.col("group") == group) & (pl.col("is_p2p") == p2p)
    seen = series_of(lanes.dataset.traced.with_row_index("row").filter(same))
    issued = _items(model, model.lane_of[rank], group, p2p=p2p)
    a, b = same_operations(seen, issued)
    return seen.rows[a], issued.rows[b]


def _items(model: Model, lane: int, group: int, *, p2p: bool) -> Series:
    """Items of a lane and group, numbered as the lanes of operations number them."""
    first, last = int(model.bounds[lane]), int(model.bounds[lane + 1])
    items = model.items
    fits = (items.group[first:last] == group) & (items.p2p[first:last] == p2p) & (items.created[first:last] >= 0)
    at = first + np.flatnonzero(fits & (items.row[first:last] >= 0))
    at = at[np.argsort(items.created[at], kind="stable")].astype(np.int64)
    # a send or receive is numbered by its pair there, not as the trace does
    numbers = np.full(len(at), UNTOLD, np.int64) if p2p else items.seq[at].astype(np.int64)
    return Series(at, numbers, items.created[at].astype(np.int64))
