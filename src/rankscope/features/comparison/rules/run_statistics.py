"""Metrics over runs, each run a unit: what changed, how sure that is, how many runs would do, which budgets are kept.

Intervals, permutation tests and their correction are scipy's. An interval over runs is the t interval of the logarithms
with pooled variance. A bootstrap of few runs is too narrow: of 1,000 pairs of equal runs with a noise of 1 % over runs,
its 95 % interval holds equality in 79 % at 3 against 3 runs, and in 83 % if blocks of steps are resampled within runs,
too; the t interval in 96 %.
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

from rankscope.features.comparison.rules.model import (
    ComparedPart,
    DifferenceKind,
    GateCheck,
    MetricEffect,
    MetricKind,
    MetricVerdict,
    Outlier,
    PartState,
    RunComparison,
    RunDifference,
    RunGroups,
)
from rankscope.features.comparison.rules.series_comparison import CommonSeries
from rankscope.features.comparison.rules.time_comparison import LEAST_CHANGE, Floats, TimeComparison, TimeRatio, warm_up
from rankscope.text.wording import plural

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
    steps = [metric for metric in timed if metric.kind == "step"]
    parts = [metric for metric in timed if metric.kind == "part"]
    return (*steps, *_series_metrics(series.tables), *parts[:MOST_PARTS])


def _time_metrics(times: Mapping[int, TimeComparison], count: int) -> Iterator[RunMetric]:
    """Every row of times that a pair has: steps, and all parts of them that cost enough of A's time."""
    by_name: dict[tuple[MetricKind, str], dict[int, TimeRatio]] = {}
    for number, pair in times.items():
        parts = (*pair.collectives, *pair.phases, *pair.kernels)
        whole = sum(row.median_a * row.count_a for row in pair.steps[:1] or parts)
        costly = (row for row in parts if row.median_a * row.count_a >= LEAST_SHARE * whole)
        rows: list[tuple[MetricKind, TimeRatio]] = [("step", row) for row in pair.steps]
        for kind, row in (*rows, *(("part", row) for row in costly)):
            if row.median_a > 0 and row.median_b > 0:
                by_name.setdefault((kind, row.name), {})[number] = row
    for (kind, name), ratios in by_name.items():
        values = [ratios[number].median_b if number in ratios else float("nan") for number in range(count)]
        first = next(iter(ratios.values()))
        values[0] = first.median_a
        within = (first.low, first.high) if count == 2 and first.low is not None and first.high is not None else None
        yield RunMetric(name, "s", kind, tuple(values), within=within)


def _series_metrics(tables: Sequence[pl.DataFrame]) -> Iterator[RunMetric]:
    """Final and mean loss over the steps that all runs have, and rates over the steps of each run."""
    known = {number: table for number, table in enumerate(tables) if table.width}
    if len(known) < 2:
        return
    names = sorted(set.intersection(*(set(table["name"]) for table in known.values())))
    losses = {number: _by_step(table, LOSS) for number, table in known.items()} if LOSS in names else {}
    steps = sorted(set.intersection(*(set(loss["step"]) for loss in losses.values()))) if losses else []
    if steps:
        common = {
            number: loss.filter(pl.col("step").is_in(steps))["value"].to_numpy() for number, loss in losses.items()
        }
        last = max(round(len(steps) * _LAST), 1)
        for name, part in ((f"final {LOSS}", slice(-last, None)), (f"mean {LOSS}", slice(None))):
            means = {
                number: float(loss[part].mean()) if np.isfinite(loss[part]).all() else float("inf")
                for number, loss in common.items()
            }
            yield RunMetric(name, "", "loss", tuple(means.get(n, float("nan")) for n in range(len(tables))))
    for name in filter(_RATES.search, names):
        rates = {}
        for number, table in known.items():
            values_of = _by_step(table, name)["value"].to_numpy()
            values_of = values_of[warm_up(len(values_of)) :]
            rates[number] = float(np.median(values_of)) if len(values_of) else float("nan")
        yield RunMetric(name, "/s", "throughput", tuple(rates.get(n, float("nan")) for n in range(len(tables))), False)


