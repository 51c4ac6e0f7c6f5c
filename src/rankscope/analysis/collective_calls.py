"""Collectives of all ranks, one row for each member and sequence number."""

from __future__ import annotations

import numpy as np
import polars as pl

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
        pl.when(aborted).then(pl.lit("scheduled", dtype=State))
        .when(pl.lit(pl.Series(finished))).then(pl.lit("completed", dtype=State))
        .otherwise("state").alias("state")
    )  # fmt: skip


def _finished(rows: pl.DataFrame, frontiers: pl.DataFrame) -> pl.Series:
    """The rows that are pending in the entries but completed by pg_status."""
    pending = (
        rows.select("rank", "group", "seq", "state", "library").with_row_index("place")
        .filter((pl.col("state") != "completed") & (pl.col("library") != "gloo"))
    )  # fmt: skip
    reached = frontiers.select("rank", "group", "last_completed")
    return pending.join(reached, on=["rank", "group"]).filter(pl.col("seq") <= pl.col("last_completed"))["place"]


def _merge_coalesced(rows: pl.DataFrame) -> pl.DataFrame:
    inner = pl.col("coalesced") != "closer"
    names = pl.col("op").cast(pl.String).filter(inner).unique(maintain_order=True).str.join("+")
    keys = pl.col("key").cast(pl.String).filter(inner).unique(maintain_order=True).str.join("+")
    return rows.group_by("rank", "group", "seq", maintain_order=True).agg(
        pl.col("row").first(),
        pl.when(inner.any()).then(names).otherwise(pl.col("op").cast(pl.String).first())
        .cast(pl.Categorical).alias("op"),
        pl.when(inner.any()).then(keys).cast(pl.Categorical).alias("key"),
        pl.col("rooted").filter(inner).any().alias("rooted"),
        pl.when(inner.any() & pl.col("elements").filter(inner).is_not_null().all())
        .then(pl.col("elements").filter(inner).sum()).alias("elements"),
        pl.col("dtype").filter(inner).first(),
        pl.col("state").last(),
        pl.col("created_ns").first(),
        pl.col("completed_ns").last(),
        pl.col("duration_ns").last(),
        pl.col("library").first(),
    )  # fmt: skip
