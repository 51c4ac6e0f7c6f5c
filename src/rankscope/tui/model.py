"""Arrays cut from the frame once, so that drawing never uses the frame: the items of each lane in drawing order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.arrays import filled_array
from rankscope.analysis.logical_time import drawn_rows, logical_columns
from rankscope.analysis.model import Analysis
from rankscope.kinds.board_kinds import BOARDS, BoardKind
from rankscope.kinds.functions import function
from rankscope.kinds.view_kinds import LANE_MARKS
from rankscope.report.settings_section import all_settings
from rankscope.schema import Dataset
from rankscope.tui.late_marks import with_lateness
from rankscope.tui.letters import NUMBER, OVER, PENDING, SHIFT, Codes, Mark, code, op_codes
from rankscope.tui.marks import REASONS, Collectives, absences, collectives, p2p_absences


class TimedLanes(Protocol):
    """Lanes of a feature on the axis of time, as arrays."""

    @property
    def dataset(self) -> Dataset:
        """The dataset they are made of."""

    @property
    def analysis(self) -> Analysis:
        """Its analysis."""

    def narrowed(self, group: int | None, letter: int | None) -> Self:
        """The lanes without collectives of other groups and other operations; None stands for all."""


Ints = NDArray[np.int64]
Array = NDArray[Any]
NO_GROUP = 2**32 - 1
"""The number for no group: it is -1 in the 32 bits of `Items`."""


@dataclass(frozen=True)
class Items:
    """The items of lanes, operations and marks of absent ones alike, sorted by lane, then by column.

    The arrays are of one length.
    """

    lane: NDArray[np.int32]
    col: NDArray[np.int32]
    code: Codes
    row: NDArray[np.int32]
    """Index into ops; -1 for a mark."""
    group: NDArray[np.int32]
    """-1 where there is none."""
    p2p: NDArray[np.bool_]
    seq: Ints
    created: Ints
    """Nanoseconds since the epoch; for a mark, the time when its peers issued it. -1 if not known."""
    reason: NDArray[np.uint8]
    """For a mark, its number in REASONS."""


Loose = dict[str, Array]
"""Items before they are sorted into lanes, in any order: `rank` instead of `lane`, and the other fields of `Items`."""


def operations(dataset: Dataset, codes: Codes, columns: Ints) -> Loose:
    """The operations that are drawn, with the code and the column of each row of ops."""
    ops = dataset.ops
    group = filled_array(ops["group"], NO_GROUP).astype(np.int32)
    # also for groups that the table of groups lacks
    group[(group < 0) | (group >= dataset.groups.height)] = -1
    every: Loose = {
        "rank": filled_array(ops["rank"], -1),
        "col": columns.astype(np.int32),
        "code": codes,
        "row": np.arange(ops.height, dtype=np.int32),
        "group": group,
        "p2p": filled_array(ops["is_p2p"], False),
        "seq": filled_array(ops["seq"], -1),
        "created": filled_array(ops["created_ns"], -1),
        "reason": np.zeros(ops.height, np.uint8),
    }
    drawn = drawn_rows(ops) & ops["rank"].is_not_null()
    return every if drawn.all() else _take(every, drawn.arg_true().to_numpy())


def in_lanes(marks: Loose, real: Loose, ranks: NDArray[np.int32]) -> Items:
    """Items with their lane, sorted by lane, then by column; in one column marks first, others in their order."""
    width = 1 + max(int(part["col"].max(initial=0)) for part in (marks, real))
    placed = _placed(real, ranks, width)
    if len(marks["col"]):
        before = _placed(marks, ranks, width)
        placed = {name: np.concatenate([before[name], placed[name]]) for name in placed}
    if (placed["place"][1:] < placed["place"][:-1]).any():
        placed = _take(placed, np.argsort(placed["place"], kind="stable"))
    del placed["place"], placed["rank"]
    return Items(**placed)


def _placed(part: Loose, ranks: NDArray[np.int32], width: int) -> Loose:
    """Items with their lane, and the place of each among all lanes."""
    rank = part["rank"]
    # the items of a rank stand together
    starts = np.flatnonzero(np.diff(rank, prepend=-2))
    lane = np.repeat(np.searchsorted(ranks, rank[starts]), np.diff(starts, append=len(rank)))
    return {**part, "lane": lane.astype(np.int32), "place": lane * width + part["col"]}


def _take(part: Loose, places: Array) -> Loose:
    return {name: values[places] for name, values in part.items()}


@dataclass(frozen=True)
class Model:
    """The lanes of a dataset, one per rank, or one per rank and group."""

    dataset: Dataset
    analysis: Analysis
    ranks: NDArray[np.int32]
    """The rank of each lane, rising where each rank has one lane."""
    items: Items
    gap_until: Ints
    """The first known column of a lane: rows before it were overwritten, or there is no dump."""
    gap_reason: NDArray[np.uint8]
    width: int
    """Columns there are."""
    columns: Ints
    """The column of each row of ops."""
    instances: pl.DataFrame
    """One row per collective; see `collectives.Collectives`."""
    timed: TimedLanes | None = None
    """The lanes of a feature on the axis of time; None without any."""
    from_timed: bool = False
    """Whether the operations are those of `timed`, because no other file has any."""

    @property
    def is_partial(self) -> bool:
        """Whether the rest of the files is still being read."""
        return self.dataset.parts.whole_follows

    @cached_property
    def bounds(self) -> Ints:
        """Lane i holds items `bounds[i]:bounds[i+1]`."""
        return np.searchsorted(self.items.lane, np.arange(len(self.ranks) + 1)).astype(np.int64)

    @cached_property
    def lane_of(self) -> dict[int, int]:
        """The lane of each rank; the first one where a rank has several."""
        ranks, first = np.unique(self.ranks, return_index=True)
        return dict(zip(ranks.tolist(), first.tolist(), strict=True))

    @cached_property
    def failed(self) -> frozenset[int]:
        """Ranks whose own log shows a root cause."""
        said = self.dataset.messages.filter(pl.col("role") == "root")
        return frozenset(said["rank"].drop_nulls().to_list())

    def take(self, lanes: NDArray[np.bool_], items: NDArray[np.bool_]) -> Model:
        """Only these lanes, and only these of their items."""
        kept = items & lanes[self.items.lane]
        number = np.cumsum(lanes, dtype=np.int32) - 1
        chosen = {name: getattr(self.items, name)[kept] for name in Items.__dataclass_fields__}
        chosen["lane"] = number[chosen["lane"]]
        return replace(
            self,
            ranks=self.ranks[lanes],
            items=Items(**chosen),
            gap_until=self.gap_until[lanes],
            gap_reason=self.gap_reason[lanes],
        )


def build_model(dataset: Dataset, analysis: Analysis) -> Model:
    """The lanes of all ranks of the job, including ranks without a dump."""
    # for many ranks this takes a second, and no key should wait for it
    all_settings(dataset)
    kind, alone = board_kind(dataset), dataset.ops.is_empty()
    if kind is None:
        return operation_lanes(dataset, analysis)
    run = function(kind.run)(dataset, analysis) if alone else dataset
    timed = function(kind.lanes)(dataset, analysis)
    return replace(operation_lanes(run, analysis), timed=timed, from_timed=alone)


def board_kind(dataset: Dataset) -> BoardKind | None:
    """The kind of lanes on the axis of time that a dataset has; None without any."""
    return next((kind for kind in BOARDS if not getattr(dataset, kind.table).is_empty()), None)


def operation_lanes(dataset: Dataset, analysis: Analysis) -> Model:
    """The lanes of the operations alone, without those of traces."""
    columns = logical_columns(dataset)
    ranks = _all_ranks(dataset)
    found = collectives(dataset, columns)
    codes = with_lateness(dataset, op_codes(dataset.ops))
    codes = _with_mismatches(dataset, analysis, _with_numbers(dataset, analysis, codes))
    real = operations(dataset, codes, columns)
    items = in_lanes(_marks(dataset, analysis, found, columns), real, ranks)
    width = int(items.col.max(initial=-1)) + 1
    until, reason = _gaps(dataset, ranks, items, width)
    return Model(dataset, analysis, ranks, items, until, reason, width, columns, found.table)


def _all_ranks(dataset: Dataset) -> NDArray[np.int32]:
    ranks = dataset.ops["rank"].drop_nulls().to_numpy()
    # the operations of a rank mostly stand together
    acting = ranks[np.flatnonzero(np.diff(ranks, prepend=-1))]
    known = {*dataset.every_rank, *dataset.seen_ranks, *acting.tolist()}
    members = dataset.groups["ranks"].explode().drop_nulls().unique().to_list()
    return np.array(sorted(known.union(members)), np.int32)


def _with_numbers(dataset: Dataset, analysis: Analysis, codes: Codes) -> Codes:
    """Codes with a mark on each collective whose numbers are off on the rank, and that is over."""
    out = codes.copy()
    for marks in LANE_MARKS:
        if getattr(dataset, marks.table).is_empty():
            continue
        rows = _rows_of(dataset, function(marks.function)(dataset, analysis))
        rows = rows[np.isin(codes[rows] >> SHIFT, (*OVER, Mark.UNSURE))]
        out[rows] = (out[rows] & NUMBER) | np.uint8(code(Mark.WRONG_NUMBERS))
    return out


def _rows_of(dataset: Dataset, collectives: pl.DataFrame) -> Ints:
    """The rows of ops with these values of group, seq and rank."""
    ops = dataset.ops.select("group", "seq", "rank", "is_p2p").with_row_index("row").filter(~pl.col("is_p2p"))
    found: Ints = ops.join(collectives, on=["group", "seq", "rank"], how="semi")["row"].to_numpy().astype(np.int64)
    return found


def _with_mismatches(dataset: Dataset, analysis: Analysis, codes: Codes) -> Codes:
    """Codes with a mismatch mark on each operation that differs from the majority of its group."""
    out = codes.copy()
    wrong = [(d.group, d.seq, rank) for d in analysis.divergences for rank in d.differing]
    if not wrong:
        return out
    table = pl.DataFrame(wrong, schema={"group": pl.UInt32, "seq": pl.Int64, "rank": pl.Int32}, orient="row")
    rows = _rows_of(dataset, table)
    pending = np.isin(out[rows] >> SHIFT, PENDING)
    marks = np.where(pending, np.uint8(code(Mark.MISMATCH_PENDING)), np.uint8(code(Mark.MISMATCH)))
    out[rows] = (out[rows] & NUMBER) | marks
    return out


def _marks(dataset: Dataset, analysis: Analysis, known: Collectives, columns: Ints) -> Loose:
    """Marks for missing rows. In a running job, an operation that is not yet issued gets no mark."""
    moves = analysis.status in ("healthy", "progressing")
    found = pl.concat(
        [absences(dataset, known, never=not moves), p2p_absences(dataset, () if moves else analysis.findings, columns)]
    )
    never = pl.col("reason") == REASONS.index("never issued")
    guilty = never & pl.col("rank").is_in(list(analysis.culprits))
    codes = pl.when(guilty).then(code(Mark.ABSENT)).when(never).then(code(Mark.MISSING)).otherwise(code(Mark.GONE))
    return {
        "rank": filled_array(found["rank"], -1),
        "col": found["col"].to_numpy().astype(np.int32),
        "code": found.select(codes.cast(pl.UInt8)).to_series().to_numpy(),
        "row": np.full(found.height, -1, np.int32),
        "group": found["group"].to_numpy().astype(np.int32),
        "p2p": found["is_p2p"].to_numpy(),
        "seq": found["seq"].to_numpy(),
        "created": filled_array(found["created_ns"], -1),
        "reason": found["reason"].to_numpy(),
    }


def _gaps(dataset: Dataset, ranks: NDArray[np.int32], items: Items, width: int) -> tuple[Ints, NDArray[np.uint8]]:
    """For each lane, the first known column, and the reason."""
    used = dataset.dumps.filter(pl.col("rank").is_not_null())
    lost = set(used.filter(pl.col("wrapped").fill_null(False))["rank"].to_list())
    starts = np.flatnonzero(np.diff(items.lane, prepend=-1))
    first = np.full(len(ranks), width, np.int64)
    if len(starts):
        # marks lie between operations, and before them
        first[items.lane[starts]] = np.minimum.reduceat(np.where(items.row >= 0, items.col, width), starts)
    seen = np.isin(ranks, dataset.seen_ranks)
    until = np.where(seen, np.where(np.isin(ranks, list(lost)), first, 0), width)
    reason = np.where(seen, REASONS.index("overwritten"), REASONS.index("no dump"))
    return until, reason.astype(np.uint8)