def _by_step(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """step, value: of the newest segment that has the step, the mean over ranks."""
    rows = table.filter(pl.col("name") == name, pl.col("step").is_not_null()).sort("segment", maintain_order=True)
    newest = rows.unique(["rank", "step"], keep="last")
    return newest.group_by("step").agg(pl.col("value").mean()).sort("step")


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
    """The change of each metric from side A to side B, with p-values held over all metrics.

    Nothing is significant where this many runs cannot show it.
    """
    effects = [effect for metric in metrics if (effect := _effect(metric, sides)) is not None]
    known = [effect.p for effect in effects if effect.p is not None]
    q_values = iter(_stats().false_discovery_control(known, method="bh").tolist() if known else [])
    judged = []
    for effect in effects:
        if effect.p is None:
            judged.append(effect)
            continue
        q, least = float(next(q_values)), smallest_p(len(effect.values_a), len(effect.values_b))
        verdict: MetricVerdict = "differs" if q <= LEVEL else "not-shown"
        can_show = least <= LEVEL and effect.p > least * (1 + _EXACT)
        if verdict != "differs" and not can_show and not effect.low == effect.high == 0:
            verdict = "too-few-runs"
        judged.append(replace(effect, q=q, verdict=verdict))
    return tuple(judged)


def _stats() -> Any:
    """scipy.stats, which takes half a second to import: two runs need none of it."""
    from scipy import stats

    return stats


def _effect(metric: RunMetric, sides: Sides) -> MetricEffect | None:
    """The effect with its interval and p; None if a side has no run with this metric."""
    a, b = (np.array([metric.values[number] for number in side]) for side in sides)
    lost_a, lost_b = (int(np.isinf(values).sum()) for values in (a, b))
    a, b = a[np.isfinite(a)], b[np.isfinite(b)]
    if not len(a) or not len(b):
        if not (len(a) and lost_b):
            return None
        # no run of B reaches a number
        values = tuple(a.tolist())
        return MetricEffect(metric.name, metric.unit, metric.kind, False, values, (), float("inf"), lost_b=lost_b)
    is_ratio = bool((a > 0).all() and (b > 0).all())
    side_a, side_b = (np.log(a), np.log(b)) if is_ratio else (a, b)
    change = float(side_b.mean() - side_a.mean())
    p = _permutation_p(side_a, side_b) if min(len(a), len(b)) > 1 else None
    # changes of logarithms as relative changes; one that is no number is unknown
    low, high, smallest = (
        None if value is None or not isfinite(value) else float(np.expm1(min(value, 700.0))) if is_ratio else value
        for value in (*_interval(side_a, side_b), _smallest_effect(side_a, side_b))
    )
    if metric.within is not None and len(a) == len(b) == 1:
        low, high = (end - 1 for end in metric.within)
    return MetricEffect(
        metric.name, metric.unit, metric.kind, is_ratio, tuple(a.tolist()), tuple(b.tolist()),
        float(np.expm1(change)) if is_ratio else change, low, high, p, None, smallest,
        less_is_better=metric.less_is_better, lost_a=lost_a, lost_b=lost_b,
    )  # fmt: skip


def _interval(a: Floats, b: Floats) -> tuple[float | None, float | None]:
    """The 95 % t interval of the difference of means with pooled variance; without spread it is the difference."""
    if len(a) + len(b) < 3:
        return None, None
    change = float(b.mean() - a.mean())
    if _standard_error(a, b) <= _EXACT * float(np.abs([*a, *b]).max()):
        return change, change
    with warnings.catch_warnings():
        # a side of one or of equal values has no variance
        warnings.simplefilter("ignore", RuntimeWarning)
        interval = _stats().ttest_ind(b, a).confidence_interval(1 - LEVEL)
    return float(interval.low), float(interval.high)


def _permutation_p(a: Floats, b: Floats) -> float:
    """Two-sided p of the difference of means over all splits of the runs, or over 9,999 of them with a fixed seed."""

    def change(x: Floats, y: Floats, axis: int = -1) -> Floats:
        found: Floats = np.mean(x, axis=axis) - np.mean(y, axis=axis)
        return found

    test = _stats().permutation_test(
        (b, a),
        change,
        permutation_type="independent",
        vectorized=True,
        n_resamples=_PERMUTATIONS,
        rng=np.random.default_rng(0),
    )
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


def smallest_p(runs_a: int, runs_b: int) -> float:
    """The smallest two-sided p that a permutation test of this many runs can give: 0.1 at 3 against 3."""
    return min(1.0, max(2 / comb(runs_a + runs_b, runs_a), 2 / (_PERMUTATIONS + 1)))


def runs_needed(metrics: int) -> int:
    """Runs of each side with which one of so many metrics can be significant after the correction."""
    enough = (n for n in range(2, _MOST_RUNS) if smallest_p(n, n) * max(metrics, 1) <= LEVEL)
    return next(enough, _MOST_RUNS)


def outlying_runs(metrics: Sequence[RunMetric], labels: Mapping[int, str]) -> Iterator[Outlier]:
    """Runs of one side away from the others by `LEAST_CHANGE` or more, by a t test of one run against the rest.

    `labels` are those of the side, by the number of the run. p-values are held over all runs and metrics
    (Benjamini-Hochberg); two runs cannot tell which of them is the one.
    """
    outliers, chances = list[Outlier](), list[float]()
    for metric in metrics:
        values = {run: metric.values[run] for run in labels if isfinite(metric.values[run]) and metric.values[run] > 0}
        if len(values) < 3:
            continue
        for run, value in values.items():
            rest = np.log([other for number, other in values.items() if number != run])
            peers = float(np.exp(rest.mean()))
            change, label = value / peers - 1, labels[run]
            size = f"{abs(change) * 100:.1f} % {'more' if change > 0 else 'less'}"
            shown = value_text(value, metric.unit), value_text(peers, metric.unit)
            title = f"{label}: {metric.name} is {shown[0]}, its peers {shown[1]}: {size}"
            outliers.append(Outlier(label, metric.name, title, change))
            if float(np.ptp(rest)) > _EXACT:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)
                    chances.append(float(_stats().ttest_ind(np.array([float(np.log(value))]), rest).pvalue))
            else:
                # another value than equal ones is no chance
                chances.append(float(abs(float(np.log(value)) - float(rest.mean())) <= _EXACT))
    q_values = _stats().false_discovery_control(chances, method="bh") if chances else np.zeros(0)
    yield from (
        outlier
        for outlier, q in zip(outliers, q_values, strict=True)
        if q <= LEVEL and abs(outlier.size) >= LEAST_CHANGE
    )


