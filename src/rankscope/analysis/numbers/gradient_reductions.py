"""Reductions between a gradient as it was accumulated and as the optimizer finds it, on one rank.

A reduction has no name of a parameter. It is known by what it gave: its output is the gradient up to a factor.
Statistics are compared and not hashes, which are those of a place in the whole for shards, and of the local tensor for
reductions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl

from rankscope.schema import Dataset

SAME_TOTALS = 1e-3
"""Relative difference of totals up to which one tensor is a multiple of the other."""
_FACTS = ["sum", "l2", "min", "max"]
_CALL = ["op", "group", "seq"]


class GradientRows(NamedTuple):
    """The rows of `tensors` of one gradient of a rank in a step."""

    accumulated: dict[str, Any]
    reduced: dict[str, Any]


def moved_tensors(ours: Dataset, rank: int, step: int | None, begin: int, end: int) -> pl.DataFrame:
    """Tensors of collectives, sends and receives of a rank, between two places in its program."""
    order, site = pl.col("order"), pl.col("site").cast(pl.String)
    mine = (pl.col("rank") == rank) & pl.col("step").eq_missing(step)
    rows = ours.tensors.drop("samples").filter(mine, (order > begin) & (order < end), site.is_in(["collective", "p2p"]))
    return rows.with_columns(is_in=pl.col("slot").cast(pl.String).str.starts_with("in")).sort("order")


def giving(rows: pl.DataFrame, reduced: dict[str, Any]) -> pl.DataFrame:
    """The outputs among moved tensors that are the reduced gradient, up to a factor."""
    if not reduced["sum"] or not reduced["l2"]:
        return rows.clear()
    factor = pl.col("l2") / reduced["l2"]
    off = (pl.col("sum") / reduced["sum"] / factor - 1).abs()
    return rows.filter(~pl.col("is_in") & (pl.col("numel") == reduced["numel"]) & (off < SAME_TOTALS))


def brought_its_own(ours: Dataset, gradient: GradientRows) -> bool | None:
    """Whether a rank brought to the last reduction of a gradient the accumulated one, or the output of an earlier one.

    None where that reduction is not known.
    """
    first, last = gradient
    rows = moved_tensors(ours, last["rank"], last["step"], first["order"], last["order"])
    rows = rows.filter(pl.col("numel") == last["numel"])
    gave = giving(rows, last).tail(1)
    brought = rows.filter("is_in").join(gave.select(_CALL), on=_CALL, how="semi", nulls_equal=True)
    if brought.is_empty():
        return None
    earlier = rows.filter(~pl.col("is_in") & (pl.col("order") < gave["order"][0]))
    known = {tuple(first[name] for name in _FACTS), *earlier.select(_FACTS).rows()}
    return all(facts in known for facts in brought.select(_FACTS).rows())
