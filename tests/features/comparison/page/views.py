"""Comparisons for tests of their screen: simulated runs with dumps, and with training series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import polars as pl

from rankscope.features.comparison.page.aligned_lanes import paired_lanes
from rankscope.features.comparison.page.compared_view import ComparedView
from rankscope.features.comparison.rules.model import ComparedRun
from rankscope.features.comparison.rules.run_sides import WholeComparison, compare_in_full
from rankscope.schema.tables import SCALARS
from tests.features.comparison.rules.pairs import edited, job_of, larger, one_run, renamed, twice
from tests.simulator.instructions import Collective
from tests.simulator.scenario import SMALL

STEPS = 40
ONSET = 21
"""The first step in which the losses of B differ."""


def scalars(values: Sequence[float], name: str = "loss", rank: int | None = None, segment: int = 0) -> pl.DataFrame:
    """One series from step 1 on, with four decimals."""
    rows = [
        {
            "attempt": 0, "segment": segment, "rank": rank, "step": step, "step_hi": None, "name": name,
            "raw_name": name, "value": value, "resolution": 5e-5, "time_ns": None, "source": "log", "file": "train.log",
            "line": step,
        }
        for step, value in enumerate(values, 1)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema=SCALARS)


def losses(factor: float = 1.0) -> pl.DataFrame:
    """Losses of two ranks; from `ONSET` on those of rank 1 are larger by `factor`."""
    own = [round(2 + 3 / step, 4) for step in range(1, STEPS + 1)]
    other = [round(value * (factor if step >= ONSET else 1), 4) for step, value in enumerate(own, 1)]
    return pl.concat([scalars(own, rank=0), scalars(other, rank=1)])


@cache
def simulated(changed: bool) -> ComparedRun:
    """A run of four ranks; `changed` has another size in step 1, and one operation more in step 5."""
    job = job_of(*SMALL[0], steps=8)
    if not changed:
        return replace(one_run(job, 1, title="runs/a"), series=losses())
    groups = [one.group for one in job.steps[0][0] if isinstance(one, Collective) and not one.inner]
    job = edited(edited(job, groups[0], 0, larger, steps=[1]), groups[0], 0, twice, steps=[5])
    return replace(one_run(renamed(job), 2, title="runs/b"), series=losses(1.01))


@cache
def view_of(changed: bool = True) -> ComparedView:
    """The comparison of the plain run with the changed one, or with itself."""
    whole: WholeComparison = compare_in_full(simulated(False), simulated(changed))
    return ComparedView(whole, paired_lanes(whole))
