"""Items under a cell of the lanes, and the selection that they make for the detail pane."""

from __future__ import annotations

import numpy as np

from rankscope.tui.letters import SHIFT, Mark
from rankscope.tui.marks import REASONS
from rankscope.tui.model import Model
from rankscope.tui.selection import Selection
from rankscope.tui.times import Times


def item_at(model: Model, lane: int, first: int, last: int) -> int | None:
    """The worst item of a lane in the columns from `first` up to `last`; None if there is none."""
    begin, end = int(model.bounds[lane]), int(model.bounds[lane + 1])
    columns = model.items.col[begin:end]
    low, high = np.searchsorted(columns, [first, last])
    if low >= high:
        return None
    return begin + int(low) + int(model.items.code[begin + low : begin + high].argmax())


def item_at_time(times: Times, lane: int, first: int, last: int) -> int | None:
    """The worst item of a lane that starts from `first` up to `last`, else the item that runs there, or None."""
    begin, end = int(times.bounds[lane]), int(times.bounds[lane + 1])
    low, high = np.searchsorted(times.start[begin:end], [first, last])
    if low < high:
        return int(times.item[begin + int(low) + int(times.code[begin + low : begin + high].argmax())])
    _, position = times.running(np.array([lane]), np.array([first, last]))
    return int(times.item[position[0, 0]]) if position[0, 0] >= 0 else None


def neighbour(model: Model, lane: int, unit: int, step: int, times: Times | None = None) -> int | None:
    """The item that starts next after `unit` in a lane (`step` 1), or last before it (-1); None at the ends."""
    starts = model.items.col if times is None else times.start
    bounds = model.bounds if times is None else times.bounds
    begin, end = int(bounds[lane]), int(bounds[lane + 1])
    at = int(np.searchsorted(starts[begin:end], unit, side="right" if step > 0 else "left"))
    at = at if step > 0 else at - 1
    if not 0 <= at < end - begin:
        return None
    return begin + at if times is None else int(times.item[begin + at])


def selection_of(model: Model, lane: int, item: int | None, finding: int | None, unit: int | None = None) -> Selection:
    """The selection for an item of a lane; without an item, for the rank alone.

    `unit` is the column under the cursor. The selection tells the reason if the lane is not known before that column.
    """
    rank = int(model.ranks[lane])
    if item is None:
        lost = unit is not None and unit < model.gap_until[lane]
        return Selection(rank, finding=finding, absence=REASONS[model.gap_reason[lane]] if lost else None)
    items = model.items
    row, group, seq = int(items.row[item]), int(items.group[item]), int(items.seq[item])
    return Selection(
        rank,
        row=row if row >= 0 else None,
        group=group if group >= 0 else None,
        seq=seq if seq >= 0 else None,
        is_p2p=bool(items.p2p[item]),
        finding=finding,
        absence=None if row >= 0 else REASONS[items.reason[item]],
    )


def item_of(model: Model, rank: int, group: int, seq: int, *, p2p: bool = False) -> int | None:
    """The item of a rank for a collective, or its mark if the rank is absent; None if the lane has neither.

    With `p2p`, the first pending send or receive of the group.
    """
    lane = model.lane_of.get(rank)
    if lane is None:
        return None
    begin, end = int(model.bounds[lane]), int(model.bounds[lane + 1])
    items = model.items
    same = items.group[begin:end] == group
    if p2p:
        marks = items.code[begin:end] >> SHIFT
        same &= np.isin(marks, (Mark.SCHEDULED, Mark.STARTED, Mark.MISSING, Mark.ABSENT)) & items.p2p[begin:end]
    else:
        same &= (items.seq[begin:end] == seq) & ~items.p2p[begin:end]
    found = np.flatnonzero(same)
    return begin + int(found[0]) if len(found) else None


def column_of(model: Model, group: int, seq: int) -> int | None:
    """The column of a collective; None if no rank issued it."""
    table = model.instances
    first = int(table["group"].search_sorted(group, "left"))
    last = int(table["group"].search_sorted(group, "right"))
    part = table.slice(first, last - first)
    at = int(part["seq"].search_sorted(seq, "left"))
    return int(part["col"][at]) if at < part.height and part["seq"][at] == seq else None
