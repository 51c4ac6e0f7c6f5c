"""Items under a cell of the lanes with the selection that they make, and places in the lanes for findings and jumps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.analysis.model import ChainStep, Finding
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
    at = np.flatnonzero(same)
    return begin + int(at[0]) if len(at) else None


def column_of(model: Model, group: int, seq: int) -> int | None:
    """The column of a collective; None if no rank issued it."""
    table = model.instances
    first = int(table["group"].search_sorted(group, "left"))
    last = int(table["group"].search_sorted(group, "right"))
    part = table.slice(first, last - first)
    at = int(part["seq"].search_sorted(seq, "left"))
    return int(part["col"][at]) if at < part.height and part["seq"][at] == seq else None


@dataclass(frozen=True)
class Place:
    """A rank, and the place on its lane; None if only the rank is known."""

    rank: int
    item: int | None = None
    column: int | None = None


def place_of_finding(model: Model, finding: Finding) -> Place | None:
    """The culprit at the collective of the finding; without a culprit, a member of its group that waits there."""
    in_evidence = (e.rank for e in finding.evidence if e.rank is not None)
    others = (*finding.waiting_ranks, *in_evidence)
    members = finding.group.ranks if finding.group is not None else ()
    in_group = set(members)
    waiting_members = (rank for rank in others if rank in in_group)
    ranks = (*finding.culprit_ranks, *finding.candidates, *finding.about, *waiting_members, *members, *others)
    shown = [rank for rank in ranks if rank in model.lane_of]
    if not shown:
        return None
    if _is_p2p(finding.op):
        return _at_pair(model, shown[0], finding.row)
    if finding.group is None or finding.seq is None:
        return _at_last(model, shown[0], finding.group.key if finding.group is not None else None)
    return _place(model, shown[0], finding.group.key, finding.seq, p2p=False)


def place_of_step(model: Model, step: ChainStep) -> Place | None:
    """The awaited rank, at the operation that it is awaited in."""
    group = group_named(model, step.waits_in.group, (step.rank, step.for_rank))
    if step.for_rank not in model.lane_of:
        return None
    if _is_p2p(step.waits_in.op):
        return _at_pair(model, step.for_rank, step.waits_in.row)
    if group is None or step.waits_in.seq is None:
        return _at_last(model, step.for_rank)
    return _place(model, step.for_rank, group, step.waits_in.seq, p2p=False)


def place_of_selection(model: Model, selection: Selection) -> Place | None:
    """The place of a selection from another screen."""
    if selection.rank not in model.lane_of:
        return None
    if selection.row is not None:
        return _at_row(model, selection.rank, selection.row)
    if selection.group is None or selection.seq is None:
        return Place(selection.rank)
    return _place(model, selection.rank, selection.group, selection.seq, p2p=selection.is_p2p)


def group_named(model: Model, name: str, ranks: tuple[int, ...]) -> int | None:
    """The group of this name with these ranks; of several the smallest."""
    fitting = [g for g in model.dataset.group_list if g.name == name]
    with_all = [g for g in fitting if set(ranks) <= set(g.ranks)] or fitting
    return min(with_all, key=lambda g: len(g.ranks)).id if with_all else None


def _place(model: Model, rank: int, group: int, seq: int, *, p2p: bool) -> Place:
    item = item_of(model, rank, group, seq, p2p=p2p)
    if item is not None:
        return Place(rank, item, int(model.items.col[item]))
    column = column_of(model, group, seq)
    return _at_last(model, rank, group) if column is None else Place(rank, None, column)


def _at_last(model: Model, rank: int, group: int | None = None) -> Place:
    """A rank at its last operation, in a group if it has any there; only the rank if it has none at all."""
    lane = model.lane_of[rank]
    items = np.arange(int(model.bounds[lane]), int(model.bounds[lane + 1]))
    in_group = items[model.items.group[items] == group] if group is not None else items
    candidates = in_group if len(in_group) else items
    return Place(rank, int(candidates[-1]), int(model.items.col[candidates[-1]])) if len(candidates) else Place(rank)


def _at_row(model: Model, rank: int, row: int) -> Place:
    """A rank in the column of a row of ops, which may be another rank's."""
    lane = model.lane_of[rank]
    first, last = int(model.bounds[lane]), int(model.bounds[lane + 1])
    at = (model.items.row[first:last] == row).nonzero()[0]
    return Place(rank, first + int(at[0]) if len(at) else None, int(model.columns[row]))


def _at_pair(model: Model, rank: int, row: int | None) -> Place:
    """A rank at a send or receive; without its row at its last operation: a collective may have the same number."""
    return _at_last(model, rank) if row is None else _at_row(model, rank, row)


def _is_p2p(op: str | None) -> bool:
    return op in ("send", "recv")
