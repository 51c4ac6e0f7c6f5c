"""Memory of ranks for people and programs: what each held at the most, and whose memory grows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.features.memory.rules.failed_requests import rate_text
from rankscope.features.memory.rules.memory_peers import kind_of
from rankscope.features.memory.rules.model import MEMORY_RESULTS, MemoryAnalysis
from rankscope.report.blocks import Grid, Section
from rankscope.schema import Dataset
from rankscope.text.wording import byte_count

TITLE = "Memory of ranks, the fullest first"
HEAD = ("rank", "device", "samples", "peak", "last", "reserved", "of", "growth")
MOST_ROWS = 8
"""Most ranks of each kind of device that text and Markdown list."""


def shown_rows(memory: MemoryAnalysis) -> Iterator[tuple[str, ...]]:
    """Cells by the names of `HEAD`: of each kind of device the fullest ranks, with all that grow."""
    growths = {(growth.rank, growth.device): rate_text(growth) for growth in memory.growths}
    kinds = sorted({kind_of(device) for device in memory.held["device"]})
    for kind in kinds:
        rows = memory.held.filter(pl.col("device").str.starts_with(kind)).sort("peak", "rank", descending=[True, False])
        grows = [(rank, device) in growths for rank, device in rows.select("rank", "device").iter_rows()]
        keep = pl.Series([at < MOST_ROWS or grown for at, grown in enumerate(grows)], dtype=pl.Boolean)
        for row in rows.filter(keep).head(4 * MOST_ROWS).iter_rows(named=True):
            sizes = (byte_count(row[name]) for name in ("peak", "last", "reserved", "capacity"))
            growth = growths.get((row["rank"], row["device"]), "")
            yield str(row["rank"]), row["device"], f"{row['samples']:,}", *sizes, growth


def section(_: Dataset, analysis: Analysis) -> Iterator[Section]:
    """Memory of each rank, in a report for people."""
    memory = MEMORY_RESULTS.find(analysis)
    if memory is None or memory.held.is_empty():
        return
    rows = list(shown_rows(memory))
    left = memory.held["rank"].n_unique() - len({row[0] for row in rows})
    more = f"{left:,} more ranks are in the JSON report" if left > 0 else ""
    yield Section(TITLE, (Grid(head=HEAD, rows=rows, numbers=tuple(range(len(HEAD))), narrow=7, more=more),))


def json_keys(_: Dataset, analysis: Analysis) -> dict[str, Any]:
    """The key `memory` of the JSON report, only where samples of memory were read."""
    memory = MEMORY_RESULTS.find(analysis)
    return {} if memory is None else {"memory": json_object(memory)}


def json_object(memory: MemoryAnalysis) -> dict[str, Any]:
    """The key `memory` of the JSON report."""
    growths = {(growth.rank, growth.device): growth for growth in memory.growths}
    rows = []
    for row in memory.held.drop("host").iter_rows(named=True):
        found = growths.get((row["rank"], row["device"]))
        rows.append({**row, "growth": None if found is None else {
            "slope": found.slope, "low": _finite(found.low), "high": _finite(found.high), "unit": found.unit,
            "first": found.first, "last": found.last, "samples": found.samples,
        }})  # fmt: skip
    return {"ranks": rows}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