LEVEL_TEXT = "95 %"


def value_text(value: float, unit: str) -> str:
    """A value of a metric, to tell runs apart that differ by a percent: "1.312 s", "83.4 ms", "2,048/s", "2.4512"."""
    if unit != "s":
        return f"{value:,.0f}{unit}" if abs(value) >= 1e4 else f"{value:,.5g}{unit}"
    size, name = next((pair for pair in ((1.0, "s"), (1e-3, "ms")) if abs(value) >= pair[0]), (1e-6, "us"))
    return f"{value / size:.4g} {name}"


def change_text(one: MetricEffect) -> str:
    """The change from A to B: "+12.1 %", or in the unit of the metric."""
    return f"{one.effect * 100:+z.1f} %" if one.is_ratio else f"{one.effect:+.4g}"


def interval_text(one: MetricEffect) -> str:
    """The interval of the change: "+9.1 .. +15.2 %"; "unknown" without one."""
    if one.low is None or one.high is None:
        return "unknown"
    if one.is_ratio:
        return f"{one.low * 100:+z.1f} .. {one.high * 100:+z.1f} %"
    return f"{one.low:+.4g} .. {one.high:+.4g}"


def smallest_text(one: MetricEffect) -> str:
    """The smallest change that this many runs show."""
    if one.smallest_effect is None:
        return "unknown"
    return f"{one.smallest_effect * 100:.1f} %" if one.is_ratio else f"{one.smallest_effect:.4g}"


VERDICTS = {"differs": "differs", "not-shown": "not shown", "too-few-runs": "few runs"}
"""Verdicts on metrics in words."""


