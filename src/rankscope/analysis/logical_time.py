"""Logical columns of operations: all members of a collective share one column, whatever their clocks say.

The column of an operation is the length of the longest chain of operations before it: one more than the operation
before it on the same rank and on every rank that takes part in it (Lamport, "Time, clocks, and the ordering of events
in a distributed system", 1978). Members that never came hold nobody up. If groups were entered in different orders
there is no such column; from there the ranks go on in their own program order.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.arrays import Ints
from rankscope.analysis.collective_calls import collective_instances, collectives_of
from rankscope.schema import Dataset

_OP_COLUMNS = ["rank", "group", "seq", "p2p_seq", "is_p2p", "op", "peer", "coalesced", "state"]
_BATCH_COLUMNS = ["rank", "group", "is_p2p", "seq", "p2p_seq"]


def logical_columns(dataset: Dataset) -> NDArray[np.int64]:
    """The column of each row of `dataset.ops`, from 0; a row that is not drawn has that of its last inner row.

    Time and memory are proportional to the rows: half a second for 512,000.
    """
    if dataset.ops.is_empty():
        return np.zeros(0, np.int64)
    drawn = drawn_rows(dataset.ops)
    rows = dataset.ops.select(_OP_COLUMNS).with_row_index("row")
    rows = in_program_order(rows if drawn.all() else rows.filter(drawn))
    # mask of the rows that are collectives outside coalesced groups
    plain = rows.select((IS_COLLECTIVE & (pl.col("coalesced") != "inner")).fill_null(False)).to_series()
    if rows.height == dataset.ops.height and plain.all():
        instance = _dense(collectives_of(dataset.ops).instances.code)
    else:
        instance = _instances(rows, plain, whole_ranks(dataset))
    starts = np.flatnonzero(np.diff(rows["rank"].fill_null(-1).to_numpy(), prepend=-(2**31)))
    placed = columns_in_waves(instance, np.append(starts, rows.height))
    columns = np.full(dataset.ops.height, -1, np.int64)
    columns[rows["row"].to_numpy()] = placed
    return fill_forward(columns)


def drawn_rows(ops: pl.DataFrame) -> pl.Series:
    """Mask of the shown rows: all but closers of coalesced groups with a present inner operation."""
    if not (ops["coalesced"] == "closer").any():
        return pl.repeat(True, ops.height, eager=True)
    inner = (
        ops.lazy().filter(pl.col("coalesced") == "inner").select(_BATCH_COLUMNS).unique().with_columns(has_inner=True)
    )
    marked = (
        ops.lazy()
        .select(*_BATCH_COLUMNS, "coalesced")
        .join(inner, on=_BATCH_COLUMNS, how="left", nulls_equal=True, maintain_order="left")
    )
    hidden = (pl.col("coalesced") == "closer") & pl.col("has_inner").fill_null(False)
    return marked.select((~hidden).alias("drawn")).collect()["drawn"]


def in_program_order(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows by rank in program order; those of one batch of sends and receives in the same order on both ends.

    The operations of a batch are posted together, so their order in the dump means nothing. One order over all pairs of
    ranks keeps two mutual exchanges from looking like a deadlock.
    """
    batched = (pl.col("coalesced") == "inner") & pl.col("is_p2p") & pl.col("peer").is_not_null()
    if not rows.select(batched.any()).item():
        return rows
    first = pl.when(batched).then(pl.col("row").min().over(_BATCH_COLUMNS)).otherwise(pl.col("row")).alias("first")
    pair = [
        pl.when(batched).then(pl.min_horizontal("rank", "peer")).alias("low"),
        pl.when(batched).then(pl.max_horizontal("rank", "peer")).alias("high"),
        pl.when(batched).then(_sender()).alias("sender"),
    ]
    return rows.with_columns(first, *pair).sort("rank", "first", "low", "high", "sender", "row")


def _sender() -> pl.Expr:
    return pl.when(_is_send()).then(pl.col("rank")).otherwise(pl.col("peer"))


def _is_send() -> pl.Expr:
    return pl.col("op").cast(pl.String).str.contains("send", literal=True)


def _instances(rows: pl.DataFrame, plain: pl.Series, whole: list[int]) -> NDArray[np.int64]:
    """The number of each row's operation, the same on all ranks that take part in it, from 0.

    Sends and receives come first: the first of a cycle is released, and releasing a collective separates more ranks.
    """
    out = np.zeros(rows.height, np.int64)
    known = collective_instances(rows.select("group", "seq").filter(plain))
    rest = (~plain).arg_true()
    if len(rest):
        out[rest.to_numpy()] = _others(rows[rest], whole)
    out[plain.to_numpy()] = int(out.max(initial=-1)) + 1 + known.code
    return _dense(out)


