"""Arrays cut from the frame once, so that drawing never touches it: what each lane holds, in the order it is drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.logical_time import drawn_rows, logical_columns
from rankscope.analysis.model import Analysis
from rankscope.report.settings import settings
from rankscope.schema import Dataset
from rankscope.tui.letters import NUMBER, Codes, Mark, code, op_codes
from rankscope.tui.marks import REASONS, Collectives, absences, collectives, p2p_absences

if TYPE_CHECKING:
    from rankscope.tui.traces.lanes import TraceLanes

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Items:
    """What lanes hold, operations and marks of absent ones alike, sorted by lane, then by column.

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
    """Nanoseconds since the epoch; of a mark, when its peers issued it. -1 where not known."""
    reason: NDArray[np.uint8]
    """Of a mark, its number in REASONS."""


@dataclass(frozen=True)
class Model:
    """The lanes of a dataset, one per rank."""

    dataset: Dataset
    analysis: Analysis
    ranks: NDArray[np.int32]
    """The rank of each lane, rising."""
    items: Items
    gap_until: Ints
    """Column before which nothing is known of a lane: overwritten, or no dump."""
    gap_reason: NDArray[np.uint8]
    width: int
    """Columns there are."""
    columns: Ints
    """The column of each row of ops."""
    instances: pl.DataFrame
    """One row per collective; see `marks.collectives`."""
    traces: TraceLanes | None = None
    """The lanes of the traces that there are; None without any."""

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
        """Ranks whose own log tells of a root cause."""
        said = self.dataset.messages.filter(pl.col("role") == "root")
        return frozenset(said["rank"].drop_nulls().to_list())

    def take(self, lanes: NDArray[np.bool_], items: NDArray[np.bool_]) -> Model:
        """Only these lanes, and of their items only these."""
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


def build_model(dataset: Dataset, analysis: Analysis, before: Model | None = None) -> Model:
    """The lanes of all ranks of the job, those without a dump too; with those of traces as they were `before`."""
    # of many ranks it takes a second, which no key should wait for
    settings(dataset)
    if not dataset.has_traces:
        return _build(dataset, analysis)
    from rankscope.tui.traces.lanes import build_lanes
    from rankscope.tui.traces.run import traced_run

    run = traced_run(dataset, analysis) if dataset.ops.is_empty() else dataset
    traces = build_lanes(dataset, analysis, before.traces if before is not None else None)
    return replace(_build(run, analysis), traces=traces)


def _build(dataset: Dataset, analysis: Analysis) -> Model:
    columns = logical_columns(dataset)
    ranks = _all_ranks(dataset)
    found = collectives(dataset, columns)
    real = _operations(dataset, analysis, columns)
    marks = _marks(dataset, analysis, found, columns)
    items = _items(_in_lanes(marks, real, ranks))
    width = int(items.col.max(initial=-1)) + 1
    until, reason = _gaps(dataset, ranks, items, width)
    return Model(dataset, analysis, ranks, items, until, reason, width, columns, found.table)


def _in_lanes(marks: pl.DataFrame, real: pl.DataFrame, ranks: NDArray[np.int32]) -> pl.DataFrame:
    """Items with their lane, sorted by lane, then by column; of one column marks first, others as they come."""
    width = 1 + max(int(part["col"].to_numpy().max(initial=0)) for part in (marks, real))
    first, second = (_sorted(part, ranks, width) for part in (marks, real))
    if first.is_empty():
        return second.drop("place")
    places = np.concatenate([first["place"].to_numpy(), second["place"].to_numpy()])
    return pl.concat([first, second])[np.argsort(places, kind="stable")].drop("place")


def _sorted(items: pl.DataFrame, ranks: NDArray[np.int32], width: int) -> pl.DataFrame:
    lane = np.searchsorted(ranks, items["rank"].to_numpy())
    place = lane * width + items["col"].to_numpy().astype(np.int64)
    items = items.with_columns(lane=pl.Series(lane), place=pl.Series(place))
    if (np.diff(place) >= 0).all():
        return items
    return items[np.argsort(place, kind="stable")]


def _all_ranks(dataset: Dataset) -> NDArray[np.int32]:
    known = {*range(dataset.world_size), *dataset.seen_ranks, *dataset.ops["rank"].drop_nulls().unique().to_list()}
    members = {rank for group in dataset.group_list for rank in group.ranks}
    return np.array(sorted(known | members), np.int32)