def metric_differences(effects: Sequence[MetricEffect]) -> Iterator[RunDifference]:
    """Metrics that differ over runs: significant ones, and clear changes of steps where runs are too few for that."""
    for effect in effects:
        if effect.kind == "part" or not (effect.verdict == "differs" or _is_clear(effect)):
            continue
        unsure = "" if effect.verdict == "differs" else "; too few runs to call it significant"
        size = f"{abs(effect.effect) * 100:.1f} %" if effect.is_ratio else f"{abs(effect.effect):.4g}"
        more, less = ("slower", "faster") if effect.kind == "step" else ("higher", "lower")
        how = more if effect.effect > 0 else less
        title = f"{effect.name}: B is {size} {how} over runs ({interval_text(effect)}){unsure}"
        detail = f"{LEVEL_TEXT} interval over {len(effect.values_a)} against {plural(len(effect.values_b), 'run')}"
        if effect.p is not None and effect.q is not None:
            detail += f", p {effect.p:.2g}, over all metrics {effect.q:.2g}"
        kind: DifferenceKind = "values-differ" if effect.kind == "loss" else "durations-differ"
        yield RunDifference(kind, title, details=(detail,))


def _is_clear(effect: MetricEffect) -> bool:
    """Whether a step changes by 3 % or more, and its interval over runs excludes equality."""
    is_step = effect.kind == "step" and effect.verdict == "too-few-runs"
    return is_step and _is_apart(effect) and abs(effect.effect) >= LEAST_CHANGE


def _is_apart(one: MetricEffect) -> bool:
    """Whether the interval is known and excludes equality."""
    return one.low is not None and one.high is not None and not one.low <= 0 <= one.high


def metrics_part(effects: Sequence[MetricEffect]) -> ComparedPart:
    """The answer of durations over runs."""
    steps = [effect for effect in effects if effect.kind == "step"]
    timed = sum(effect.unit == "s" for effect in effects)
    if not steps:
        why = f"{plural(timed, 'part')} of steps; no times of steps" if timed else "no durations that the runs share"
        return ComparedPart("durations", PartState.NOT_COMPARED, why)
    first = steps[0]
    words = f"{change_text(first)} ({interval_text(first)} over runs)" if first.low is not None else change_text(first)
    few = f"too few runs to {'call it significant' if _is_apart(first) else 'tell'}"
    verdict = few if first.verdict == "too-few-runs" else VERDICTS[first.verdict]
    if any(step.verdict == "differs" or _is_clear(step) for step in steps):
        state = PartState.DIFFERS
    else:
        state = PartState.UNCOUNTED if any(abs(step.effect) >= LEAST_CHANGE for step in steps) else PartState.EQUAL
    return ComparedPart("durations", state, f"{first.name}: {words}; {verdict}")


def power_text(sides: Sides, metrics: int) -> str:
    """A sentence on the smallest p of these numbers of runs, and on how many would do."""
    runs_a, runs_b = map(len, sides)
    runs = f"{runs_a} against {plural(runs_b, 'run')}"
    if not metrics:
        return f"{runs}: they share no metric"
    least, needed, alone = smallest_p(runs_a, runs_b), runs_needed(metrics), runs_needed(1)
    begin, enough = (
        f"{runs}: the smallest p is {least:.2g}",
        f"{needed} of each side would do for {plural(metrics, 'metric')}",
    )
    if least > LEVEL:
        other = f" ({alone} for one)" if alone < needed else ""
        return f"{begin}, so nothing can be significant; {enough}{other}"
    if least * metrics > LEVEL:
        return f"{begin}, so one metric of {metrics} alone cannot be significant; {enough}"
    return f"{begin}; significant is {LEVEL} over all {plural(metrics, 'metric')}"


_FACTS = {
    "schedule": "schedule-differs",
    "settings": "settings-differ",
    "values": "values-differ",
    "outcome": "outcome-differs",
}
"""Budgets without a number: any such difference fails."""
_BUDGET = re.compile(r"(?P<name>[^=]+)=\s*(?P<limit>\d+(?:\.\d+)?)\s*%")


