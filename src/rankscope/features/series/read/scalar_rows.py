"""Rows of the table of series, from sources that are read one value after the other."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from rankscope.features.series.read.metric_names import Quantity
from rankscope.schema.tables import SCALARS

POINTS = {name: dtype for name, dtype in SCALARS.items() if name not in ("attempt", "segment", "file")}
"""Columns of one source; `assemble.series` adds the others."""
_SERIES = ["attempt", "file", "rank", "raw_name"]
_SEVERAL_PRINTERS = 0.25
"""Share of prints with the step of the one before, from which on several unnamed processes print."""
MOST_POINTS = 50_000_000
"""Most values of one file; the rest of the file is left out."""


class Point(NamedTuple):
    """One value of a series."""

    step: int | None
    quantity: Quantity
    value: float
    resolution: float
    line: int
    time_ns: int | None = None
    step_hi: int | None = None
    rank: int | None = None


def points_frame(points: list[Point], source: str) -> pl.DataFrame:
    """Points as rows of a table."""
    columns = {
        "rank": [point.rank for point in points],
        "step": [point.step for point in points],
        "step_hi": [point.step_hi for point in points],
        "name": [point.quantity.name for point in points],
        "raw_name": [point.quantity.raw_name for point in points],
        "value": [point.value * point.quantity.factor for point in points],
        "resolution": [point.resolution * point.quantity.factor for point in points],
        "time_ns": [point.time_ns for point in points],
        "source": [source] * len(points),
        "line": [point.line for point in points],
    }
    return pl.DataFrame(columns, schema=POINTS)


def with_segments(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with the number of restarts before them: a series whose step goes back was restarted.

    Where several processes print the same steps without their rank, their lines change places: then only a way back
    over more than two prints counts.
    """
    back = pl.col("step").diff().over(_SERIES)
    rows = rows.with_columns(back.alias("back"))
    usual = pl.when(pl.col("back") > 0).then(pl.col("back")).median().over(_SERIES).fill_null(0)
    again = (pl.col("back") == 0).mean().over(_SERIES)
    least = pl.when(again >= _SEVERAL_PRINTERS).then(-2 * usual).otherwise(0.0)
    restarts = pl.col("back").lt(least).fill_null(False).cast(pl.UInt32)
    rows = rows.with_columns(restarts.alias("segment"))
    return rows.with_columns(pl.col("segment").cum_sum().over(_SERIES)).drop("back")
