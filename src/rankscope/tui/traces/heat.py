"""The heat map as a grid of digits: ranks by steps, 0 the least and 9 the most. No widget, no terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MISSING = -1
"""The digit of a step that a rank's trace does not hold."""
NOISE = 0.05
"""Share of a step that the scale spans at least: less is noise, and must not look like heat."""
STEP_TIME = "step time"


class Metric(NamedTuple):
    """What can be shown of a step."""

    name: str
    column: pl.Expr
    """In nanoseconds."""


METRICS: tuple[Metric, ...] = (
    Metric("late", pl.col("late_ns")),
    Metric(STEP_TIME, pl.col("end_ns") - pl.col("start_ns")),
    Metric("compute", pl.col("compute_ns")),
    Metric("exposed communication", pl.col("exposed_ns")),
    Metric("waiting in collectives", pl.col("waited_ns")),
    Metric("idle", pl.col("idle_ns")),
    Metric("host gap", pl.col("host_gap_ns")),
)
"""What the heat map shows, in the order in which keys walk through it."""


@dataclass(frozen=True)
class Heat:
    """A metric of all ranks and steps."""

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    values: Floats
    """Nanoseconds, ranks x steps; NaN where a trace does not hold the step."""
    starts: Ints
    """When each rank begins each step; -1 where it does not."""
    low: float
    high: float
    """What digits 0 and 9 stand for."""

    @property
    def digits(self) -> NDArray[np.int8]:
        """Each cell from 0 to 9, MISSING where nothing is known."""
        size = self.high - self.low
        share = (self.values - self.low) / size if size > 0 else np.zeros_like(self.values)
        known = ~np.isnan(self.values)
        tenths = np.floor(np.clip(np.where(known, share, 0), 0, 1) * 9.999)
        return np.where(known, tenths, MISSING).astype(np.int8)


def build_heat(steps: pl.DataFrame, metric: Metric) -> Heat:
    """The grid of a metric over `TraceAnalysis.steps`; a step that is there twice counts with its worst."""
    table = steps.select("rank", "step", "start_ns", metric.column.cast(pl.Float64).alias("value"))
    table = table.group_by("rank", "step").agg(pl.col("value").max(), pl.col("start_ns").min())
    ranks = sorted(table["rank"].drop_nulls().unique().to_list())
    numbers = sorted(table["step"].drop_nulls().unique().to_list())
    table = table.drop_nulls(["rank", "step"])
    row = np.searchsorted(ranks, table["rank"].to_numpy()) if ranks else np.zeros(0, np.int64)
    column = np.searchsorted(numbers, table["step"].to_numpy()) if numbers else np.zeros(0, np.int64)
    values = np.full((len(ranks), len(numbers)), np.nan)
    starts = np.full(values.shape, -1, np.int64)
    values[row, column] = table["value"].fill_null(float("nan")).to_numpy()
    starts[row, column] = table["start_ns"].fill_null(-1).to_numpy()
    known = values[~np.isnan(values)]
    low = _least(known) if metric.name == STEP_TIME else min(_least(known), 0.0)
    high = max(float(known.max()), low + NOISE * _median_step(steps)) if len(known) else low
    return Heat(tuple(ranks), tuple(numbers), values, starts, low, high)


def _least(known: Floats) -> float:
    return float(known.min()) if len(known) else 0.0


def _median_step(steps: pl.DataFrame) -> float:
    length = (steps["end_ns"] - steps["start_ns"]).median()
    return float(length) if isinstance(length, (int, float)) else 0.0


class HeatRow(NamedTuple):
    """A row of the grid: ranks with equal digits that follow each other."""

    ranks: tuple[int, ...]
    at: int
    """The row of `Heat.values` that stands for them."""


def fold_rows(heat: Heat, apart: frozenset[int]) -> list[HeatRow]:
    """The rows of the grid; ranks in `apart` share none."""
    digits = heat.digits
    out: list[HeatRow] = []
    for at, rank in enumerate(heat.ranks):
        before = out[-1] if out else None
        alone = before is None or rank in apart or before.ranks[-1] in apart
        if before is not None and not alone and bool((digits[before.at] == digits[at]).all()):
            out[-1] = before._replace(ranks=(*before.ranks, rank))
        else:
            out.append(HeatRow((rank,), at))
    return out
