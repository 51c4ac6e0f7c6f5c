"""Costs of the collectives that traces hold, from matched operations on one clock."""

from __future__ import annotations

import polars as pl

from rankscope.features.traces.rules.collective_costs import (
    ALL_TO_ALL,
    CollectiveCosts,
    load_table,
    pair_table,
    rank_table,
    size_table,
)
from rankscope.features.traces.rules.lateness import MATCH_COLUMNS
from rankscope.schema import Dataset


def traced_costs(
    dataset: Dataset, matches: pl.DataFrame, joined: pl.DataFrame, sizes: pl.DataFrame, instances: pl.DataFrame
) -> CollectiveCosts:
    """The costs of `matches`, of which all members had to join `joined`; `sizes` are those of `Dataset.traced`."""
    calls = dataset.traced.with_row_index("row").select("row", "in_splits", "out_splits")
    exchanges = matches.filter(pl.col("key").cast(pl.String) == ALL_TO_ALL).join(sizes, on="row").join(calls, on="row")
    took = pl.col("ended_ns") - pl.col("arrived_ns")
    last = pl.col("arrived_ns") == pl.col("arrived_ns").max().over(MATCH_COLUMNS)
    alone = last.sum().over(MATCH_COLUMNS) == 1
    return CollectiveCosts(
        sizes=size_table(pl.concat([instances, _others(dataset, matches, sizes)], how="diagonal_relaxed")),
        ranks=rank_table(joined.with_columns(took_ns=took, is_last=last & alone)),
        pairs=pair_table(exchanges, dataset.group_list),
        loads=load_table(
            exchanges.filter(pl.col("row").is_in(joined["row"].implode())).with_columns(
                meeting=pl.struct(MATCH_COLUMNS).rank("dense")
            )
        ),
    )


def instance_table(dataset: Dataset, joined: pl.DataFrame, sizes: pl.DataFrame) -> pl.DataFrame:
    """One row per match of `joined`: MATCH_COLUMNS, group, op, key, members, seen, bytes, dtype, took_ns, skew_ns,
    waited_ns."""
    came = pl.col("arrived_ns")
    return _instances(
        dataset, joined, sizes, (pl.col("ended_ns") - came).min(), came.max() - came.min(), pl.col("waited_ns").sum()
    )


def _others(dataset: Dataset, matches: pl.DataFrame, sizes: pl.DataFrame) -> pl.DataFrame:
    """The same for sends with their receives, which take from the arrival of both to the end of the receive, and for
    operations that one member may finish before another has come: of those the time is not known."""
    sends = pl.col("op").cast(pl.String) == "send"
    rows = matches.filter(~pl.col("blocking")).sort(~sends, maintain_order=True)
    came = pl.col("arrived_ns")
    is_pair = pl.col("is_p2p").first() & (pl.len() == 2)
    took = pl.when(is_pair).then((pl.col("ended_ns").max() - came.max()).clip(0))
    unknown = pl.lit(None, dtype=pl.Int64)
    return _instances(dataset, rows.drop("members", strict=False).with_columns(
        members=pl.when("is_p2p").then(2).cast(pl.UInt32)), sizes, took, came.max() - came.min(), unknown)  # fmt: skip


def _instances(
    dataset: Dataset, rows: pl.DataFrame, sizes: pl.DataFrame, took: pl.Expr, skew: pl.Expr, waited: pl.Expr
) -> pl.DataFrame:
    groups = dataset.group_list
    known = pl.DataFrame(
        {"group": [g.id for g in groups], "size": [len(g.ranks) for g in groups]},
        {"group": pl.UInt32, "size": pl.UInt32},
    )
    table = rows.join(sizes, on="row", how="left").group_by(MATCH_COLUMNS, maintain_order=True).agg(
        pl.col("group", "op", "key", "dtype").first(), pl.col("members").max(), seen=pl.len(),
        bytes=pl.col("bytes").max(), took_ns=took, skew_ns=skew, waited_ns=waited, ended_ns=pl.col("ended_ns").max(),
    )  # fmt: skip
    size = pl.max_horizontal("seen", pl.coalesce("members", "size"))
    return table.join(known, on="group", how="left", maintain_order="left").with_columns(members=size).drop("size")
