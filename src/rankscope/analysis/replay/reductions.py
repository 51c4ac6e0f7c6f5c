"""The distinct reductions of a job: operations that add up, so that the order of summation shows in their bits."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
import polars as pl

from rankscope.analysis.signatures import with_signatures
from rankscope.schema import Dataset

KINDS = ("all_reduce", "reduce_scatter", "reduce")
"""Operations that add up, as they must agree between members."""
FLOATS = ("Float", "Double", "Half", "BFloat16")
"""Types that round; sums of integers have the same bits in every order."""
MOST = 12
"""Reductions that are repeated: those that move most."""
_WIDTHS = {"Float": 4, "Double": 8, "Half": 2, "BFloat16": 2}


@dataclass(frozen=True)
class Reduction:
    """A reduction with its size and type, of groups of one number of members."""

    op: str
    dtype: str
    elements: int
    """Elements of the input of one member."""
    group: int
    """The row in `Dataset.groups` of one of the groups that ran it."""
    members: tuple[int, ...]
    calls: int
    """Recorded calls, over all groups of that number of members."""

    @property
    def size(self) -> int:
        """Bytes of the input of one member."""
        return self.elements * _WIDTHS[self.dtype]


@dataclass(frozen=True)
class Reductions:
    """The reductions that are repeated, and the number of those that are not."""

    chosen: tuple[Reduction, ...]
    library: str
    """The library that ran most of them."""
    fewer: int
    """Distinct reductions beyond MOST."""
    exact: int
    """Distinct reductions of integers and other types: they add up exactly, or their type is unknown here."""


def reductions_of(dataset: Dataset) -> Reductions:
    """The distinct reductions in dumps, or without dumps in profiles; ValueError if there are none."""
    rows = dataset.ops.filter(pl.col("source") == "flight-recorder")
    rows = _calls(dataset, rows if rows.height else dataset.traced)
    if rows.is_empty():
        raise ValueError("no dump or profile holds a reduction of a known group with its size: there is none to repeat")
    names = pl.Series("kind", [_kind(text) for text in rows["dtype"].to_list()], dtype=pl.String)
    rows = rows.with_columns(names)
    floats = rows.filter(pl.col("kind").is_in(FLOATS))
    if floats.is_empty():
        raise ValueError("all reductions are of integers: they have the same bits in every order")
    members = {group.id: group.ranks for group in dataset.group_list}
    found = [
        Reduction(op, kind, elements, group, members[group], calls)
        for op, kind, elements, group, calls in floats.select("op", "kind", "elements", "group", "calls").iter_rows()
    ]
    found.sort(key=lambda one: (-one.size * one.calls, -one.size, one.op))
    library = floats.group_by("library").agg(pl.col("calls").sum()).sort("calls", "library")["library"][-1]
    return Reductions(tuple(found[:MOST]), library, len(found[MOST:]), rows.height - floats.height)


def _calls(dataset: Dataset, ops: pl.DataFrame) -> pl.DataFrame:
    """A row for each distinct reduction: op, elements, dtype, library, its first group, and the number of calls."""
    counts = {group.id: len(group.ranks) for group in dataset.group_list if len(group.ranks) > 1}
    rows = with_signatures(ops.filter(~pl.col("is_p2p"))).select(
        "rank", "group", "elements", pl.col("key").cast(pl.String).alias("op"), pl.col("dtype").cast(pl.String),
        pl.col("library").cast(pl.String).fill_null(""),
        count=pl.col("group").replace_strict(counts, default=0, return_dtype=pl.Int64),
    ).filter(pl.col("op").is_in(KINDS) & (pl.col("elements") > 0) & (pl.col("count") > 1))  # fmt: skip
    same = ["op", "elements", "dtype", "count"]
    by_rank = rows.group_by(*same, "group", "rank").agg(pl.len(), pl.col("library").first())
    by_group = by_rank.group_by(*same, "group").agg(pl.col("len").max(), pl.col("library").first()).sort("group")
    return by_group.group_by(same, maintain_order=True).agg(
        pl.col("group").first(), pl.col("library").first(), calls=pl.col("len").sum()
    )


def _kind(dtype: str | None) -> str:
    """The type of a JSON list of one type; "" for none, or several."""
    names = orjson.loads(dtype) if dtype else []
    return str(names[0]) if isinstance(names, list) and len(names) == 1 else ""
