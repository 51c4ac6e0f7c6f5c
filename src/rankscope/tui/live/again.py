"""The lanes once more where only some of it is new: what ranks have written anew, or what follows what they had."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.arrays import places_of, stretches_of
from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from rankscope.tui.items import Ints, Items, Loose, in_lanes, operations
from rankscope.tui.letters import op_codes
from rankscope.tui.live.columns import Laid, columns_had, lay_out
from rankscope.tui.live.spliced import Spliced, spliced
from rankscope.tui.marks import REASONS
from rankscope.tui.model import Model
from rankscope.tui.traces.run import TracedRun

NEEDED = (
    "rank", "group", "seq", "p2p_seq", "is_p2p", "op", "peer", "coalesced", "state", "created_ns", "record_id",
)  # fmt: skip


@dataclass(frozen=True)
class _Stretches:
    """Where the rows of some ranks stand in two tables, both sorted by rank: all, or the last. Arrays of one length."""

    ranks: NDArray[np.int32]
    was: Ints
    was_end: Ints
    now: Ints
    now_end: Ints
    kept: Ints
    """How many of the first ones, here and there, are the same: one, or none."""

    @property
    def sizes(self) -> Ints:
        """How many rows each has now."""
        return self.now_end - self.now


@dataclass(frozen=True)
class _Placed:
    """All items, and in which stretches of those before they are others: as in Spliced."""

    now: Items
    starts: Ints
    ends: Ints
    sizes: Ints


@dataclass(frozen=True)
class Again:
    """Lanes, and what of them was put between what was there, if that is how they were made."""

    model: Model
    spliced: tuple[Spliced, ...] = ()


def lanes_again(
    before: Model, dataset: Dataset, analysis: Analysis, ranks: Collection[int], kept: Mapping[int, int] | None = None
) -> Again | None:
    """The lanes of a dataset of which only operations of some ranks are others than before, or more of them.

    So many of the first operations of these ranks are `kept`; None if that is not known. It is None where the rest does
    not fit between the others: then all has to be laid out.
    """
    if not _fits(before, dataset, ranks):
        return None
    stretches = _stretches(before.dataset.ops["rank"], dataset.ops["rank"], sorted(ranks), kept)
    rows = dataset.ops.select(NEEDED)[places_of(stretches.now, stretches.now_end)]
    own = columns_had(rows, *_before(before, stretches)) if kept is None else _columns_kept(before, stretches)
    laid = lay_out(rows, own, before.instances) if own is not None else None
    placed = _items(before, replace(dataset, ops=rows), laid, stretches) if laid is not None else None
    if laid is None or placed is None:
        return None
    items = placed.now
    model = replace(
        before,
        dataset=dataset,
        analysis=analysis,
        items=items,
        columns=spliced(before.columns, stretches.was, stretches.was_end, laid.columns, stretches.sizes),
        instances=pl.concat([before.instances, laid.instances]).sort("group", "seq"),
        width=max(before.width, int(items.col.max(initial=-1)) + 1),
    )
    model = replace(model, gap_until=_gaps(model, stretches.ranks))
    return Again(model, () if kept is None else _told(before, model, stretches, placed))


def _fits(before: Model, dataset: Dataset, ranks: Collection[int]) -> bool:
    was = before.dataset
    # where there are only traces the lanes are of what these saw
    plain = not (before.analysis.differs or isinstance(was, TracedRun))
    same = was.world_size == dataset.world_size and was.groups.equals(dataset.groups)
    known = not was.ops["rank"].null_count() and not dataset.ops["rank"].null_count()
    return plain and same and known and all(rank in before.lane_of for rank in ranks)


def _stretches(was: pl.Series, now: pl.Series, ranks: list[int], kept: Mapping[int, int] | None) -> _Stretches:
    """All rows of these ranks, or of those of which some are kept the last of them and what follows."""
    first, first_end = stretches_of(was, ranks)
    begin, end = stretches_of(now, ranks)
    same = np.array([(kept or {}).get(rank, 0) for rank in ranks], np.int64)
    left_out = np.maximum(same - 1, 0)
    of = np.array(ranks, np.int32)
    return _Stretches(of, first + left_out, first_end, begin + left_out, end, np.minimum(same, 1))


def _before(before: Model, stretches: _Stretches) -> tuple[pl.DataFrame, Ints]:
    """The rows of these ranks as they were, and their columns."""
    places = places_of(stretches.was, stretches.was_end)
    return before.dataset.ops[places], before.columns[places]


def _columns_kept(before: Model, stretches: _Stretches) -> Ints:
    """The columns of the rows that are there now: of those that are kept as they were, else -1."""
    own = np.full(int(stretches.sizes.sum()), -1, np.int64)
    there = stretches.kept > 0
    own[(np.cumsum(stretches.sizes) - stretches.sizes)[there]] = before.columns[stretches.was[there]]
    return own


def _items(before: Model, part: Dataset, laid: Laid, stretches: _Stretches) -> _Placed | None:
    """All items, those of the rows of `part` anew; marks of what is not written yet stay.

    None where what is kept of a lane stands between what is not.
    """
    real = operations(part, op_codes(part.ops), laid.columns)
    lanes = np.searchsorted(before.ranks, stretches.ranks)
    starts, ends = _bounds(before, lanes, stretches)
    replaced = before.items.row[places_of(starts, ends)]
    if ((replaced >= 0) & (replaced < np.repeat(stretches.was, ends - starts))).any():
        return None
    own = in_lanes(_marks(before, real, starts, ends), real, stretches.ranks)
    places = places_of(stretches.now, stretches.now_end)
    # a mark has -1 for a row here and there
    own = replace(own, lane=lanes[own.lane].astype(np.int32), row=np.append(places, -1)[own.row])
    sizes = np.searchsorted(own.lane, lanes, "right") - np.searchsorted(own.lane, lanes, "left")
    old = replace(before.items, row=_moved(before.items, lanes, stretches))
    parts = {
        name: spliced(getattr(old, name), starts, ends, getattr(own, name).astype(getattr(old, name).dtype), sizes)
        for name in Items.__dataclass_fields__
    }
    return _Placed(Items(**parts), starts, ends, sizes)


def _told(before: Model, now: Model, stretches: _Stretches, placed: _Placed) -> tuple[Spliced, ...]:
    """What is put between what was there; rows of items are counted anew behind that."""
    rows = stretches.was, stretches.was_end, stretches.sizes
    ops = Spliced(before.dataset.ops, now.dataset.ops, *rows), Spliced(before.columns, now.columns, *rows)
    names = [name for name in Items.__dataclass_fields__ if name != "row"]
    where = placed.starts, placed.ends, placed.sizes
    return *ops, *(Spliced(getattr(before.items, name), getattr(now.items, name), *where) for name in names)


def _moved(items: Items, lanes: Ints, stretches: _Stretches) -> NDArray[np.int32]:
    """The rows of all items where ranks before them have more operations now, or fewer."""
    more = stretches.sizes - (stretches.was_end - stretches.was)
    if not more.any():
        return items.row
    # the lane of a rank that has issued nothing may lie behind all items
    by_lane = np.zeros(max(int(items.lane.max(initial=0)), int(lanes.max())) + 2, np.int64)
    by_lane[lanes + 1] = more
    moved: NDArray[np.int32] = np.where(items.row >= 0, items.row + np.cumsum(by_lane)[items.lane], -1).astype(np.int32)
    return moved


def _bounds(before: Model, lanes: Ints, stretches: _Stretches) -> tuple[Ints, Ints]:
    """Where in these lanes the items begin that may be others, and where the lanes end."""
    starts, ends = before.bounds[lanes], before.bounds[lanes + 1]
    for at in np.flatnonzero(stretches.kept).tolist():
        mine = before.items.col[starts[at] : ends[at]]
        starts[at] += np.searchsorted(mine, before.columns[stretches.was[at]])
    return starts, ends


def _marks(before: Model, real: Loose, starts: Ints, ends: Ints) -> Loose:
    """What ranks had no rows of, and still have none of, in stretches of items; nothing where something else stands."""
    places = places_of(starts, ends)
    places = places[before.items.row[places] < 0]
    names = [name for name in Items.__dataclass_fields__ if name != "lane"]
    marks: Loose = {name: getattr(before.items, name)[places] for name in names}
    marks["rank"] = before.ranks[before.items.lane[places]]
    if not len(places):
        return marks
    named, placed = ["rank", "group", "seq", "p2p"], ["rank", "col"]
    columns = [*named, "col"]
    there = pl.DataFrame({name: real[name] for name in columns})
    found = pl.DataFrame({name: marks[name] for name in columns}).with_row_index("at")
    left = found.join(there, on=named, how="anti").join(there, on=placed, how="anti")["at"].to_numpy()
    return {name: values[np.sort(left)] for name, values in marks.items()}


def _gaps(model: Model, ranks: NDArray[np.int32]) -> Ints:
    """Where what is known of each lane begins: of those of `ranks` with what they have now."""
    lanes = np.searchsorted(model.ranks, ranks)
    used = model.dataset.dumps.filter(pl.col("wrapped").fill_null(value=False))
    lost = np.isin(ranks, used["rank"].drop_nulls().to_numpy())
    until = model.gap_until.copy()
    for lane, wrapped in zip(lanes.tolist(), lost.tolist(), strict=True):
        mine = slice(int(model.bounds[lane]), int(model.bounds[lane + 1]))
        own = model.items.col[mine][model.items.row[mine] >= 0]
        until[lane] = own.min(initial=model.width) if wrapped else 0
    return np.where(model.gap_reason == REASONS.index("no dump"), model.width, until)
