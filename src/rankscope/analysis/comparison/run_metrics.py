"""Metrics of runs: one number for each run, of its steps, its loss, its throughput and the parts of its steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.comparison.model import MetricKind
from rankscope.analysis.comparison.series_choice import CommonSeries
from rankscope.analysis.comparison.time_comparison import WARM_UP, Floats, TimeComparison, TimeRatio

LOSS = "loss"
LEAST_SHARE = 0.01
"""Parts that cost less of A's steps are left out: each metric more needs more runs to be significant."""
MOST_PARTS = 20
_LAST = 0.1
"""Share of the common steps, at their end, whose mean is the final value."""
_RATES = re.compile(
    r"(?:tok|sample|image|seq)\w*[ _/.-]*(?:per|/)[ _-]*(?:s\b|sec|gpu)|throughput|t?flops?\b|\bmfu\b|\btps\b|\btgs\b",
    re.IGNORECASE,
)
"""Raw names of series that tell tokens, samples or operations a second: more is better."""


class RunMetric(NamedTuple):
    """One metric of all runs."""

    name: str
    unit: str
    kind: MetricKind
    values: tuple[float, ...]
    """By run; NaN where a run does not have it, infinite where training reached no number."""
    less_is_better: bool = True
    within: tuple[float, float] | None = None
    """Interval of B / A within two runs, if there are only two."""


def run_metrics(times: Mapping[int, TimeComparison], series: CommonSeries, count: int) -> tuple[RunMetric, ...]:
    """The metrics of `count` runs.

    `times` are those of each run together with run 0, by the number of the run; `series` are those of all runs, with
    tables without columns for runs that have none.
    """
    timed = list(_time_metrics(times, count))
    steps = [one for one in timed if one.kind == "step"]
    parts = [one for one in timed if one.kind == "part"]
    return (*steps, *_series_metrics(series.tables), *parts[:MOST_PARTS])


def _time_metrics(times: Mapping[int, TimeComparison], count: int) -> Iterator[RunMetric]:
    """Every row of times that a pair has: steps, and all costly parts of them, whatever tells these."""
    rows: dict[tuple[MetricKind, str], dict[int, TimeRatio]] = {}
    for number, one in times.items():
        for kind, row in _rows(one):
            if row.median_a > 0 and row.median_b > 0:
                rows.setdefault((kind, row.name), {})[number] = row
    for (kind, name), own in rows.items():
        values = [own[number].median_b if number in own else float("nan") for number in range(count)]
        first = next(iter(own.values()))
        values[0] = first.median_a
        within = (first.low, first.high) if count == 2 and first.low is not None and first.high is not None else None
        yield RunMetric(name, "s", kind, tuple(values), within=within)


def _rows(found: TimeComparison) -> Iterator[tuple[MetricKind, TimeRatio]]:
    """Rows of steps, and those of parts that cost enough of A's time."""
    steps = found.steps
    parts = [row for rows in found if rows is not steps for row in rows if isinstance(row, TimeRatio)]
    yield from (("step", row) for row in steps)
    whole = _cost(steps[0]) if steps else sum(map(_cost, parts))
    yield from (("part", row) for row in parts if _cost(row) >= LEAST_SHARE * whole)


def _cost(row: TimeRatio) -> float:
    return row.median_a * row.count_a


# Metrics of series.


def _series_metrics(tables: Sequence[pl.DataFrame]) -> Iterator[RunMetric]:
    """Final and mean loss over the steps that all runs have, and rates over the steps of each run."""
    known = {number: one for number, one in enumerate(tables) if one.width}
    if len(known) < 2:
        return
    names = sorted(set.intersection(*(set(one["name"]) for one in known.values())))
    if LOSS in names:
        yield from _loss_metrics({number: _by_step(one, LOSS) for number, one in known.items()}, len(tables))
    for name in filter(_RATES.search, names):
        rates = {number: _rate(_by_step(one, name)) for number, one in known.items()}
        values = tuple(rates.get(number, float("nan")) for number in range(len(tables)))
        yield RunMetric(name, "/s", "throughput", values, less_is_better=False)


def _by_step(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """step, value: of the newest segment that has the step, the mean over ranks."""
    rows = table.filter(pl.col("name") == name, pl.col("step").is_not_null()).sort("segment", maintain_order=True)
    newest = rows.unique(["rank", "step"], keep="last")
    return newest.group_by("step").agg(pl.col("value").mean()).sort("step")


def _loss_metrics(losses: Mapping[int, pl.DataFrame], count: int) -> Iterator[RunMetric]:
    steps = sorted(set.intersection(*(set(one["step"]) for one in losses.values())))
    if not steps:
        return
    found = {number: one.filter(pl.col("step").is_in(steps))["value"].to_numpy() for number, one in losses.items()}
    last = max(round(len(steps) * _LAST), 1)
    for name, part in ((f"final {LOSS}", slice(-last, None)), (f"mean {LOSS}", slice(None))):
        values = tuple(_mean(found[number][part]) if number in found else float("nan") for number in range(count))
        yield RunMetric(name, "", "loss", values)


def _mean(values: Floats) -> float:
    """The mean; infinite if one of the values is no finite number."""
    return float(values.mean()) if np.isfinite(values).all() else float("inf")


def _rate(rows: pl.DataFrame) -> float:
    """The median over steps without the first ones."""
    values = rows["value"].to_numpy()
    values = values[WARM_UP:] if len(values) > WARM_UP else values
    return float(np.median(values)) if len(values) else float("nan")
