"""Lanes of two runs on one axis: equal operations stand in one column, and operations that differ are marked."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankscope.features.comparison.rules.run_sides import WholeComparison
from rankscope.features.comparison.rules.schedule_comparison import (
    MOST_PARTINGS,
    Alignment,
    ScheduleComparison,
    ScheduleRows,
)
from rankscope.tui.letters import NUMBER, PENDING, SHIFT, SIGNED, Codes, Mark, code
from rankscope.tui.marks import REASONS
from rankscope.tui.model import Model, operation_lanes

Ints = NDArray[np.int64]
NOWHERE = -1
"""The partner of an operation that has none."""


class DifferencePlace(NamedTuple):
    """A column in which schedules part."""

    column: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class PairedLanes:
    """The lanes of two runs; all three models have the same lanes and columns."""

    a: Model
    b: Model
    joined: Model
    """A's lanes, with B's operations where A has none."""
    partner_in_b: Ints
    """For each row of A's operations the row of the equal one in B, or NOWHERE."""
    odd_a: NDArray[np.bool_]
    """Rows of A's operations that differ from those of B."""
    odd_b: NDArray[np.bool_]
    places: tuple[DifferencePlace, ...]
    """In the order of columns."""
    first: frozenset[int]
    """Ranks that part first."""


def paired_lanes(whole: WholeComparison) -> PairedLanes | None:
    """The lanes of both runs; None if their schedules are not compared."""
    schedule = whole.grounds.schedule
    if schedule is None or not any(alignment.placed != "none" for alignment in schedule.alignments.values()):
        return None
    pairs = _row_pairs(schedule)
    models = [
        operation_lanes(run.dataset, judged.analysis)
        for run, judged in zip((schedule.a, schedule.b), whole.pair, strict=True)
    ]
    axis = common_axis(*(model.columns[rows] for model, rows in zip(models, pairs.equal, strict=True)))
    ranks = np.union1d(models[0].ranks, models[1].ranks).astype(np.int32)
    width = max(axis.place(side, np.array([model.width]))[0] for side, model in enumerate(models))
    a, b = (_marked(_moved(model, axis, side, ranks, int(width)), pairs.odd[side]) for side, model in enumerate(models))
    partner = np.full(schedule.a.dataset.ops.height, NOWHERE, np.int64)
    partner[pairs.equal[0]] = pairs.equal[1]
    # the columns in which ranks part, each with its ranks
    ranks_at: defaultdict[int, list[int]] = defaultdict(list)
    for rank, column in _partings(schedule, a.columns, b.columns):
        ranks_at[column].append(rank)
    places = tuple(DifferencePlace(column, tuple(sorted(set(ranks_at[column])))) for column in sorted(ranks_at))
    return PairedLanes(a, b, _joined(a, b), partner, *pairs.odd, places, frozenset(schedule.first))


class _RowPairs(NamedTuple):
    """Rows of the operations of both runs."""

    equal: tuple[Ints, Ints]
    odd: tuple[NDArray[np.bool_], NDArray[np.bool_]]


def _row_pairs(schedule: ScheduleComparison) -> _RowPairs:
    """The rows of equal operations, pair by pair, and masks of those that differ."""
    equal, odd = (list[Ints](), list[Ints]()), (list[Ints](), list[Ints]())
    loose = {parting.rank for parting in schedule.unordered}
    for rank, alignment in schedule.alignments.items():
        sizes = [run.bounds[rank][1] - run.bounds[rank][0] for run in (schedule.a, schedule.b)]
        stretches = equal_stretches(alignment, *sizes)
        for side, run in enumerate((schedule.a, schedule.b)):
            start = run.bounds[rank][0]
            equal[side].extend(start + np.arange(stretch[side], stretch[side] + stretch[2]) for stretch in stretches)
            if rank not in loose:
                odd[side].extend(
                    start + np.arange(parting[side], parting[side] + parting[side + 2])
                    for parting in alignment.partings
                )
    return _RowPairs(
        (_rows(schedule.a, equal[0]), _rows(schedule.b, equal[1])),
        (_mask(schedule.a, odd[0]), _mask(schedule.b, odd[1])),
    )


def equal_stretches(alignment: Alignment, size_a: int, size_b: int) -> list[tuple[int, int, int]]:
    """Stretches of equal operations: their first ones in A and B, and their length."""
    if alignment.placed == "none":
        return []
    out, (i, j) = [], alignment.start
    for parting in alignment.partings:
        out.append((i, j, parting.at_a - i))
        i, j = parting.at_a + parting.length_a, parting.at_b + parting.length_b
    if len(alignment.partings) < MOST_PARTINGS and (not alignment.partings or alignment.partings[-1].meets):
        out.append((i, j, min(size_a - i, size_b - j)))
    return [stretch for stretch in out if stretch[2] > 0]


def _rows(run: ScheduleRows, places: list[Ints]) -> Ints:
    """The rows of `dataset.ops` at these places of a schedule."""
    at = np.concatenate(places) if places else np.zeros(0, np.int64)
    rows: Ints = run.rows["row"].to_numpy()[at].astype(np.int64)
    return rows


def _mask(run: ScheduleRows, places: list[Ints]) -> NDArray[np.bool_]:
    mask = np.zeros(run.dataset.ops.height, np.bool_)
    mask[_rows(run, places)] = True
    return mask


class CommonAxis(NamedTuple):
    """Columns of both runs that coincide, rising, and their common columns."""

    anchors: tuple[Ints, Ints]
    common: Ints

    def place(self, side: int, columns: Ints) -> Ints:
        """The common columns of columns of run A (0) or B (1); they keep their order."""
        anchors = self.anchors[side]
        if not len(anchors):
            return columns.astype(np.int64)
        at = np.maximum(np.searchsorted(anchors, columns, side="right") - 1, 0)
        placed: Ints = self.common[at] + columns - anchors[at]
        return placed


