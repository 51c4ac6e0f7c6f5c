"""Memory of ranks for people and programs: what each held at the most, and whose memory grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import polars as pl
from msgspec import UNSET, UnsetType

from rankscope.analysis.model import Analysis
from rankscope.features.memory.rules.failed_requests import rate_text
from rankscope.features.memory.rules.memory_peers import kind_of
from rankscope.features.memory.rules.model import MEMORY_RESULTS, MemoryAnalysis
from rankscope.report.blocks import Grid, Section
from rankscope.report.json import Count, Moment, Rank, ReportPart
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


class GrowthObject(ReportPart):
    """Growth of memory, in bytes a unit, with its interval at 95 %; infinite ends are null."""

    slope: float
    low: float | None
    high: float | None
    unit: Literal["step", "second"]
    first: int
    last: int
    samples: Count


class HeldMemoryObject(ReportPart):
    """Memory that a rank held on a device, in bytes."""

    rank: Rank | None
    device: str
    samples: Count
    peak: int | None
    last: int | None
    reserved: int | None
    capacity: int | None
    last_ns: Moment | None
    growth: GrowthObject | None


class MemoryObject(ReportPart):
    """Memory of ranks."""

    ranks: Sequence[HeldMemoryObject]


class MemoryKeys(ReportPart):
    """The key of memory in the JSON report, only where samples of memory were read."""

    memory: MemoryObject | UnsetType = UNSET


def json_keys(_: Dataset, analysis: Analysis) -> MemoryKeys:
    """Memory of each rank on each device."""
    memory = MEMORY_RESULTS.find(analysis)
    if memory is None:
        return MemoryKeys()
    ranks = HeldMemoryObject.of_rows(memory.held.with_columns(growth=None))
    growths: dict[tuple[int | None, str], GrowthObject] = {
        (growth.rank, growth.device): GrowthObject.of(growth) for growth in memory.growths
    }
    for held in ranks:
        held.growth = growths.get((held.rank, held.device))
    return MemoryKeys(MemoryObject(ranks))
