"""Words for metrics over runs: what changed, how sure that is, how many runs would do, and which budgets are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rankscope.features.comparison.rules.model import (
    ComparedPart,
    GateCheck,
    MetricEffect,
    Outlier,
    PartState,
    RunComparison,
    RunDifference,
    RunGroups,
)
from rankscope.features.comparison.rules.run_statistics import OutlyingRun, Sides, runs_needed, smallest_p
from rankscope.features.comparison.rules.time_comparison import LEAST_CHANGE
from rankscope.text.wording import plural

LEVEL_TEXT = "95 %"


def value_text(value: float, unit: str) -> str:
    """A value of a metric, to tell runs apart that differ by a percent: "1.312 s", "83.4 ms", "2,048/s", "2.4512"."""
    if unit != "s":
        return f"{value:,.0f}{unit}" if abs(value) >= 1e4 else f"{value:,.5g}{unit}"
    size, name = next((pair for pair in ((1.0, "s"), (1e-3, "ms")) if abs(value) >= pair[0]), (1e-6, "us"))
    return f"{value / size:.4g} {name}"


def change_text(one: MetricEffect) -> str:
    """The change from A to B: "+12.1 %", or in the unit of the metric."""
    return _change(one, one.effect)


def _change(one: MetricEffect, value: float) -> str:
    return f"{value * 100:+z.1f} %" if one.is_ratio else f"{value:+.4g}"


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


# Differences and parts.


def metric_differences(effects: Sequence[MetricEffect]) -> Iterator[RunDifference]:
    """Metrics that differ over runs: significant ones, and clear changes of steps where runs are too few for that."""
    for one in effects:
        if one.kind == "part":
            continue
        unsure = "" if one.verdict == "differs" else "; too few runs to call it significant"
        if one.verdict == "differs" or _is_clear(one):
            kind = "values-differ" if one.kind == "loss" else "durations-differ"
            yield RunDifference(kind, f"{_title(one)}{unsure}", details=(_detail(one),))  # type: ignore[arg-type]


def _is_clear(one: MetricEffect) -> bool:
    """Whether a step changes by 3 % or more, and its interval over runs excludes equality."""
    return one.kind == "step" and one.verdict == "too-few-runs" and _is_apart(one) and abs(one.effect) >= LEAST_CHANGE


def _is_apart(one: MetricEffect) -> bool:
    """Whether the interval is known and excludes equality."""
    return one.low is not None and one.high is not None and not one.low <= 0 <= one.high


def _title(one: MetricEffect) -> str:
    size = f"{abs(one.effect) * 100:.1f} %" if one.is_ratio else f"{abs(one.effect):.4g}"
    more, less = ("slower", "faster") if one.kind == "step" else ("higher", "lower")
    return f"{one.name}: B is {size} {more if one.effect > 0 else less} over runs ({interval_text(one)})"


def _detail(one: MetricEffect) -> str:
    runs = f"{len(one.values_a)} against {plural(len(one.values_b), 'run')}"
    p = f", p {one.p:.2g}, over all metrics {one.q:.2g}" if one.p is not None and one.q is not None else ""
    return f"{LEVEL_TEXT} interval over {runs}{p}"


def metrics_part(effects: Sequence[MetricEffect]) -> ComparedPart:
    """The answer of durations over runs."""
    steps = [one for one in effects if one.kind == "step"]
    timed = [one for one in effects if one.unit == "s"]
    if not timed:
        return ComparedPart("durations", PartState.NOT_COMPARED, "no durations that the runs share")
    if not steps:
        return ComparedPart(
            "durations", PartState.NOT_COMPARED, f"{plural(len(timed), 'part')} of steps; no times of steps"
        )
    first = steps[0]
    words = f"{change_text(first)} ({interval_text(first)} over runs)" if first.low is not None else change_text(first)
    few = f"too few runs to {'call it significant' if _is_apart(first) else 'tell'}"
    verdict = few if first.verdict == "too-few-runs" else VERDICTS[first.verdict]
    return ComparedPart("durations", _state(steps), f"{first.name}: {words}; {verdict}")


def _state(steps: Sequence[MetricEffect]) -> PartState:
    if any(one.verdict == "differs" or _is_clear(one) for one in steps):
        return PartState.DIFFERS
    changed = any(abs(one.effect) >= LEAST_CHANGE for one in steps)
    return PartState.UNCOUNTED if changed else PartState.EQUAL


def power_text(sides: Sides, metrics: int) -> str:
    """A sentence on the smallest p of these numbers of runs, and on how many would do."""
    runs_a, runs_b = map(len, sides)
    least = smallest_p(runs_a, runs_b)
    needed, alone = runs_needed(metrics), runs_needed(1)
    begin = f"{runs_a} against {plural(runs_b, 'run')}: the smallest p is {least:.2g}"
    if not metrics:
        return f"{runs_a} against {plural(runs_b, 'run')}: they share no metric"
    enough = f"{needed} of each side would do for {plural(metrics, 'metric')}"
    if least > 0.05:
        other = f" ({alone} for one)" if alone < needed else ""
        return f"{begin}, so nothing can be significant; {enough}{other}"
    if least * metrics > 0.05:
        return f"{begin}, so one metric of {metrics} alone cannot be significant; {enough}"
    return f"{begin}; significant is 0.05 over all {plural(metrics, 'metric')}"


# Runs that differ from their peers.


def outlier_of(one: OutlyingRun, labels: Sequence[str]) -> Outlier:
    """The run that is away from its peers, in words."""
    metric, value = one.metric, one.metric.values[one.run]
    size = f"{abs(one.change) * 100:.1f} % {'more' if one.change > 0 else 'less'}"
    shown = value_text(value, metric.unit), value_text(one.peers, metric.unit)
    return Outlier(
        labels[one.run], metric.name, f"{labels[one.run]}: {metric.name} is {shown[0]}, its peers {shown[1]}: {size}",
        one.change,
    )  # fmt: skip


# Budgets of a gate.

_FACTS = {
    "schedule": "schedule-differs", "settings": "settings-differ", "values": "values-differ",
    "outcome": "outcome-differs",
}  # fmt: skip
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
    return tuple(_fact_check(one, found) if one.limit is None else _metric_check(one, found) for one in budgets)


def _fact_check(budget: Budget, found: RunComparison) -> GateCheck:
    own = [one for one in found.differences if one.kind == _FACTS[budget.name]]
    if own:
        return GateCheck(budget.text, "failed", own[0].title)
    part = next((one for one in found.parts if one.name == budget.name), None)
    if part is not None and not part.is_compared:
        return GateCheck(budget.text, "unmeasured", part.answer)
    small = " that counts" if part is not None and part.state is PartState.UNCOUNTED else ""
    left = f"; not compared: {'; '.join(part.left)}" if part is not None and part.left else ""
    return GateCheck(budget.text, "passed", f"no difference{small}{left}")


def _metric_check(budget: Budget, found: RunComparison) -> GateCheck:
    one, limit = _metric(budget.name, found.metrics), budget.limit or 0.0
    if one is None:
        names = ", ".join(other.name for other in found.metrics) or "none"
        return GateCheck(budget.text, "unmeasured", f"the runs share no such metric; they share: {names}")
    if one.lost_b > one.lost_a:
        return GateCheck(budget.text, "failed", f"{one.name} is no number in {plural(one.lost_b, 'run')} of B")
    change, sure = _worse(one)
    several = len(one.values_a) + len(one.values_b) > 2
    failed = sure is not None and sure > limit if several else change > limit and _counts(one, change, sure)
    reason = f"{one.name} {change_text(one)}{f' ({interval_text(one)})' if one.low is not None else ''}"
    if not failed and several and one.smallest_effect is not None and one.smallest_effect > limit:
        reason += f"; this many runs show {smallest_text(one)} or more"
    if not failed and not several and change > limit:
        reason += "; of one run a side only 3 % and more counts"
    return GateCheck(budget.text, "failed" if failed else "passed", reason)


def _metric(name: str, metrics: Sequence[MetricEffect]) -> MetricEffect | None:
    """The metric of a budget: "step" and "loss" are the step and the final loss, others a part of their name."""
    own = [one for one in metrics if one.kind == name]
    return next(iter(own), None) or next((one for one in metrics if name in one.name.lower()), None)


def _worse(one: MetricEffect) -> tuple[float, float | None]:
    """How much worse B is, and the least of it by the interval; relative to A."""
    sign = 1 if one.less_is_better else -1
    end = one.low if one.less_is_better else one.high
    size = 1.0 if one.is_ratio else abs(sum(one.values_a) / len(one.values_a)) or 1.0
    return sign * one.effect / size, None if end is None else sign * end / size


def _counts(one: MetricEffect, change: float, sure: float | None) -> bool:
    """Whether one run against one shows that it is worse: of times only from 3 % on, outside their interval."""
    return one.kind == "loss" or (change >= LEAST_CHANGE and (sure is None or sure > 0))


def candidates_text(runs: Sequence[str], groups: RunGroups | None) -> str:
    """The candidates that show a difference, if these are not all: "in B1, B3 of 4"."""
    if groups is None or not runs or set(runs) >= set(groups.candidates):
        return ""
    return f"in {', '.join(runs)} of {len(groups.candidates)}"
