"""Collectives of all ranks, one row for each member and sequence number, and the numbers on which members disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.analysis.arrays import Ints, Mask
from rankscope.analysis.signatures import KEY_COLUMNS, signatures
from rankscope.schema import Dataset
from rankscope.schema.tables import State

IS_PENDING = pl.col("state").is_in(["scheduled", "started"])
"""Rows that were issued and are not known to be finished."""


def collect_calls(dataset: Dataset) -> pl.DataFrame:
    """One row per (rank, group, seq): `row` in ops, op, key, elements, dtype, state, times. Keeps program order.

    `key` is the part of the operation that must agree; null if only the closer of a coalesced group is known. The
    operations of a coalesced group, with or without their closer, become one call with the sum of their sizes, null if
    one of them is unknown; nothing can be compared if a wrapped ring holds only some of them. A completion after the
    timeout was made by an abort (pytorch PR 119249) and counts as pending.
    """
    collectives = dataset.ops.lazy().with_row_index("row").filter(~pl.col("is_p2p") & pl.col("seq").is_not_null())
    # the arguments take half of the memory of a row: they go before the other columns come
    signed = signatures(collectives.select(KEY_COLUMNS).collect())
    rows = collectives.select("row", *_CALL_COLUMNS).collect().hstack(signed)
    rows = _real_state(rows, dataset.frontiers).select(
        "row", "rank", "group", "seq", "op", "key", "rooted", "elements", "dtype", "state", "coalesced",
        "created_ns", "completed_ns", "duration_ns", "library",
    )  # fmt: skip
    many = pl.col("coalesced") != "none"
    if not (dataset.frontiers["filtered"] == "none").all():
        many |= pl.len().over("rank", "group", "seq") > 1
    rows = rows.with_columns(many=many)
    joined = rows.filter("many")
    if joined.is_empty():
        return rows.drop("coalesced", "many")
    alone = rows.filter(~pl.col("many")).drop("coalesced", "many")
    torn = pl.col("row").is_in(_begins(dataset).implode())
    whole = [pl.when(~torn).then(name).alias(name) for name in ("key", "elements", "dtype")]
    return pl.concat([alone, _merge_coalesced(joined).with_columns(whole).select(alone.columns)]).sort("row")


def _begins(dataset: Dataset) -> pl.Series:
    """The first row of every wrapped ring; earlier rows of its coalesced group are overwritten."""
    wrapped = dataset.dumps.filter(pl.col("wrapped"))["file"]
    rows = dataset.ops.select("file").with_row_index("row").filter(pl.col("file").is_in(wrapped.implode()))
    return rows.group_by("file").agg(pl.col("row").min())["row"]


_CALL_COLUMNS = [
    "rank", "group", "seq", "op", "state", "coalesced", "created_ns", "completed_ns", "duration_ns", "timeout_ms",
    "library",
]  # fmt: skip


def _real_state(rows: pl.DataFrame, frontiers: pl.DataFrame) -> pl.DataFrame:
    """States corrected: operations that pg_status calls completed are completed, operations that an abort completed
    are not."""
    finished = np.zeros(rows.height, np.bool_)
    finished[_finished(rows, frontiers)] = True
    took = pl.col("completed_ns") - pl.col("created_ns")
    aborted = (pl.col("state") == "completed") & (took >= pl.col("timeout_ms") * 1_000_000).fill_null(False)
    return rows.with_columns(
        pl.when(aborted)
        .then(pl.lit("scheduled", dtype=State))
        .when(pl.lit(pl.Series(finished)))
        .then(pl.lit("completed", dtype=State))
        .otherwise("state")
        .alias("state")
    )


def _finished(rows: pl.DataFrame, frontiers: pl.DataFrame) -> pl.Series:
    """The rows that are pending in the entries but completed by pg_status."""
    pending = (
        rows.select("rank", "group", "seq", "state", "library")
        .with_row_index("place")
        .filter((pl.col("state") != "completed") & (pl.col("library") != "gloo"))
    )
    reached = frontiers.select("rank", "group", "last_completed")
    return pending.join(reached, on=["rank", "group"]).filter(pl.col("seq") <= pl.col("last_completed"))["place"]


def _merge_coalesced(rows: pl.DataFrame) -> pl.DataFrame:
    inner = pl.col("coalesced") != "closer"
    names = pl.col("op").cast(pl.String).filter(inner).unique(maintain_order=True).str.join("+")
    keys = pl.col("key").cast(pl.String).filter(inner).unique(maintain_order=True).str.join("+")
    return rows.group_by("rank", "group", "seq", maintain_order=True).agg(
        pl.col("row").first(),
        pl.when(inner.any())
        .then(names)
        .otherwise(pl.col("op").cast(pl.String).first())
        .cast(pl.Categorical)
        .alias("op"),
        pl.when(inner.any()).then(keys).cast(pl.Categorical).alias("key"),
        pl.col("rooted").filter(inner).any().alias("rooted"),
        pl.when(inner.any() & pl.col("elements").filter(inner).is_not_null().all())
        .then(pl.col("elements").filter(inner).sum())
        .alias("elements"),
        pl.col("dtype").filter(inner).first(),
        pl.col("state").last(),
        pl.col("created_ns").first(),
        pl.col("completed_ns").last(),
        pl.col("duration_ns").last(),
        pl.col("library").first(),
    )


MOST_EMPTY_NUMBERS = 1 << 20
"""Most sequence numbers without a row that are tolerated, besides the number of rows."""
_EXTREMES = (np.iinfo(np.int64).max, np.iinfo(np.int64).min)
_COMPARED_COLUMNS = {"ops": "key", "sizes": "elements", "dtypes": "dtype"}


@dataclass(frozen=True)
class CollectiveInstances:
    """The collectives of all groups by group and sequence number; may contain numbers without a row."""

    group: Ints
    seq: Ints
    code: Ints
    """The index of the instance of each row of the calls."""

    def last_of(self, rows: Mask) -> dict[int, int]:
        """By group: the highest sequence number among the calls where `rows` is true."""
        there = np.zeros(len(self.group), np.bool_)
        there[self.code[rows]] = True
        found = np.flatnonzero(there)
        last = found[np.diff(self.group[found], append=-1) != 0]
        return dict(zip(self.group[last].tolist(), self.seq[last].tolist(), strict=True))


def find_disagreements(calls: pl.DataFrame, instances: CollectiveInstances) -> pl.DataFrame:
    """Instances (group, seq) whose members issued different operations, sorted by group and seq.

    Columns `ops`, `sizes` and `dtypes` tell what differs, `members` how many issued it, `finished` whether all are
    done. `settled` is true if the group went on together afterwards: as many members agreed on a later one and finished
    it.
    """
    group, seq, code = instances.group, instances.seq, instances.code
    differ = {
        name: _differ(calls[column].to_physical(), code, len(group)) for name, column in _COMPARED_COLUMNS.items()
    }
    members = np.bincount(code, minlength=len(group))
    finished = np.ones(len(group), np.bool_)
    finished[code[(calls["state"] != "completed").to_numpy()]] = False
    table = pl.DataFrame({"group": group, "seq": seq, **differ, "members": members, "finished": finished})
    differs = pl.any_horizontal(*_COMPARED_COLUMNS)
    found = table.filter(differs).with_row_index("place")
    together = (
        table.filter(~differs & pl.col("finished") & (pl.col("members") > 1))
        .filter(pl.col("group").is_in(found["group"].implode()))
        .group_by("group", "members")
        .agg(pl.col("seq").max().alias("together"))
    )
    settled = (
        found.join(together, on="group", suffix="_together")
        .filter((pl.col("members_together") >= pl.col("members")) & (pl.col("seq") < pl.col("together")))["place"]
        .unique()
    )
    return (
        found.with_columns(pl.col("place").is_in(settled.implode()).alias("settled"))
        .drop("place")
        .cast({"group": pl.UInt32})
        .sort("group", "seq")
    )


class CollectiveRows:
    """Rows of ops that are collectives with a number, and the instance of each row."""

    def __init__(self, ops: pl.DataFrame) -> None:
        known = ~ops["is_p2p"] & ops["seq"].is_not_null() & ops["group"].is_not_null()
        self.rows: Ints | None = None if known.all(ignore_nulls=False) else known.arg_true().to_numpy().astype(np.int64)
        """None: all rows."""
        own = ops.select("group", "seq")
        self.instances = collective_instances(own if self.rows is None else own[self.rows])

    def of(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The values of a column of ops at these rows."""
        return column if self.rows is None else column[self.rows]


