"""Simulated jobs as the analysis sees them, and what it says of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load
from rankscope.schema import Dataset
from tests.simulator.options import MODES
from tests.simulator.scenario import make


@cache
def simulated(fault: str, seed: int, size: str = "small") -> tuple[Dataset, Analysis]:
    """A job with a fault, from its full dumps; LookupError where no job of that size has a place for the fault."""
    scenario = make(fault, seed, size)
    with TemporaryDirectory() as folder:
        scenario.write(Path(folder), MODES["full"])
        dataset = load([Path(folder)])
    return dataset, analyse(dataset)
