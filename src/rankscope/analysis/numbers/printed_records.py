"""Rows of other tools: their own hashes in place of the linear one, and statistics that are printed and rounded.

Hashes that are made of bits (CRC-32, MD5, XOR of words) prove by being different that the bits are. They are compared
only with hashes of their own kind, and never added up.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import polars as pl

from rankscope.analysis.numbers.collective_units import EQUAL_OUTPUTS, CollectiveUnits
from rankscope.analysis.numbers.model import BrokenRule
from rankscope.schema import Dataset

BIT_HASHES = ("crc32", "md5", "xor")
"""Kinds of hashes that are made of all bits of a tensor."""
PRINTED = ("min", "max", "sum", "l2")
SAME_NORM = 1e-6
"""Relative difference of two norms up to which they may be of the same tensor, summed in another order."""


def has_records(dataset: Dataset) -> bool:
    """Whether another tool wrote rows."""
    return dataset.tensors["tool"].null_count() < dataset.tensors.height


def hash_kind(dataset: Dataset) -> str | None:
    """The most frequent kind of hash of bits that another tool wrote; None without one."""
    if not has_records(dataset):
        return None
    kinds = dataset.tensors.select(kind=pl.col("md5").str.split(":").list.first()).drop_nulls()
    found = kinds.filter(pl.col("kind").is_in(BIT_HASHES)).group_by("kind").len().sort("len", "kind", descending=True)
    return None if found.is_empty() else str(found["kind"][0])


def with_marks(dataset: Dataset, kind: str | None) -> Dataset:
    """The dataset with the hashes of this kind in place of linear ones that other tools lack, but of no tensor with
    values that are not finite: a NaN has many forms."""
    if kind is None:
        return dataset
    own = pl.col("md5").str.starts_with(f"{kind}:") & pl.col("sum").is_finite().fill_null(value=True)
    mark = pl.when(own).then(pl.col("md5").hash())
    return replace(dataset, tensors=dataset.tensors.with_columns(hash=pl.coalesce("hash", mark)))


def check_printed(dataset: Dataset, units: CollectiveUnits) -> tuple[int, list[BrokenRule]]:
    """E1p: how many operations have outputs of several members without a hash, and those whose smallest or largest
    element, or norm, is not printed alike."""
    outs = units.rows.filter(
        pl.col("foreign") & pl.col("is_out") & pl.col("op").is_in(EQUAL_OUTPUTS) & (pl.col("numel") > 0)
    )
    if outs.is_empty():
        return 0, []
    told = dataset.tensors.select(PRINTED)[outs["row"].to_numpy()]
    outs = pl.concat([outs, told], how="horizontal")
    finite = pl.all_horizontal(pl.col(name).is_finite() for name in ("min", "max", "l2"))
    facts = outs.group_by("unit").agg(
        told=finite.fill_null(value=False).all() & pl.col("hash").is_null().all() & (pl.len() > 1),
        alike=(pl.col("numel").n_unique() == 1) & (pl.col("dtype").n_unique() == 1),
        different=(pl.col("min").n_unique() > 1) | (pl.col("max").n_unique() > 1)
        | (pl.col("l2").max() - pl.col("l2").min() > SAME_NORM * pl.col("l2").max()),
    ).filter(pl.col("told") & pl.col("alike"))  # fmt: skip
    wrong = outs.join(facts.filter("different"), on="unit", how="semi", maintain_order="left")
    return facts.height, [_odd_members(rows) for rows in wrong.partition_by("unit", maintain_order=True)]


def _odd_members(outs: pl.DataFrame) -> BrokenRule:
    """The members that print something else than most; all are candidates where nothing has a majority."""
    printed = [tuple(f"{value:.5g}" for value in row) for row in outs.select("min", "max", "l2").iter_rows()]
    (usual, most), *others = Counter(printed).most_common()
    ranks, rows = outs["rank"].to_list(), outs["row"].to_list()
    wrong = [i for i, own in enumerate(printed) if own != usual] if most > sum(n for _, n in others) else []
    members = tuple(sorted(set(ranks)))
    shown = wrong[0] if wrong else 0
    return BrokenRule(
        "E1p", rows[shown], tuple(sorted({ranks[i] for i in wrong})), () if wrong else members, members,
        rows=tuple(row for i, row in enumerate(rows) if i not in wrong and i != shown)[:2],
        note="the tool wrote no hash, so bits cannot be compared",
    )  # fmt: skip


def is_printed_equal() -> pl.Expr:
    """Whether all that was printed of a tensor in two runs is equal, by columns of one and, with "_other", of the
    other. Hashes of different kinds, or of one run only, say nothing."""
    kinds = (pl.col(name).str.split(":").list.first() for name in ("md5", "md5_other"))
    apart = (next(kinds) == next(kinds)) & (pl.col("md5") != pl.col("md5_other"))
    same = (pl.col(name).eq_missing(pl.col(f"{name}_other")) for name in (*PRINTED, "dtype"))
    return pl.all_horizontal(same) & ~apart.fill_null(value=False)


def printed_distance() -> pl.Expr:
    """The largest relative difference of two printed statistics; of extremes relative to the larger magnitude, of L1
    norms where only those are printed. Infinite where only one is finite."""
    size = pl.max_horizontal(pl.col("min_other").abs(), pl.col("max_other").abs())
    parts = [
        (pl.col("l2") - pl.col("l2_other")).abs() / pl.col("l2_other").abs(),
        *((pl.col(name) - pl.col(f"{name}_other")).abs() / size for name in ("min", "max")),
        (_norm("md5") - _norm("md5_other")).abs() / _norm("md5_other").abs(),
    ]
    known = [pl.when(one.is_nan()).then(None).otherwise(one) for one in parts]
    apart = pl.col("sum").is_finite().fill_null(value=True) != pl.col("sum_other").is_finite().fill_null(value=True)
    return pl.when(apart).then(float("inf")).otherwise(pl.max_horizontal(known).fill_null(0.0))


def _norm(column: str) -> pl.Expr:
    """The L1 norm of a mark "l1:13.9"."""
    told = pl.when(pl.col(column).str.starts_with("l1:")).then(pl.col(column).str.strip_prefix("l1:"))
    return told.cast(pl.Float64, strict=False)


def tells_something() -> pl.Expr:
    """Whether a row of another tool has anything that can be compared."""
    return pl.any_horizontal(pl.col(name).is_not_null() for name in (*PRINTED, "hash", "md5"))
