"""Traced jobs for tests of the screen."""

from __future__ import annotations

from functools import cache

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from tests.traces import MS, training


@cache
def traced(world: int = 4, steps: int = 4, slow: int | None = 2) -> tuple[Dataset, Analysis]:
    """A job with profiler traces in which one rank loads its data for 30 ms in each step."""
    dataset = training(world, steps, slow_host={} if slow is None else {slow: 30 * MS}).build()
    return dataset, analyse(dataset)