def common_axis(columns_a: Ints, columns_b: Ints) -> CommonAxis:
    """The axis on which most pairs of equal operations coincide; the arrays hold the columns of each pair."""
    anchors = _rising(_partners(columns_a.astype(np.int64), columns_b.astype(np.int64)))
    a, b = anchors[:, 0], anchors[:, 1]
    if not len(anchors):
        return CommonAxis((a, b), np.zeros(0, np.int64))
    steps = np.maximum(np.diff(a), np.diff(b))
    return CommonAxis((a, b), max(int(a[0]), int(b[0])) + np.concatenate([[0], np.cumsum(steps)]).astype(np.int64))


def _partners(columns_a: Ints, columns_b: Ints) -> Ints:
    """For each column of A the column of B with which most of its operations are paired, as pairs."""
    if not len(columns_a):
        return np.zeros((0, 2), np.int64)
    # one number for each pair sorts ten times as fast as rows of two
    base = int(columns_b.max()) + 1
    keys, counts = np.unique(columns_a * base + columns_b, return_counts=True)
    pairs = np.stack([keys // base, keys % base], axis=1)
    best = pairs[np.lexsort((pairs[:, 1], -counts, pairs[:, 0]))]
    kept: Ints = best[np.flatnonzero(np.diff(best[:, 0], prepend=-1))]
    return kept


def _rising(pairs: Ints) -> Ints:
    """The most pairs whose columns rise in both runs (longest increasing subsequence, by patience sorting)."""
    tails, at_tail, before = list[int](), list[int](), list[int]()
    for number, column in enumerate(pairs[:, 1].tolist()):
        place = bisect_left(tails, column)
        before.append(at_tail[place - 1] if place else NOWHERE)
        tails[place : place + 1], at_tail[place : place + 1] = [column], [number]
    chain, at = list[int](), at_tail[-1] if at_tail else NOWHERE
    while at != NOWHERE:
        chain.append(at)
        at = before[at]
    return pairs[chain[::-1]]


def _moved(model: Model, axis: CommonAxis, side: int, ranks: NDArray[np.int32], width: int) -> Model:
    """The model with a lane for each of `ranks`, and its columns on the common axis."""
    lanes = np.searchsorted(ranks, model.ranks).astype(np.int32)
    until = np.full(len(ranks), width, np.int64)
    reason = np.full(len(ranks), REASONS.index("no dump"), np.uint8)
    until[lanes] = np.where(model.gap_until > 0, axis.place(side, model.gap_until), 0)
    reason[lanes] = model.gap_reason
    column = axis.place(side, model.items.col.astype(np.int64)).astype(np.int32)
    items = replace(model.items, lane=lanes[model.items.lane], col=column)
    instances = model.instances.with_columns(col=axis.place(side, model.instances["col"].to_numpy()))
    return replace(
        model,
        ranks=ranks,
        items=items,
        gap_until=np.minimum(until, width),
        gap_reason=reason,
        width=width,
        columns=axis.place(side, model.columns),
        instances=instances,
    )


def _marked(model: Model, odd: NDArray[np.bool_]) -> Model:
    """The model with marks for operations that differ from the other run, and none for those within the run."""
    codes, rows = model.items.code, model.items.row
    marks, letters = codes >> SHIFT, codes & NUMBER
    for mark, other in SIGNED.items():
        codes = np.where(marks == mark, letters | np.uint8(code(other)), codes)
    pending = np.isin(codes >> SHIFT, PENDING)
    unlike = np.where(pending, np.uint8(code(Mark.MISMATCH_PENDING)), np.uint8(code(Mark.MISMATCH)))
    differs = (rows >= 0) & odd[np.maximum(rows, 0)] if len(odd) else np.zeros(len(rows), np.bool_)
    changed: Codes = np.where(differs, letters | unlike, codes).astype(np.uint8)
    return replace(model, items=replace(model.items, code=changed))


def _joined(a: Model, b: Model) -> Model:
    """A's lanes with those differing operations of B that stand where A has no item; these have no row."""
    differs = np.isin(b.items.code >> SHIFT, (Mark.MISMATCH, Mark.MISMATCH_PENDING))
    taken = a.items.lane.astype(np.int64) * (a.width + 1) + a.items.col
    places = b.items.lane.astype(np.int64) * (a.width + 1) + b.items.col
    added = differs & ~np.isin(places, taken)
    order = np.argsort(np.concatenate([taken, places[added]]), kind="stable")
    values = {}
    for name in type(a.items).__dataclass_fields__:
        ours, theirs = getattr(a.items, name), getattr(b.items, name)[added]
        absent = name in ("row", "group", "seq")
        values[name] = np.concatenate([ours, np.full_like(theirs, -1) if absent else theirs])[order]
    return replace(a, items=replace(a.items, **values))


def _partings(schedule: ScheduleComparison, columns_a: Ints, columns_b: Ints) -> Iterator[tuple[int, int]]:
    """Rank and column of each parting."""
    rows = [run.rows["row"].to_numpy() for run in (schedule.a, schedule.b)]
    loose = {parting.rank for parting in schedule.unordered}
    for rank, alignment in schedule.alignments.items():
        starts = schedule.a.bounds[rank][0], schedule.b.bounds[rank][0]
        if rank in loose:
            continue
        if alignment.shift:
            yield rank, int(columns_a[rows[0][starts[0] + alignment.start[0]]])
        for parting in alignment.partings:
            inserted = not parting.length_a
            at = starts[1] + parting.at_b if inserted else starts[0] + parting.at_a
            yield rank, int((columns_b if inserted else columns_a)[rows[int(inserted)][at]])
