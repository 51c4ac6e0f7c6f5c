"""Collectives of all ranks, one row for each member and sequence number, and where members disagree."""

from __future__ import annotations

import polars as pl

from rankscope.analysis.signatures import wire_name, with_signatures
from rankscope.schema import Dataset

PENDING = pl.col("state").is_in(["scheduled", "started"])
"""Issued and, as far as is known, not finished."""


def collect_calls(dataset: Dataset) -> pl.DataFrame:
    """One row per (rank, group, seq): `row` in ops, op, key, elements, dtype, state, times. Program order is kept.

    `key` is what must agree of the operation; null where only the closer of a coalesced group is known.

    The operations of a coalesced group, with or without their closer, become one call, with the sum of what they
    carry. A completion that came
    only after the timeout was made by an abort (pytorch PR 119249) and counts as pending.
    """
    rows = dataset.ops.with_row_index("row").filter(~pl.col("is_p2p") & pl.col("seq").is_not_null())
    rows = with_signatures(_abort_is_pending(_status_is_right(rows, dataset.frontiers))).select(
        "row", "rank", "group", "seq", pl.col("op").cast(pl.String),
        wire_name(pl.col("op").cast(pl.String)).alias("key"),
        "elements", "dtype",
        pl.col("state").cast(pl.String), pl.col("coalesced").cast(pl.String), "created_ns", "completed_ns", "library",
    )  # fmt: skip
    many = (pl.col("coalesced") != "none") | (pl.len().over("rank", "group", "seq") > 1)
    rows = rows.with_columns(many=many)
    alone = rows.filter(~pl.col("many")).drop("coalesced", "many")
    joined = rows.filter("many")
    if joined.is_empty():
        return alone
    return pl.concat([alone, _merge_coalesced(joined).select(alone.columns)]).sort("row")


def _status_is_right(rows: pl.DataFrame, frontiers: pl.DataFrame) -> pl.DataFrame:
    """What pg_status says is completed is so, whatever an entry says: inner operations keep their first state."""
    reached = frontiers.select("rank", "group", "last_completed")
    done = (pl.col("seq") <= pl.col("last_completed")).fill_null(False) & (pl.col("library") != "gloo")
    return rows.join(reached, on=["rank", "group"], how="left", maintain_order="left").with_columns(
        pl.when(done).then(pl.lit("completed")).otherwise(pl.col("state").cast(pl.String)).alias("state")
    )


def _abort_is_pending(rows: pl.DataFrame) -> pl.DataFrame:
    took = pl.col("completed_ns") - pl.col("created_ns")
    aborted = (pl.col("state") == "completed") & (took >= pl.col("timeout_ms") * 1_000_000)
    return rows.with_columns(
        pl.when(aborted.fill_null(False))
        .then(pl.lit("scheduled"))
        .otherwise(pl.col("state").cast(pl.String))
        .alias("state")
    )


def _merge_coalesced(rows: pl.DataFrame) -> pl.DataFrame:
    inner = pl.col("coalesced") != "closer"
    names = pl.col("op").filter(inner).unique(maintain_order=True).str.join("+")
    keys = pl.col("key").filter(inner).unique(maintain_order=True).str.join("+")
    return rows.group_by("rank", "group", "seq", maintain_order=True).agg(
        pl.col("row").first(),
        pl.when(inner.any()).then(names).otherwise(pl.col("op").first()).alias("op"),
        pl.when(inner.any()).then(keys).alias("key"),
        pl.when(pl.col("elements").filter(inner).is_not_null().any()).then(pl.col("elements").filter(inner).sum())
        .alias("elements"),
        pl.col("dtype").filter(inner).first(),
        pl.col("state").last(),
        pl.col("created_ns").first(),
        pl.col("completed_ns").last(),
        pl.col("library").first(),
    )  # fmt: skip


def disagreements(calls: pl.DataFrame) -> pl.DataFrame:
    """Instances (group, seq) whose members issued different things, sorted by group and seq.

    Columns `ops`, `sizes`, `dtypes` count the different values. An instance in the past of a group that went on
    together afterwards (every member agreed on and finished a later one) is `settled`.
    """
    counted = calls.group_by("group", "seq").agg(
        pl.col("key").drop_nulls().n_unique().alias("ops"),
        pl.col("elements").drop_nulls().n_unique().alias("sizes"),
        pl.col("dtype").drop_nulls().n_unique().alias("dtypes"),
        pl.len().alias("members"),
        (pl.col("state") == "completed").all().alias("finished"),
    )
    differs = (pl.col("ops") > 1) | (pl.col("sizes") > 1) | (pl.col("dtypes") > 1)
    together = (
        counted.filter(~differs & pl.col("finished") & (pl.col("members") > 1))
        .group_by("group").agg(pl.col("seq").max().alias("together"))
    )  # fmt: skip
    return (
        counted.filter(differs).join(together, on="group", how="left")
        .with_columns((pl.col("seq") < pl.col("together").fill_null(-1)).alias("settled"))
        .sort("group", "seq")
    )  # fmt: skip