def collectives_of(ops: pl.DataFrame) -> CollectiveRows:
    """The collectives of a frame. The last result is kept as long as its frame, because several callers ask."""
    last = _last_collectives.get("ops")
    if last is None or last[0]() is not ops:
        last = _last_collectives["ops"] = ref(ops, lambda _: _last_collectives.clear()), CollectiveRows(ops)
    return last[1]


_last_collectives: dict[str, tuple[ref[pl.DataFrame], CollectiveRows]] = {}


def collective_instances(calls: pl.DataFrame) -> CollectiveInstances:
    """All instances, sorted by group and sequence number.

    Sequence numbers are dense, so the instance of a row is found by counting; numbers that lie far apart are sorted.
    """
    group, seq = calls["group"].to_numpy().astype(np.int64), calls["seq"].to_numpy()
    low, high = (np.full(int(group.max(initial=-1)) + 1, end) for end in _EXTREMES)
    np.minimum.at(low, group, seq)
    np.maximum.at(high, group, seq)
    groups = np.flatnonzero(low <= high)
    lows = low[groups]
    widths = high[groups].astype(np.float64) - lows + 1
    if widths.sum() > calls.height + MOST_EMPTY_NUMBERS:
        code = calls.select(pl.struct("group", "seq").rank("dense")).to_series().to_numpy().astype(np.int64) - 1
        row_of = np.zeros(int(code.max(initial=-1)) + 1, np.int64)
        row_of[code] = np.arange(len(code))
        return CollectiveInstances(group[row_of], seq[row_of], code)
    firsts = np.concatenate([[0], np.cumsum(widths.astype(np.int64))])
    shift = np.zeros(int(groups.max(initial=-1)) + 1, np.int64)
    shift[groups] = firsts[:-1] - lows
    steps = np.repeat(np.arange(len(groups)), np.diff(firsts))
    seqs = np.arange(firsts[-1]) - (firsts[:-1] - lows)[steps]
    return CollectiveInstances(groups[steps], seqs, shift[group] + seq)


def _differ(column: pl.Series, code: Ints, count: int) -> Mask:
    """For each of `count` instances: whether a column has more than one value other than null."""
    if column.null_count():
        code = code[column.is_not_null().to_numpy()]
        column = column.drop_nulls()
    values = column.to_numpy()
    one = np.zeros(count, values.dtype)
    one[code] = values
    out = np.zeros(count, np.bool_)
    out[code[one[code] != values]] = True
    return out
