"""Bandwidth of collectives, computed as nccl-tests does.

algbw is size / time. busbw is algbw times a factor that makes it comparable over operations and numbers of ranks:
2(n-1)/n for all_reduce, (n-1)/n for all_gather, reduce_scatter and all_to_all, 1 for the others. The size is the larger
of a rank's input and output (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). The time is that of
the last member to come, from its start to its end on its own clock, because it waits for nobody.
"""

from __future__ import annotations

import orjson
import polars as pl

from rankscope.analysis.signatures import element_count
from rankscope.analysis.traces.lateness import MATCH_COLUMNS
from rankscope.analysis.traces.model import BANDWIDTH

WIDTHS = {
    "double": 8, "long": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2, "short": 2, "char": 1, "byte": 1, "bool": 1,
}  # fmt: skip
"""Bytes of an element; 1 for 8-bit floats, whose names vary."""
_SHARES = ("all_gather", "reduce_scatter", "all_to_all")
"""Operations in which each rank keeps its own part of n."""


def with_speed(rows: pl.DataFrame, sizes: pl.DataFrame) -> pl.DataFrame:
    """One row per match: MATCH_COLUMNS, group, op, key, `members`, `bytes`, `took_ns` and `busbw` in GB/s.

    `rows` of matches with `row` of `Dataset.traced`, `sizes` from `sizes_of`; matches of unknown size are left out.
    """
    table = rows.join(sizes, on="row", how="left").group_by(MATCH_COLUMNS, maintain_order=True).agg(
        pl.col("group", "op", "key").first(), members=pl.len(), bytes=pl.col("bytes").max(),
        took_ns=(pl.col("ended_ns") - pl.col("arrived_ns")).min(), ended_ns=pl.col("ended_ns").max(),
    )  # fmt: skip
    n, key = pl.col("members"), pl.col("key").cast(pl.String)
    factor = (
        pl.when(key == "all_reduce").then(2 * (n - 1) / n).when(key.is_in(_SHARES)).then((n - 1) / n).otherwise(1.0)
    )
    return table.filter((pl.col("bytes") > 0) & (pl.col("took_ns") > 0)).with_columns(
        algbw=pl.col("bytes") / pl.col("took_ns"), busbw=pl.col("bytes") / pl.col("took_ns") * factor
    )


def bandwidth_table(speeds: pl.DataFrame) -> pl.DataFrame:
    """One row per group, operation and size, with columns BANDWIDTH."""
    table = speeds.group_by("group", "op", "bytes").agg(
        count=pl.len(), median_ns=pl.col("took_ns").median().cast(pl.Int64), algbw=pl.col("algbw").median(),
        low=pl.col("busbw").quantile(0.1), high=pl.col("busbw").quantile(0.9), busbw=pl.col("busbw").median(),
    )  # fmt: skip
    return table.select([pl.col(n).cast(k) for n, k in BANDWIDTH.items()]).sort(
        pl.col("group"), pl.col("op").cast(pl.String), pl.col("bytes")
    )


def sizes_of(traced: pl.DataFrame) -> pl.DataFrame:
    """row, bytes: the larger of input and output; null if sizes or the type are unknown."""
    names = ["in_sizes", "out_sizes", "in_dtypes"]
    texts = traced.with_row_index("row").select("row", pl.col(names).cast(pl.String))
    distinct = texts.select(names).unique()
    told = [_bytes(*row) for row in distinct.iter_rows()]
    distinct = distinct.with_columns(bytes=pl.Series(told, dtype=pl.Int64))
    return texts.join(distinct, on=names, how="left", nulls_equal=True).select("row", "bytes")


def _bytes(in_sizes: str | None, out_sizes: str | None, dtypes: str | None) -> int | None:
    elements = max(element_count(in_sizes) or 0, element_count(out_sizes) or 0)
    width = _width(dtypes)
    return elements * width if elements and width else None


def _width(dtypes: str | None) -> int | None:
    try:
        names = orjson.loads(dtypes or "[]")
    except orjson.JSONDecodeError:
        return None
    name = str(names[0]).lower() if isinstance(names, list) and names else ""
    return 1 if name.startswith("float8") else WIDTHS.get(name)
