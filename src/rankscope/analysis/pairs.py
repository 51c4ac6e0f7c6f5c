"""Sends and receives, matched as the k-th between two ranks of a group."""

from __future__ import annotations

import polars as pl

from rankscope.analysis.calls import PENDING
from rankscope.analysis.presence import Presence
from rankscope.analysis.signatures import count
from rankscope.schema import Dataset

LANE = ["group", "src", "dst", "is_send"]


def collect_pairs(dataset: Dataset, presence: Presence) -> pl.DataFrame:
    """One row per send and receive: row, rank, group, src, dst, is_send, k, counted, batch, state, elements, ...

    Where both ranks kept everything, k counts from 0 at the first operation between the two. Where a ring wrapped or
    a dump keeps only active entries, nobody knows how many came before: k is then counted from the first operation
    that is not finished, for both sides have finished the same ones. `counted` tells which. `batch` is the row of the
    first operation launched together with this one.
    """
    # few jobs have any, and names of operations are long to look at
    places = dataset.ops["is_p2p"].fill_null(value=False).arg_true()
    rows = (
        dataset.ops[places].insert_column(0, places.alias("row"))
        .filter(pl.col("op").cast(pl.String).is_in(["send", "recv"]) & pl.col("peer").is_not_null())
        .select(
            "row", "rank", "group", "peer", "p2p_seq", "created_ns", "library",
            pl.col("op").cast(pl.String), pl.col("state").cast(pl.String),
            pl.col("in_sizes").cast(pl.String).alias("sizes"),
        )
        .with_columns(is_send=pl.col("op") == "send")
        .with_columns(
            src=pl.when("is_send").then("rank").otherwise("peer"),
            dst=pl.when("is_send").then("peer").otherwise("rank"),
            batch=pl.col("row").first().over("rank", "group", "p2p_seq"),
        )
    )  # fmt: skip
    return _number(rows, presence)


def _number(rows: pl.DataFrame, presence: Presence) -> pl.DataFrame:
    whole = [rank for rank in presence.seen if presence.whole(rank)]
    counted = pl.col("src").is_in(whole) & pl.col("dst").is_in(whole)
    place = pl.int_range(pl.len()).over(LANE)
    first_open = pl.when(PENDING).then(place).min().over(LANE).fill_null(pl.len().over(LANE))
    sizes = rows.select("sizes").unique()
    sizes = sizes.with_columns(pl.Series("elements", [count(s) for s in sizes["sizes"]], dtype=pl.Int64))
    return rows.with_columns(
        counted=counted, k=pl.when(counted).then(place).otherwise(place.cast(pl.Int64) - first_open.cast(pl.Int64))
    ).join(sizes, on="sizes", how="left", nulls_equal=True, maintain_order="left")
