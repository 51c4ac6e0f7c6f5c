"""Results of the analysis of memory. Plain frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from rankscope.analysis.model import FeaturePart


class MemoryGrowth(NamedTuple):
    """The growth of one device's memory in one rank."""

    rank: int
    device: str
    slope: float
    """Bytes in a step; in a second where no steps are known."""
    low: float
    high: float
    """The interval of the slope, at 95 %."""
    unit: str
    """"step" or "second"."""
    first: int
    last: int
    """The least bytes of the first and of the last block."""
    samples: int

    @property
    def grown(self) -> int:
        """Bytes from the first block to the last."""
        return self.last - self.first


class FullRank(NamedTuple):
    """A rank that holds more than its peers."""

    rank: int
    device: str
    held: int
    """Most bytes that it held."""
    low: int
    high: int
    """Least and most of its peers."""
    median: int
    peers: int
    """Number of the other ranks."""
    capacity: int | None


@dataclass(frozen=True)
class MemoryAnalysis:
    """Results from samples of memory."""

    held: pl.DataFrame
    """A row for each rank and device, as `memory_peers.held_by_rank` makes them."""
    growths: tuple[MemoryGrowth, ...]
    full: tuple[FullRank, ...]


MEMORY_RESULTS = FeaturePart[MemoryAnalysis]("memory")
"""Results on memory in an analysis."""
