"""The same operation among those of dumps and among those that a profiler saw.

Traces before torch 2.12 tell no sequence number. Both take the time at which the host issued it from the same clock,
some microseconds apart, where operations of one group follow each other by hundreds: of one rank and group, the
nearest in time is the same one.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.tui.model import Model
from rankscope.tui.traces.lanes import TraceLanes

NEAR_NS = 200_000
"""Operations that were issued further apart than this are not the same."""


def item_of_traced(lanes: TraceLanes, model: Model, row: int) -> int | None:
    """The item of the lanes of operations that is a row of `traced`; None if there is none."""
    seen = lanes.dataset.traced.row(row, named=True)
    lane = model.lane_of.get(seen["rank"])
    if lane is None or seen["created_ns"] is None or seen["group"] is None:
        return None
    first, last = int(model.bounds[lane]), int(model.bounds[lane + 1])
    items = model.items
    fits = (items.group[first:last] == seen["group"]) & (items.p2p[first:last] == bool(seen["is_p2p"]))
    at = np.flatnonzero(fits & (items.created[first:last] >= 0) & (items.row[first:last] >= 0))
    apart = np.abs(items.created[first:last][at] - seen["created_ns"])
    return first + int(at[apart.argmin()]) if len(at) and apart.min() <= NEAR_NS else None


def traced_of_item(lanes: TraceLanes, model: Model, item: int) -> int | None:
    """The row of `traced` that is an item of the lanes of operations; None if no profiler saw it."""
    items = model.items
    created, rank = int(items.created[item]), int(model.ranks[items.lane[item]])
    same = (pl.col("rank") == rank) & (pl.col("group") == int(items.group[item]))
    table = lanes.dataset.traced.with_row_index("row").filter(
        same & (pl.col("is_p2p") == bool(items.p2p[item])) & pl.col("created_ns").is_not_null()
    )
    if created < 0 or table.is_empty():
        return None
    apart = (table["created_ns"] - created).abs()
    nearest = apart.arg_min()
    return int(table["row"][nearest]) if nearest is not None and int(apart[nearest]) <= NEAR_NS else None
