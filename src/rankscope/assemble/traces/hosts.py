"""The hosts of ranks whose traces do not say it, from what else the ranks left: traces name it from 2026 on."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl


def with_hosts(traces: pl.DataFrame, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """`traces` with the host of each rank of which the other tables tell one, and no other."""
    told = [
        tables[name].select("rank", "host").unique().cast({"host": pl.String}) for name in ("ops", "comms", "threads")
        if name in tables and "host" in tables[name].columns
    ]  # fmt: skip
    if not told:
        return traces
    known = pl.concat(told).drop_nulls().filter(pl.col("host") != "").unique()
    sole = known.filter(pl.len().over("rank") == 1).rename({"host": "told"})
    joined = traces.join(sole, on="rank", how="left", maintain_order="left")
    return joined.with_columns(
        host=pl.when(pl.col("host") == "").then(pl.col("told").fill_null("")).otherwise("host")
    ).drop("told")