class Budget(NamedTuple):
    """How much worse the candidate may be in one metric, or a respect in which it must not differ."""

    text: str
    name: str
    limit: float | None
    """Relative: 0.03 for 3 %; None for a respect."""


def parse_budget(text: str) -> Budget:
    """A budget as "step=3%", "loss=0.5%" or "schedule"; raises ValueError."""
    if text in _FACTS:
        return Budget(text, text, None)
    found = _BUDGET.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is neither METRIC=N% nor one of {', '.join(_FACTS)}")
    return Budget(text, found["name"].strip().lower(), float(found["limit"]) / 100)


def gate_checks(budgets: Sequence[Budget], found: RunComparison) -> tuple[GateCheck, ...]:
    """Each budget with its outcome. Several runs fail by the lower end of their interval, two runs by their ratio."""
    return tuple(_check(budget, found) for budget in budgets)


def _check(budget: Budget, found: RunComparison) -> GateCheck:
    name, limit = budget.name, budget.limit
    if limit is None:
        failing = next((difference for difference in found.differences if difference.kind == _FACTS[name]), None)
        if failing is not None:
            return GateCheck(budget.text, "failed", failing.title)
        part = next((part for part in found.parts if part.name == name), None)
        if part is not None and not part.is_compared:
            return GateCheck(budget.text, "unmeasured", part.answer)
        small = " that counts" if part is not None and part.state is PartState.UNCOUNTED else ""
        left = f"; not compared: {'; '.join(part.left)}" if part is not None and part.left else ""
        return GateCheck(budget.text, "passed", f"no difference{small}{left}")
    # "step" and "loss" are the step and the final loss, others a part of their name
    named = [metric for metric in found.metrics if metric.kind == name]
    named += [metric for metric in found.metrics if name in metric.name.lower()]
    if not named:
        names = ", ".join(metric.name for metric in found.metrics) or "none"
        return GateCheck(budget.text, "unmeasured", f"the runs share no such metric; they share: {names}")
    metric = named[0]
    if metric.lost_b > metric.lost_a:
        return GateCheck(budget.text, "failed", f"{metric.name} is no number in {plural(metric.lost_b, 'run')} of B")
    # how much worse B is, and the least of it by the interval; relative to A
    sign = 1 if metric.less_is_better else -1
    end = metric.low if metric.less_is_better else metric.high
    size = 1.0 if metric.is_ratio else abs(sum(metric.values_a) / len(metric.values_a)) or 1.0
    change, sure = sign * metric.effect / size, None if end is None else sign * end / size
    several = len(metric.values_a) + len(metric.values_b) > 2
    # of one run against one, times count from 3 % on, outside their interval
    answer = next((part for part in found.parts if part.name == "durations"), None)
    is_time = metric.kind in ("step", "part") and answer is not None
    stands_out = not is_time or any(difference.kind == "durations-differ" for difference in found.differences)
    counts = metric.kind == "loss" or (change >= LEAST_CHANGE and (sure is None or sure > 0) and stands_out)
    failed = sure is not None and sure > limit if several else change > limit and counts
    reason = f"{metric.name} {change_text(metric)}{f' ({interval_text(metric)})' if metric.low is not None else ''}"
    if not failed and several and metric.smallest_effect is not None and metric.smallest_effect > limit:
        reason += f"; this many runs show {smallest_text(metric)} or more"
    if not several and change > limit and counts is False:
        if answer is not None and is_time and not answer.is_compared:
            return GateCheck(budget.text, "unmeasured", f"{reason}; {answer.answer}: too few steps for a budget")
        noise = f"; {answer.name}: {answer.answer}" if answer is not None and is_time else ""
        reason += f"{noise}; of one run a side only 3 % and more counts, of steps that are apart"
    return GateCheck(budget.text, "failed" if failed else "passed", reason)


def candidates_text(runs: Sequence[str], groups: RunGroups | None) -> str:
    """The candidates that show a difference, if these are not all: "in B1, B3 of 4"."""
    if groups is None or not runs or set(runs) >= set(groups.candidates):
        return ""
    return f"in {', '.join(runs)} of {len(groups.candidates)}"
