"""Logs held against the dumps: is the k-th collective of a communicator the k-th of the recorder?

torch launches several collectives for a coalesced one, and none for some others: then the two are counted apart, and
nothing of the log may stand under the recorder's numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from rankscope.assemble.logs import names

LEAST = 0.8
"""So much of what stands in a log and in the dumps of others must be the same for the log to be joined."""


class Agreement(NamedTuple):
    """What came of the comparison."""

    unfit: frozenset[int]
    """Groups whose collectives logs count in another way than the dumps."""
    differing: pl.DataFrame
    """Rows of logs (rank, group, seq, line, file, op, other) of which the rank's own dump says something else."""


def compare(rows: pl.DataFrame, ops: pl.DataFrame) -> Agreement:
    """Compares operation, elements and type of rows of logs with those of the dumps."""
    if rows.is_empty() or ops.is_empty():
        return Agreement(frozenset(), rows.select(_KEY).clear().with_columns(other=pl.lit("")))
    told = wired(rows.filter(~pl.col("is_p2p") & pl.col("seq").is_not_null())).select(*_KEY, "wire")
    known = wired(ops.filter(~pl.col("is_p2p") & (pl.col("coalesced") == "none")))
    own = known.select("rank", "group", "seq", other="wire").unique(["rank", "group", "seq"])
    both = told.join(own, on=["rank", "group", "seq"], how="inner")
    differing = both.filter(pl.col("wire") != pl.col("other"))
    # what most dumps have at a place
    common = known.group_by("group", "seq").agg(other=pl.col("wire").mode().sort().first())
    beside = told.join(common, on=["group", "seq"], how="inner")
    share = beside.group_by("group").agg(same=(pl.col("wire") == pl.col("other")).mean())
    unfit = share.filter(pl.col("same") < LEAST)["group"].to_list()
    return Agreement(frozenset(unfit), differing)


_KEY = ["rank", "group", "seq", "file", "line", "op"]


def wired(rows: pl.DataFrame) -> pl.DataFrame:
    """With `wire`: operation, elements and type as NCCL sees them; elements only where the operation fixes them."""
    parts = ["op", "in_sizes", "in_dtypes"]
    distinct = rows.select(parts).unique()
    texts = distinct.select(pl.all().cast(pl.String))
    keys = [names.wire_key(op, sizes, dtypes) for op, sizes, dtypes in texts.iter_rows()]
    table = distinct.with_columns(wire=pl.Series(keys, dtype=pl.String))
    return rows.join(table, on=parts, how="left", nulls_equal=True, maintain_order="left")
