"""The share of single flipped bits that a report sees, by position of the bit, place and type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from benchmarks.numeric_flips import PLACES, POSITIONS, position, trials
from benchmarks.numeric_plan import DTYPES, LEVELS, NumericJob
from benchmarks.numeric_runs import marks, recorded, run_missing
from benchmarks.numeric_scores import said_alone
from benchmarks.results import table
from rankscope.features.numbers.rules.collective_units import collective_units
from rankscope.features.numbers.rules.equality_checks import check_equality
from rankscope.features.numbers.rules.number_findings import judge_numbers
from rankscope.features.numbers.rules.sum_checks import check_sums

Seen = defaultdict[tuple[str, str, str], list[bool]]
"""By position, place and type, whether each flip is seen."""
WEIGHT_LAYOUTS = ("tp", "ddp")


def flip_table(base: Path) -> str:
    """The shares in percent; the runs lie in `base`."""
    seen: Seen = defaultdict(list)
    _reductions(base, seen)
    _weights(base, seen)
    columns = [*PLACES, *(f"weight, {level}" for level in LEVELS)]
    header = ["bit", *(f"{place}, {dtype}" for place in columns for dtype in DTYPES)]
    rows = [
        [where, *(_share(seen[where, place, dtype]) for place in columns for dtype in DTYPES)] for where in POSITIONS
    ]
    return table(header, rows)


def _share(flips: Iterable[bool]) -> str:
    flips = list(flips)
    return f"{100 * sum(flips) / len(flips):.0f}" if flips else ""


def _reductions(base: Path, seen: Seen) -> None:
    """Inputs and outputs of sums: each step of the run is one flip."""
    jobs = [NumericJob("flips", "", dtype) for dtype in DTYPES]
    run_missing(jobs, base)
    for job in jobs:
        run = recorded(base / job.name)
        units = collective_units(run)
        rows = [
            *check_sums(run, units).broken["row"],
            *(one.row for answer in check_equality(run, units) for one in answer.broken),
        ]
        broken = set(run.tensors["step"].gather(rows)) if rows else set()
        # NF and R5 tell of values that are not finite, the first ones of a run
        broken |= set(run.tensors.filter((pl.col("nan") > 0) | (pl.col("inf") > 0))["step"])
        for step, (place, bit) in enumerate(trials(job.dtype)):
            seen[position(bit, job.dtype), place, job.dtype].append(step in broken)


def _weights(base: Path, seen: Seen) -> None:
    """Bits of a weight, one of each position, by the laws of the whole run."""
    jobs = [
        NumericJob(layout, f"weight-flip:{-1 - bit}", dtype, level)
        for layout in WEIGHT_LAYOUTS for dtype in DTYPES for level in LEVELS for bit in _one_each(dtype)
    ]  # fmt: skip
    run_missing(jobs, base)
    for job in jobs:
        run = recorded(base / job.name)
        said = said_alone(run, judge_numbers(run), marks(base / job.name))
        where = position(-1 - int(job.fault.partition(":")[2]), job.dtype)
        seen[where, f"weight, {job.level}", job.dtype].append(said in ("rank", "group"))


def _one_each(dtype: str) -> list[int]:
    """A bit of each position, counted from the sign."""
    own: dict[str, int] = {}
    for bit in range(32 if dtype == "f32" else 16):
        own.setdefault(position(bit, dtype), bit)
    return list(own.values())