def _operations(dataset: Dataset, analysis: Analysis, columns: Ints) -> pl.DataFrame:
    codes = op_codes(dataset.ops)
    codes = _with_mismatches(dataset, analysis, codes)
    return (
        dataset.ops.select("rank", "group", "seq", "is_p2p", "created_ns")
        .with_row_index("row")
        .with_columns(col=pl.Series(columns), code=pl.Series(codes), drawn=drawn_rows(dataset.ops))
        .filter(pl.col("drawn") & pl.col("rank").is_not_null())
        .select(
            "rank", pl.col("row").cast(pl.Int32), "col", "code", _known_group(dataset),
            pl.col("is_p2p").fill_null(False),
            pl.col("seq").fill_null(-1), pl.col("created_ns").fill_null(-1), pl.lit(0, pl.UInt8).alias("reason"),
        )
    )  # fmt: skip


def _known_group(dataset: Dataset) -> pl.Expr:
    """The group of a row; -1 for none, and for one that `groups` does not have."""
    known = pl.col("group") < dataset.groups.height
    return pl.when(known).then(pl.col("group")).otherwise(None).cast(pl.Int32).fill_null(-1).alias("group")


def _with_mismatches(dataset: Dataset, analysis: Analysis, codes: Codes) -> Codes:
    """Codes with a mismatch mark on what differs from the majority of its group."""
    out = codes.copy()
    wrong = [(d.group, d.seq, rank) for d in analysis.divergences for rank in d.differing]
    if not wrong:
        return out
    table = pl.DataFrame(wrong, schema={"group": pl.UInt32, "seq": pl.Int64, "rank": pl.Int32}, orient="row")
    ops = dataset.ops.select("group", "seq", "rank", "is_p2p").with_row_index("row").filter(~pl.col("is_p2p"))
    rows = ops.join(table, on=["group", "seq", "rank"], how="semi")["row"].to_numpy()
    out[rows] = (out[rows] & NUMBER) | code(Mark.MISMATCH)
    return out


def _marks(dataset: Dataset, analysis: Analysis, known: Collectives, columns: Ints) -> pl.DataFrame:
    """Marks for rows that are not there. In a job that runs, what was not yet issued is no cause for one."""
    found = pl.concat([absences(dataset, known), p2p_absences(dataset, analysis.findings, columns)])
    never = pl.col("reason") == REASONS.index("never issued")
    if analysis.status in ("healthy", "progressing"):
        found = found.filter(~never)
    guilty = never & pl.col("rank").is_in(list(analysis.culprits))
    return found.select(
        "rank", pl.lit(-1, pl.Int32).alias("row"), "col",
        pl.when(guilty).then(code(Mark.ABSENT)).when(never).then(code(Mark.MISSING))
        .otherwise(code(Mark.GONE)).cast(pl.UInt8).alias("code"),
        pl.col("group").cast(pl.Int32), "is_p2p", "seq", pl.col("created_ns").fill_null(-1), "reason",
    )  # fmt: skip


def _items(table: pl.DataFrame) -> Items:
    return Items(
        lane=table["lane"].to_numpy().astype(np.int32),
        col=table["col"].to_numpy().astype(np.int32),
        code=table["code"].to_numpy().astype(np.uint8),
        row=table["row"].to_numpy().astype(np.int32),
        group=table["group"].to_numpy().astype(np.int32),
        p2p=table["is_p2p"].to_numpy(),
        seq=table["seq"].to_numpy().astype(np.int64),
        created=table["created_ns"].to_numpy().astype(np.int64),
        reason=table["reason"].to_numpy().astype(np.uint8),
    )


def _gaps(dataset: Dataset, ranks: NDArray[np.int32], items: Items, width: int) -> tuple[Ints, NDArray[np.uint8]]:
    """For each lane, the column before which nothing is known of it, and why."""
    used = dataset.dumps.filter(pl.col("rank").is_not_null())
    lost = set(used.filter(pl.col("wrapped").fill_null(False))["rank"].to_list())
    real = items.row >= 0
    lanes = items.lane[real]
    first = np.full(len(ranks), width, np.int64)
    # sorted by column: of what is put in one place the last stays, and that is the first of its lane
    first[lanes[::-1]] = items.col[real][::-1]
    seen = np.isin(ranks, dataset.seen_ranks)
    until = np.where(seen, np.where(np.isin(ranks, list(lost)), first, 0), width)
    reason = np.where(seen, REASONS.index("overwritten"), REASONS.index("no dump"))
    return until, reason.astype(np.uint8)
