"""Inputs and outputs of collectives over all members, joined by group and sequence number.

A unit is what has one right result: an all_reduce, one slice of a reduce_scatter, what one member gives to all in an
all_gather, what one gives to another in an all_to_all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from rankscope.analysis.numbers.model import Ints
from rankscope.schema import Dataset

REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")
MOVES = ("all_gather", "broadcast", "scatter", "gather", "all_to_all")
EQUAL_OUTPUTS = ("all_reduce", "broadcast", "all_gather")
"""Operations after which all members hold the same."""
_KEYS = ["group", "call", "op", "nth", "place", "piece"]
WHOLE = -1
"""The piece of an operation that has only one."""
GATHERED = -2
"""The piece of an output that holds what all members gave."""


@dataclass(frozen=True)
class CollectiveUnits:
    """Units with their rows; all arrays are indexed by unit or by member row."""

    rows: pl.DataFrame
    """A row for each recorded tensor, sorted by unit, inputs first, then by member: unit, row (of `tensors`), is_out,
    member, rank, size, step, order, dtype, numel, hash, nan, foreign (another tool wrote it), the columns of the key,
    and `origin`: the unit's number among all."""

    @cached_property
    def table(self) -> pl.DataFrame:
        """A row for each unit: unit, group, seq, op, reduce_op, size (members of the group), inputs, outputs, whether
        it is `whole` (every member's input is there) and `alike` (one dtype and one number of elements), its dtype,
        numel and step; and whether another tool wrote it (`foreign`), with rounded statistics."""
        is_in = ~pl.col("is_out")
        return self.rows.group_by("unit", maintain_order=True).agg(
            pl.col("group", "seq", "op", "reduce_op", "size", "dtype", "numel", "step").first(),
            inputs=is_in.sum().cast(pl.Int64), outputs=pl.col("is_out").sum().cast(pl.Int64),
            members=pl.col("member").filter(is_in).n_unique().cast(pl.Int64),
            foreign=pl.col("foreign").any(), guessed=(pl.col("foreign") & pl.col("guessed")).any(),
            alike=(pl.col("numel").n_unique() == 1) & (pl.col("dtype").n_unique() == 1),
        ).with_columns(whole=(pl.col("inputs") == pl.col("size")) & (pl.col("members") == pl.col("size"))
                        & ~pl.col("guessed"))  # fmt: skip

    @cached_property
    def starts(self) -> Ints:
        """The first of `rows` of each unit, and the number of rows at the end."""
        unit = self.rows["unit"].to_numpy()
        return np.append(np.flatnonzero(np.diff(unit, prepend=-1)), len(unit)).astype(np.int64)

    def chosen(self, keep: pl.Series) -> CollectiveUnits:
        """The units with True in `keep`, in the order of the table, numbered anew."""
        wanted = self.table.filter(keep).select("unit").with_row_index("new")
        rows = self.rows.join(wanted, on="unit", how="inner", maintain_order="left")
        return CollectiveUnits(rows.drop("unit").rename({"new": "unit"}))


def collective_units(dataset: Dataset) -> CollectiveUnits:
    """The units of all recorded collectives of known groups."""
    tensors = dataset.tensors
    chosen = pl.col("op").cast(pl.String).is_in([*REDUCTIONS, *MOVES])
    rows = (
        tensors.with_row_index("row").filter((pl.col("site") == "collective") & pl.col("group").is_not_null() & chosen)
        .select("row", "rank", "step", "order", "group", "seq", "occurrence", pl.col("op").cast(pl.String),
                pl.col("reduce_op").cast(pl.String), "root", pl.col("dtype").cast(pl.String), "numel",
                pl.col("slot").cast(pl.String), "slice", "hash", "nan", foreign=pl.col("tool").is_not_null())
        .join(_members(dataset), on=["group", "rank"], how="inner", maintain_order="left")
        .with_columns(
            is_out=pl.col("slot").str.starts_with("out"),
            place=pl.col("slot").str.strip_prefix("out").str.strip_prefix("in"),
            # calls without a number: the k-th of its kind in the step
            call=pl.coalesce("seq", -1 - (pl.col("step").fill_null(0) * (1 << 20)) - pl.col("occurrence").fill_null(0)),
        )
    )  # fmt: skip
    rows = rows.filter(_is_meant()).with_columns(piece=_piece())
    # several calls of a coalesced group share one number
    rows = rows.with_columns(nth=pl.int_range(pl.len()).over(["rank", "is_out", *_KEYS[:3], "place", "piece"]))
    rows = rows.sort([*_KEYS, "is_out", "member"])
    number = pl.struct(_KEYS).rle_id().cast(pl.Int64)
    return CollectiveUnits(rows.with_columns(unit=number, origin=number))


def group_kinds(dataset: Dataset) -> pl.DataFrame:
    """The kind of each group: its description without numbers and its size, which groups of the same use share."""
    called = pl.coalesce(pl.col("description").replace("", None), "name").str.replace_all(r"\d+", "")
    return dataset.groups.select("group", kind=pl.concat_str(called, pl.col("ranks").list.len()))


def _members(dataset: Dataset) -> pl.DataFrame:
    """The place of each rank in each group, the number of members, and whether they are `guessed`."""
    return (
        dataset.groups.select("group", rank="ranks", size=pl.col("ranks").list.len().cast(pl.Int64),
                              guessed=pl.col("membership") == "inferred")
        .explode("rank").with_columns(member=pl.int_range(pl.len()).over("group"))
        .drop_nulls("rank")
    )  # fmt: skip


def _is_meant() -> pl.Expr:
    """Whether the operation reads the row, or writes it: only the root's input of a broadcast is read."""
    op, out, is_root = pl.col("op"), pl.col("is_out"), pl.col("rank") == pl.col("root")
    only_root_reads = op.is_in(["broadcast", "scatter"]) & ~out
    only_root_gets = op.is_in(["reduce", "gather"]) & out
    return pl.when(only_root_reads | only_root_gets).then(is_root.fill_null(value=True)).otherwise(pl.lit(value=True))


def _piece() -> pl.Expr:
    """The piece of its operation that the row is: member of origin, of destination, or both."""
    op, out, member, part = pl.col("op"), pl.col("is_out"), pl.col("member"), pl.col("slice").cast(pl.Int64)
    pair = pl.when(out).then(part * pl.col("size") + member).otherwise(member * pl.col("size") + part)
    whole = pl.lit(GATHERED)
    return (
        pl.when(op.is_in(["all_gather", "gather"])).then(pl.when(out).then(part.fill_null(GATHERED)).otherwise(member))
        .when(op.is_in(["reduce_scatter", "scatter"]))
        .then(pl.when(out).then(member).otherwise(part.fill_null(GATHERED)))
        .when(op == "all_to_all").then(pair.fill_null(whole))
        .otherwise(pl.lit(WHOLE))
    )  # fmt: skip
