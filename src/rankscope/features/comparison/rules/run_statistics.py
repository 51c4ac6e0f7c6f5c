"""Metrics and statistics over runs, each run a unit. Intervals, permutation tests and their correction are scipy's.

An interval over runs is the t interval of the logarithms with pooled variance. A bootstrap of few runs is too narrow:
of 1,000 pairs of equal runs with a run-to-run noise of 1 %, its 95 % interval holds equality in 79 % at 3 against 3
runs, and in 83 % if blocks of steps are resampled within runs, too; the t interval in 96 %.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import comb, isfinite
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from rankscope.features.comparison.rules.model import MetricEffect, MetricKind, MetricVerdict
from rankscope.features.comparison.rules.series_curves import CommonSeries
from rankscope.features.comparison.rules.time_comparison import Floats, TimeComparison, TimeRatio, warm_up

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
    values = values[warm_up(len(values)) :]
    return float(np.median(values)) if len(values) else float("nan")


LEVEL = 0.05
POWER = 0.8
_PERMUTATIONS = 9_999
"""Tests with as many splits of the runs or fewer are exact: up to 7 against 7."""
_MOST_RUNS = 12
"""Most runs of a side that a report asks for."""
_EXACT = 1e-9


class Sides(NamedTuple):
    """Numbers of the runs of both sides."""

    a: tuple[int, ...]
    b: tuple[int, ...]


def metric_effects(metrics: Sequence[RunMetric], sides: Sides) -> tuple[MetricEffect, ...]:
    """The change of each metric from side A to side B, with p-values held over all metrics."""
    found = [effect for metric in metrics if (effect := _effect(metric, sides)) is not None]
    known = [one.p for one in found if one.p is not None]
    held = iter(_stats().false_discovery_control(known, method="bh").tolist() if known else [])
    return tuple(_judged(replace(one, q=float(next(held)))) if one.p is not None else one for one in found)


def _stats() -> Any:
    """scipy.stats, which takes half a second to import: two runs need none of it."""
    from scipy import stats

    return stats


def _effect(metric: RunMetric, sides: Sides) -> MetricEffect | None:
    """The effect with its interval and p; None if a side has no run with this metric."""
    a, b = (np.array([metric.values[number] for number in side]) for side in sides)
    lost_a, lost_b = (int(np.isinf(one).sum()) for one in (a, b))
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    if not len(a) or not len(b):
        return _broken(metric, a, lost_b) if len(a) and lost_b else None
    is_ratio = bool((a > 0).all() and (b > 0).all())
    one, other = (np.log(a), np.log(b)) if is_ratio else (a, b)
    change = float(other.mean() - one.mean())
    low, high = _interval(one, other)
    p = _permutation_p(one, other) if min(len(a), len(b)) > 1 else None
    ends = [_told(end, is_ratio) for end in (low, high)]
    if metric.within is not None and len(a) == len(b) == 1:
        ends = [end - 1 for end in metric.within]
    return MetricEffect(
        metric.name, metric.unit, metric.kind, is_ratio, tuple(a.tolist()), tuple(b.tolist()),
        float(np.expm1(change)) if is_ratio else change, ends[0], ends[1], p, None,
        _told(_smallest_effect(one, other), is_ratio), less_is_better=metric.less_is_better,
        lost_a=lost_a, lost_b=lost_b,
    )  # fmt: skip


def _broken(metric: RunMetric, a: Floats, lost_b: int) -> MetricEffect:
    """The effect if no run of B reaches a number."""
    values = tuple(a.tolist())
    return MetricEffect(metric.name, metric.unit, metric.kind, False, values, (), float("inf"), lost_b=lost_b)


def _told(value: float | None, is_ratio: bool) -> float | None:
    """A change of logarithms as a relative change; one that is no number is unknown."""
    if value is None or not isfinite(value):
        return None
    return float(np.expm1(min(value, 700.0))) if is_ratio else value


def _interval(a: Floats, b: Floats) -> tuple[float | None, float | None]:
    """The 95 % t interval of the difference of means with pooled variance; without spread it is the difference."""
    if len(a) + len(b) < 3:
        return None, None
    change = float(b.mean() - a.mean())
    if _standard_error(a, b) <= _EXACT * float(np.abs([*a, *b]).max()):
        return change, change
    interval = _t_test(b, a).confidence_interval(1 - LEVEL)
    return float(interval.low), float(interval.high)


def _t_test(a: Floats, b: Floats) -> Any:
    """The t test with pooled variance; a side of one or of equal values has no variance, of which scipy warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return _stats().ttest_ind(a, b)


