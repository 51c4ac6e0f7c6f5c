"""Arrays cut from the frame once, so that drawing never uses the frame: the items of each lane in drawing order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.arrays import filled_array
from rankscope.analysis.logical_time import logical_columns
from rankscope.analysis.model import Analysis
from rankscope.features.numbers.rules.model import RowState, number_results
from rankscope.report.settings_section import all_settings
from rankscope.schema import Dataset
from rankscope.tui.collective_columns import Collectives, collectives
from rankscope.tui.lane_items import Ints, Items, Loose, in_lanes, operations
from rankscope.tui.letters import NUMBER, PENDING, SHIFT, Codes, Mark, code, op_codes
from rankscope.tui.marks import REASONS, absences, p2p_absences

if TYPE_CHECKING:
    from rankscope.features.traces.page.lanes import TraceLanes


@dataclass(frozen=True)
class Model:
    """The lanes of a dataset, one per rank."""

    dataset: Dataset
    analysis: Analysis
    ranks: NDArray[np.int32]
    """The rank of each lane, rising."""
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
    traces: TraceLanes | None = None
    """The lanes of the traces; None without any."""

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
        """The lane of each rank."""
        return {rank: lane for lane, rank in enumerate(self.ranks.tolist())}

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
    if not dataset.has_traces:
        return operation_lanes(dataset, analysis)
    from rankscope.features.traces.page.lanes import build_lanes, traced_run

    run = traced_run(dataset, analysis) if dataset.ops.is_empty() else dataset
    return replace(operation_lanes(run, analysis), traces=build_lanes(dataset, analysis))


def operation_lanes(dataset: Dataset, analysis: Analysis) -> Model:
    """The lanes of the operations alone, without those of traces."""
    columns = logical_columns(dataset)
    ranks = _all_ranks(dataset)
    found = collectives(dataset, columns)
    codes = _with_mismatches(dataset, analysis, _with_numbers(dataset, analysis, op_codes(dataset.ops)))
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
    results = number_results(analysis)
    own, reference = results.marks, results.distances
    off = np.zeros(dataset.tensors.height, np.bool_)
    if own is not None:
        off |= own.state >= RowState.SUSPICIOUS
    if reference is not None:
        off |= reference.first
    if not off.any():
        return codes
    wrong = dataset.tensors.filter(pl.Series(off) & (pl.col("site") == "collective")).select("group", "seq", "rank")
    rows = _rows_of(dataset, wrong.unique())
    rows = rows[np.isin(codes[rows] >> SHIFT, (Mark.DONE, Mark.UNSURE))]
    out = codes.copy()
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
