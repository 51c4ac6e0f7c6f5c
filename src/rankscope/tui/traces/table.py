"""The breakdown as a table: where the time of each rank went, over all its steps. No widget, no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from rankscope.analysis.traces.model import TraceAnalysis
from rankscope.tui.detail.format import duration

ORDERS = ("rank", "late", "step", "exposed", "idle", "gap")
"""What the rows can be sorted by: a column of `breakdown`, the ranks rising, all else falling."""
_HEADS = ("rank", "steps", "step", "compute", "exposed", "copy", "idle", "gap", "overlap", "late", "waited")
WIDTHS = (5, 5, 8, 7, 7, 5, 5, 4, 7, 8, 8)
"""Characters of each column."""


class Total(NamedTuple):
    """A rank over all its steps; times are means of a step in nanoseconds, shares parts of the step."""

    rank: int
    steps: int
    step: int
    compute: float
    exposed: float
    copy: float
    idle: float
    gap: float
    overlap: float
    late: int
    waited: int


def breakdown(traces: TraceAnalysis, order: str = "rank") -> list[Total]:
    """A row for each rank."""
    whole = (pl.col("end_ns") - pl.col("start_ns")).sum()
    shares = [
        (pl.col(f"{column}_ns").sum() / whole).fill_nan(0).fill_null(0).alias(name)
        for name, column in (
            ("compute", "compute"), ("exposed", "exposed"), ("copy", "memory"), ("idle", "idle"), ("gap", "host_gap"),
            ("overlap", "overlap"),
        )
    ]  # fmt: skip
    means = [pl.col(f"{name}_ns").mean().fill_null(0).round().cast(pl.Int64).alias(name) for name in ("late", "waited")]
    step = (whole / pl.len()).round().cast(pl.Int64).alias("step")
    table = traces.steps.filter(pl.col("rank").is_not_null()).group_by("rank")
    made = table.agg(pl.len().cast(pl.Int64).alias("steps"), step, *shares, *means)
    sort = made.sort("rank") if order == "rank" else made.sort(order, "rank", descending=[True, False])
    return [Total(*row) for row in sort.select(Total._fields).iter_rows()]


def heading_text() -> str:
    """The names of the columns."""
    return " ".join(f"{head:>{size}}" for head, size in zip(_HEADS, WIDTHS, strict=True))


def cells(row: Total) -> list[str]:
    """A row as the texts of its columns."""
    shares = [f"{100 * share:.0f}%" for share in row[3:9]]
    texts: Sequence[str] = [
        str(row.rank),
        str(row.steps),
        duration(row.step),
        *shares,
        duration(row.late),
        duration(row.waited),
    ]
    return [f"{text:>{size}}" for text, size in zip(texts, WIDTHS, strict=True)]