def _permutation_p(a: Floats, b: Floats) -> float:
    """Two-sided p of the difference of means over all splits of the runs, or over 9,999 of them with a fixed seed."""

    def change(x: Floats, y: Floats, axis: int = -1) -> Floats:
        found: Floats = np.mean(x, axis=axis) - np.mean(y, axis=axis)
        return found

    test = _stats().permutation_test(
        (b, a), change, permutation_type="independent", vectorized=True, n_resamples=_PERMUTATIONS,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    return float(test.pvalue)


def _standard_error(a: Floats, b: Floats) -> float:
    """The standard error of the difference of means, with pooled variance."""
    squares = float(((a - a.mean()) ** 2).sum() + ((b - b.mean()) ** 2).sum())
    return float(np.sqrt(squares / (len(a) + len(b) - 2) * (1 / len(a) + 1 / len(b))))


def _smallest_effect(a: Floats, b: Floats) -> float | None:
    """The change that a t test at 5 % shows in 80 % of cases, with the spread of these runs; approximately.

    (t(0.975) + t(0.8)) times the standard error (Bloom, 1995).
    """
    freedom = len(a) + len(b) - 2
    if freedom < 1:
        return None
    t = _stats().t
    return float((t.ppf(1 - LEVEL / 2, freedom) + t.ppf(POWER, freedom)) * _standard_error(a, b))


def _judged(one: MetricEffect) -> MetricEffect:
    """The metric with its verdict: nothing is significant where this many runs cannot show it."""
    least = smallest_p(len(one.values_a), len(one.values_b))
    verdict: MetricVerdict = "not-shown"
    if one.q is not None and one.q <= LEVEL:
        verdict = "differs"
    elif one.low == one.high == 0:
        verdict = "not-shown"
    elif least > LEVEL or (one.p is not None and one.p <= least * (1 + _EXACT)):
        verdict = "too-few-runs"
    return replace(one, verdict=verdict)


def smallest_p(runs_a: int, runs_b: int) -> float:
    """The smallest two-sided p that a permutation test of this many runs can give: 0.1 at 3 against 3."""
    return min(1.0, max(2 / comb(runs_a + runs_b, runs_a), 2 / (_PERMUTATIONS + 1)))


def runs_needed(metrics: int) -> int:
    """Runs of each side with which one of so many metrics can be significant after the correction."""
    enough = (n for n in range(2, _MOST_RUNS) if smallest_p(n, n) * max(metrics, 1) <= LEVEL)
    return next(enough, _MOST_RUNS)


# Runs that differ from their peers.


class OutlyingRun(NamedTuple):
    """A run whose metric is away from those of its peers."""

    run: int
    metric: RunMetric
    peers: float
    """Mean of the other runs; the geometric one of positive values."""
    change: float
    """Relative to the peers."""


def outlying_runs(metrics: Sequence[RunMetric], runs: Sequence[int], least: float) -> Iterator[OutlyingRun]:
    """Runs of one side away from the others by `least` or more, by a t test of one run against the rest.

    p-values are held over all runs and metrics (Benjamini-Hochberg); two runs cannot tell which of them is the one.
    """
    found = list[OutlyingRun]()
    chances = list[float]()
    for metric in metrics:
        own = {run: metric.values[run] for run in runs if isfinite(metric.values[run]) and metric.values[run] > 0}
        if len(own) < 3:
            continue
        for run, value in own.items():
            rest = np.log([other for number, other in own.items() if number != run])
            peers = float(np.exp(rest.mean()))
            found.append(OutlyingRun(run, metric, peers, value / peers - 1))
            chances.append(_against_rest(float(np.log(value)), rest))
    held = _stats().false_discovery_control(chances, method="bh") if chances else np.zeros(0)
    yield from (one for one, q in zip(found, held, strict=True) if q <= LEVEL and abs(one.change) >= least)


def _against_rest(value: float, rest: Floats) -> float:
    """p of one value against others, by scipy's t test with pooled variance; 0 for another value than equal ones."""
    if float(np.ptp(rest)) <= _EXACT:
        return float(abs(value - float(rest.mean())) <= _EXACT)
    return float(_t_test(np.array([value]), rest).pvalue)
