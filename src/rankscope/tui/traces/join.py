"""The same operation among those of dumps and among those that a profiler saw.

Traces before torch 2.12 tell no sequence number. Both take the time at which the host issued an operation from the
same clock, some microseconds apart. Of one rank and group both are in the order of issue: the two series are laid on
each other where all pairs are near, and only then are they taken for the same.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.tui.model import Model
from rankscope.tui.traces.lanes import TraceLanes

Ints = NDArray[np.int64]
NEAR_NS = 200_000
"""Operations that were issued further apart than this are not the same."""


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
    table = lanes.dataset.traced.with_row_index("row").filter(same & pl.col("created_ns").is_not_null())
    table = table.sort("created_ns", "row").select("row", "created_ns")
    rows, seen = (table[name].to_numpy().astype(np.int64) for name in ("row", "created_ns"))
    lane = model.lane_of[rank]
    first, last = int(model.bounds[lane]), int(model.bounds[lane + 1])
    items = model.items
    fits = (items.group[first:last] == group) & (items.p2p[first:last] == p2p) & (items.created[first:last] >= 0)
    at = first + np.flatnonzero(fits & (items.row[first:last] >= 0))
    at = at[np.argsort(items.created[at], kind="stable")]
    begin = laid_on(seen, items.created[at])
    if begin is None:
        return rows[:0], at[:0]
    low, high = max(0, -begin), min(len(seen), len(at) - begin)
    return rows[low:high], at[low + begin : high + begin]


def laid_on(seen: Ints, issued: Ints) -> int | None:
    """How many places later each of `seen` stands in `issued`, both rising; None where they do not fit each other."""
    if not len(seen) or not len(issued):
        return None
    near = np.searchsorted(issued, [seen[0] - NEAR_NS, seen[0] + NEAR_NS])
    shifts = list(range(int(near[0]), int(near[1])))
    near = np.searchsorted(seen, [issued[0] - NEAR_NS, issued[0] + NEAR_NS])
    shifts += [-at for at in range(int(near[0]), int(near[1]))]
    worst = {shift: _furthest(seen, issued, shift) for shift in shifts}
    best = min(worst, key=lambda shift: worst[shift], default=None)
    return best if best is not None and worst[best] <= NEAR_NS else None


def _furthest(seen: Ints, issued: Ints, shift: int) -> int:
    low, high = max(0, -shift), min(len(seen), len(issued) - shift)
    return int(np.abs(seen[low:high] - issued[low + shift : high + shift]).max())
