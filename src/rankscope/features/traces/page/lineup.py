"""Line-up: the same collective on every member, each moved so that all of them arrive in one column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.features.traces.page.lanes import TraceLanes
from rankscope.features.traces.rules.trace_tables import UNKNOWN_NUMBER, OperationSeries, same_operations, series_of
from rankscope.tui.model import Model


@dataclass(frozen=True)
class LineUp:
    """A collective on which all members are lined up."""

    match: int
    arrived: Mapping[int, int]
    """By lane, arrival of its rank."""
    spans: Mapping[int, int]
    """By lane, its span."""
    low: int
    """Arrival of the first, and end of the last."""
    high: int
    anchor: int
    """The lane whose times are those of the axis."""
    last: int
    """The lane that came last."""

    def shift(self, lane: int) -> int:
        """The offset from a time of the axis to the time of a lane."""
        return self.arrived.get(lane, self.arrived[self.anchor]) - self.arrived[self.anchor]

    def late(self, lane: int) -> int:
        """Delay of a lane after the first, in nanoseconds."""
        return self.arrived[lane] - min(self.arrived.values())

    @property
    def lanes(self) -> tuple[int, ...]:
        """The lanes of the members, rising."""
        return tuple(sorted(self.arrived))


def line_up(lanes: TraceLanes, span: int) -> LineUp | None:
    """The line-up of the collective of a span on all its members; None if it was not matched."""
    row = int(lanes.spans.op[span])
    match = int(lanes.match_of[row]) if row >= 0 else -1
    if match < 0:
        return None
    arrived: dict[int, int] = {}
    spans: dict[int, int] = {}
    ends: list[int] = []
    for member in lanes.members(match).iter_rows(named=True):
        lane = lanes.lane_of.get(member["rank"])
        if lane is None or member["arrived_ns"] is None:
            continue
        arrived[lane] = member["arrived_ns"]
        ends.append(member["ended_ns"] or member["arrived_ns"])
        if member["row"] in lanes.span_of_row:
            spans[lane] = lanes.span_of_row[member["row"]]
    anchor = lanes.lane_of[int(lanes.dataset.traced["rank"][row])]
    if anchor not in arrived or len(arrived) < 2:
        return None
    last = max(arrived, key=lambda lane: arrived[lane])
    return LineUp(match, arrived, spans, min(arrived.values()), max(ends), anchor, last)


# Links between operations of dumps and the lanes of traces, in both directions.

Ints = NDArray[np.int64]


def item_of_traced(lanes: TraceLanes, model: Model, row: int) -> int | None:
    """The item of the lanes of operations for a row of `traced`; None if there is none."""
    seen = lanes.dataset.traced.row(row, named=True)
    if seen["rank"] not in model.lane_of or seen["group"] is None:
        return None
    rows, items = pairs(lanes, model, seen["rank"], seen["group"], p2p=bool(seen["is_p2p"]))
    at = np.flatnonzero(rows == row)
    return int(items[at[0]]) if len(at) else None


def traced_of_item(lanes: TraceLanes, model: Model, item: int) -> int | None:
    """The row of `traced` for an item of the lanes of operations; None if no profiler saw it."""
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


def _items(model: Model, lane: int, group: int, *, p2p: bool) -> OperationSeries:
    """Items of a lane and group, numbered as the lanes of operations number them."""
    first, last = int(model.bounds[lane]), int(model.bounds[lane + 1])
    items = model.items
    fits = (items.group[first:last] == group) & (items.p2p[first:last] == p2p) & (items.created[first:last] >= 0)
    at = first + np.flatnonzero(fits & (items.row[first:last] >= 0))
    at = at[np.argsort(items.created[at], kind="stable")].astype(np.int64)
    # a send or receive has the number of its pair there, not the number in the trace
    numbers = np.full(len(at), UNKNOWN_NUMBER, np.int64) if p2p else items.seq[at].astype(np.int64)
    return OperationSeries(at, numbers, items.created[at].astype(np.int64))
