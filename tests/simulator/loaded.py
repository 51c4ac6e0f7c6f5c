"""Simulated jobs as the analysis sees them, and what it says of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load
from rankscope.schema import Dataset
from tests.simulator.options import ALL_MODES
from tests.simulator.scenario import ONLY_MODES, make


@cache
def simulated(fault: str, seed: int, size: str = "small", mode: str = "full") -> tuple[Dataset, Analysis]:
    """A job with a fault, from a kind of dump, or from that which alone can show it.

    LookupError where no job of that size has a place for the fault.
    """
    options = ALL_MODES[ONLY_MODES.get(fault, (mode,))[0]]
    scenario = make(fault, seed, size, options.job)
    with TemporaryDirectory() as folder:
        scenario.write(Path(folder), options)
        dataset = load([Path(folder)])
    return dataset, analyse(dataset)
