"""The table `memory`, to which samples of the capture, memory events of traces and lines of logs add rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from rankscope.parsers.matrices import NULL
from rankscope.schema.tables import MEMORY


def memory_rows(columns: Mapping[str, Any], rank: int, host: str | None, place: int, source: str) -> pl.DataFrame:
    """Rows of one process from arrays of equal length by column: numbers with NULL for none, and `device` as text.

    `place` is the row of its file, `source` who measured.
    """
    same = {"rank": rank, "host": host, "file": place, "source": source}
    rows = (
        pl.DataFrame(dict(columns))
        .with_columns(
            pl.when(pl.col(name) == NULL).then(None).otherwise(pl.col(name)).alias(name)
            for name in columns
            if name != "device"
        )
        .with_columns(**{name: pl.lit(value) for name, value in same.items()})
    )
    return rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in MEMORY.items()
    )


def with_memory(before: pl.DataFrame | None, added: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The table with more rows, by rank, device and time; `before` is None for a job without the table so far."""
    known = [] if before is None else [before]
    return pl.concat([*known, *added]).sort("rank", "device", "time_ns", maintain_order=True)
