"""Rings of dumps in a stored table of operations: of more rows than memory holds, the last ones of each dump are read.

The rule is that of a dump that is cut (see `parsers.flight_recorder.ring_cut`): finished operations go, from the oldest
on, and never one that somebody may wait in. Narrow columns of all rows decide, and then only the chosen rows are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from rankscope.assemble.held_sources import ENTRY_BYTES
from rankscope.schema.tables import SOURCES

ROW = "table row"
"""Column with the number of a row in its table."""
NARROW_BYTES = 24
"""Memory of a row while the rows to read are chosen."""
_IS_RING = pl.col("source") == SOURCES[0]
_ABORTED = (pl.col("completed_ns") - pl.col("created_ns") >= pl.col("timeout_ms") * 1_000_000).fill_null(value=False)
_DONE = (pl.col("state") == "completed").fill_null(value=False) | pl.col("retired").fill_null(value=False)


@dataclass(frozen=True)
class TableRings:
    """The rings of a table of operations whose last rows are read."""

    last: int
    """Number of the last rows of each ring."""
    ops: pl.DataFrame
    """These rows, and older ones that are unfinished or of no ring, in the order of the table."""
    files: pl.Series
    """Files whose older rows were left out."""
    pairs: pl.DataFrame
    """Columns `rank` and `group`, of the rows that were left out."""


def cut_rings(scan: pl.LazyFrame, room: int) -> TableRings | None:
    """The last rows of each ring of a table with the columns of `ops` and ROW, as many as `room` bytes allow.

    None if there is no room for even one of each.
    """
    rows = scan.select(ROW, "file", held=~_IS_RING | ~_DONE | _ABORTED).collect(engine="streaming")
    end = pl.when(pl.col("held").any()).then(pl.len() - pl.col("held").cast(pl.UInt8).arg_max()).otherwise(0)
    rings = rows.group_by("file").agg(count=pl.len(), held=end)
    last = _most_rows(rings, room // ENTRY_BYTES)
    if last is None:
        return None
    kept = pl.max_horizontal(pl.min_horizontal(pl.len(), last), end)
    begins = rows.group_by("file").agg(begin=pl.col(ROW).tail(kept).first(), first=pl.col(ROW).first())
    begin = pl.col("file").replace_strict(begins["file"], begins["begin"], return_dtype=pl.UInt32)
    chosen = scan.filter(pl.col(ROW) >= begin).drop(ROW).collect(engine="streaming")
    gone = scan.filter(pl.col(ROW) < begin).select("rank", "group").unique().collect(engine="streaming")
    return TableRings(last, chosen, begins.filter(pl.col("begin") > pl.col("first"))["file"], gone)


def _most_rows(rings: pl.DataFrame, most: int) -> int | None:
    """The highest power of two such that all rings together keep at most as many rows; None without one."""
    longest = max(rings["count"], default=1)
    for exponent in range((longest - 1).bit_length() - 1, -1, -1):
        kept = rings.select(pl.max_horizontal(pl.col("count").clip(upper_bound=1 << exponent), "held").sum()).item()
        if kept <= most:
            return 1 << exponent
    return None


def with_cut_rings(tables: Mapping[str, pl.DataFrame], rings: TableRings) -> dict[str, pl.DataFrame]:
    """The tables with the rows of these rings: their files and frontiers say that older rows are overwritten."""
    cut = pl.col("file").is_in(rings.files.implode()) & (pl.col("filtered") == "none")
    files = tables["files"].with_columns(wrapped=pl.when(cut).then(pl.lit(value=True)).otherwise("wrapped"))
    return {**tables, "ops": rings.ops, "files": files, "frontiers": _frontiers(tables["frontiers"], rings)}


def _frontiers(frontiers: pl.DataFrame, rings: TableRings) -> pl.DataFrame:
    seq = pl.col("seq").filter(~pl.col("is_p2p"))
    kept = rings.ops.filter(_IS_RING).group_by("rank", "group").agg(first=seq.min(), newest=seq.max())
    keys = ["rank", "group"]
    gone = rings.pairs.drop_nulls().with_columns(gone=pl.lit(value=True))
    table = frontiers.join(gone, on=keys, how="left", maintain_order="left")
    table = table.join(kept, on=keys, how="left", maintain_order="left")
    older = (
        pl.when(pl.col("first").is_not_null())
        .then(pl.col("first") > 1)
        .when(pl.col("first_kept").is_not_null())
        .then(pl.lit(value=True))
    )
    known = pl.col("gone") & (pl.col("filtered") == "none") & pl.col("wrapped").is_not_null()
    return table.with_columns(
        first_kept=pl.when("gone").then("first").otherwise("first_kept"),
        last_kept=pl.when("gone").then("newest").otherwise("last_kept"),
        wrapped=pl.when(known).then(older).otherwise("wrapped"),
    ).select(frontiers.columns)