def _dense(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers renumbered without gaps, if the gaps are many."""
    count = int(numbers.max(initial=-1)) + 1
    if count <= 2 * len(numbers):
        return numbers
    there = np.zeros(count, np.bool_)
    there[numbers] = True
    dense: NDArray[np.int64] = np.cumsum(there, dtype=np.int64)[numbers] - 1
    return dense


IS_COLLECTIVE = ~pl.col("is_p2p") & pl.col("seq").is_not_null() & pl.col("group").is_not_null()
"""Rows that are, or belong to, a collective with a number."""


def _others(rows: pl.DataFrame, whole: list[int]) -> NDArray[np.int64]:
    """Numbers of operations in coalesced groups, of sends and receives, and of operations that nobody can join."""
    keyed = (
        rows.lazy().select("rank", "group", "seq", "is_p2p", "op", "peer", "coalesced", "state").with_row_index("at")
    )
    keys = pl.concat([_inner_keys(keyed), p2p_pairs(keyed, whole)])
    names = [name for name in keys.collect_schema().names() if name != "at"]
    numbered = keys.select(names).unique(maintain_order=True).with_row_index("instance")
    found = keys.join(numbered, on=names, how="left").select("at", "instance").collect()
    out = np.arange(rows.height, 2 * rows.height, dtype=np.int64)
    out[found["at"].to_numpy()] = found["instance"].to_numpy()
    return out


def _inner_keys(keyed: pl.LazyFrame) -> pl.LazyFrame:
    """Collectives of a coalesced group by (group, seq) and their position in it."""
    none = pl.lit(None, pl.Int32)
    return (
        keyed.filter(IS_COLLECTIVE & (pl.col("coalesced") == "inner"))
        .with_columns(k=pl.int_range(pl.len(), dtype=pl.Int64).over("rank", "group", "seq"))
        .select("at", "group", none.fill_null(-1).alias("low"), none.fill_null(-1).alias("high"), "seq", "k")
    )


def p2p_pairs(keyed: pl.LazyFrame, whole: list[int]) -> pl.LazyFrame:
    """Sends and receives by (group, sender, receiver, k-th between the two).

    If a ring overwrote its oldest entries, the count begins at the first incomplete operation, because a transfer
    completes on both ends.
    """
    other = pl.when(_is_send()).then(pl.col("peer")).otherwise(pl.col("rank"))
    pair = ["group", "low", "high", "rank"]
    both_whole = pl.col("low").is_in(whole) & pl.col("high").is_in(whole)
    done = (pl.col("state") == "completed").sum().over(pair)
    k = pl.int_range(pl.len(), dtype=pl.Int64).over(pair) - pl.when(both_whole).then(0).otherwise(done.cast(pl.Int64))
    return (
        keyed.filter(pl.col("is_p2p") & pl.col("peer").is_not_null() & pl.col("group").is_not_null())
        .with_columns(_sender().alias("low"), other.alias("high"))
        .select("at", "group", "low", "high", pl.lit(-(2**62), pl.Int64).alias("seq"), k.alias("k"))
    )


def whole_ranks(dataset: Dataset) -> list[int]:
    """Ranks whose dump holds every operation they issued."""
    whole = dataset.dumps.filter(~pl.col("wrapped") & (pl.col("filtered") == "none"))
    return whole["rank"].drop_nulls().unique().to_list()


def fill_forward(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Columns in which -1 takes the value of the row before."""
    if not len(columns) or columns.min() >= 0:
        return columns
    last = np.maximum.accumulate(np.where(columns >= 0, np.arange(len(columns)), 0))
    return np.maximum(columns[last], 0)


# Waves: in each wave, every operation whose members are all there takes the column of the wave.


MOST_WAVES = 60_000
"""Most waves before ranks go on in program order; each wave costs 20 microseconds or more."""
CIRCLE_WORK = 16
"""Members examined for cycles per row before ranks go on in program order."""


class _LanePositions:
    """The position in every lane. A last row that nobody can join ends each lane."""

    def __init__(self, instance: Ints, bounds: Ints) -> None:
        count = len(bounds) - 1
        self.blocked = int(instance.max(initial=-1)) + 1
        lanes = np.repeat(np.arange(count), np.diff(bounds))
        self.at = np.arange(len(instance)) + lanes
        self.rows = np.full(len(instance) + count, self.blocked, np.int64)
        self.rows[self.at] = instance
        self.lane = np.empty(len(self.rows), np.int64)
        self.lane[self.at] = lanes
        self.head = bounds[:-1] + np.arange(count)
        self.ends = bounds[1:] + np.arange(count)
        self.lane[self.ends] = np.arange(count)
        self.columns = np.full(len(self.rows), -1, np.int64)
        self.missing = np.bincount(instance, minlength=self.blocked + 1)
        self.missing[self.blocked] = 2**62
        self._instance = instance
        self.work_left = CIRCLE_WORK * len(self.rows) + 1_000_000
        self._arrive(self.head)

    # only needed if lanes wait for each other in a cycle

    @cached_property
    def members(self) -> Ints:
        """Rows sorted by operation; those of operation i begin at `offsets[i]`."""
        members: Ints = self.at[np.argsort(self._instance, kind="stable")]
        return members

    @cached_property
    def offsets(self) -> Ints:
        """The start of each operation in `members`."""
        return np.concatenate([[0], np.cumsum(np.bincount(self._instance, minlength=self.blocked))])

    def _arrive(self, heads: Ints) -> None:
        np.subtract.at(self.missing, self.rows[heads], 1)

    def advance(self, ready: NDArray[np.bool_], column: int) -> None:
        """Gives the first rows of the lanes in `ready` this column and advances these lanes."""
        heads = self.head[ready]
        self.columns[heads] = column
        self.head[ready] = heads + 1
        self._arrive(heads + 1)


def columns_in_waves(instance: Ints, bounds: Ints, longest: int = MOST_WAVES) -> Ints:
    """The column of each row. Lane i holds rows `bounds[i]:bounds[i+1]`; rows of one operation share an instance.

    If lanes wait for each other in a cycle, one operation of each cycle is released without its other members. After
    `longest` columns, or too much search for cycles, the remaining rows follow in program order.
    """
    lanes = _LanePositions(instance, bounds)
    for column in range(longest):
        ready = _ready(lanes)
        if ready is None:
            break
        lanes.advance(ready, column)
    _in_program_order(lanes)
    columns: Ints = lanes.columns[lanes.at]
    return columns


def _ready(lanes: _LanePositions) -> NDArray[np.bool_] | None:
    """The lanes that can advance; None if none can, or if the search takes too long."""
    current = lanes.rows[lanes.head]
    ready: NDArray[np.bool_] = lanes.missing[current] == 0
    if ready.any():
        return ready
    waiting = current != lanes.blocked
    if not waiting.any() or lanes.work_left < 0:
        return None
    return np.isin(current, _one_of_each_circle(lanes, np.unique(current[waiting])))


def _one_of_each_circle(lanes: _LanePositions, stuck: Ints) -> Ints:
    """The first instance of each cycle of instances that wait for each other."""
    after = np.searchsorted(stuck, _waits_for(lanes, stuck))
    lowest = np.arange(len(stuck))
    # Stride doubling: after enough rounds every instance is on a cycle and has seen all of it.
    for _ in range(max(1, len(stuck).bit_length())):
        lowest = np.minimum(lowest, lowest[after])
        after = after[after]
    return stuck[np.unique(lowest[after])]


def _waits_for(lanes: _LanePositions, stuck: Ints) -> Ints:
    """For each stuck instance, the instance at which a member stands that has not reached it."""
    sizes = lanes.offsets[stuck + 1] - lanes.offsets[stuck]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    flat = np.arange(starts[-1]) + np.repeat(lanes.offsets[stuck] - starts[:-1], sizes)
    rows = lanes.members[flat]
    lanes.work_left -= len(rows)
    late = np.where(rows > lanes.head[lanes.lane[rows]], rows, len(lanes.rows))
    first = np.minimum.reduceat(late, starts[:-1])
    waits_for: Ints = lanes.rows[lanes.head[lanes.lane[first]]]
    return waits_for


def _in_program_order(lanes: _LanePositions) -> None:
    """Places the remaining rows after the last used column."""
    left = np.arange(len(lanes.rows)) - lanes.head[lanes.lane]
    lanes.columns = np.where(left >= 0, lanes.columns.max(initial=-1) + 1 + left, lanes.columns)
