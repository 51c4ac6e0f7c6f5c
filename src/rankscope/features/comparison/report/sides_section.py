"""Several runs in a report: metrics over runs, runs that agree, outliers, and the table of a gate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rankscope.features.comparison.rules.model import GateCheck, MetricEffect, Outlier, RunComparison, RunGroups
from rankscope.features.comparison.rules.run_statistics import (
    VERDICTS,
    change_text,
    interval_text,
    smallest_text,
    value_text,
)
from rankscope.report.blocks import Block, Grid, Prose, Records, Section
from rankscope.text.secrets import hide
from rankscope.text.wording import plural

MOST_METRICS = 12
"""Most metrics in a report for people."""
MOST_OUTLIERS = 4
MOST_VALUES = 4
"""Most values of single runs in a row."""
_HEADS = ("metric", "A", "B", "change", "95 % interval", "least", "verdict")
LEAST = "least: the smallest change that this many runs show in 80 % of cases"


def gate_headline(checks: Sequence[GateCheck]) -> str:
    """One line on a gate: "gate failed: 1 of 3 budgets is exceeded"."""
    failed, unknown = (sum(one.outcome == name for one in checks) for name in ("failed", "unmeasured"))
    if failed:
        return f"gate failed: {failed} of {len(checks)} budgets {'is' if failed == 1 else 'are'} exceeded"
    if unknown:
        return f"gate not decided: {unknown} of {len(checks)} budgets {'is' if unknown == 1 else 'are'} not measured"
    return f"gate passed: {plural(len(checks), 'budget')} kept"


def answer_text(found: RunComparison) -> str:
    """The answer in one sentence: that of the gate, if there is one, with what differs whatever the budgets say."""
    return f"{gate_headline(found.gate)}; {found.headline}" if found.gate else found.headline


def groups_lines(comparison: RunComparison) -> Iterator[tuple[str, str]]:
    """Label and text of the lines on several runs, for people."""
    groups = comparison.groups
    if groups is None:
        return
    yield "runs", groups.power
    for fact in groups.agreement:
        yield "agree", f"{fact.aspect}: {fact.shown}"
    for kind, outliers in (("outlier", groups.outlier_runs), ("rank", groups.outlier_ranks)):
        for outlier in outliers[:MOST_OUTLIERS]:
            yield kind, outlier.title
        if len(outliers) > MOST_OUTLIERS:
            yield kind, f"({len(outliers) - MOST_OUTLIERS:,} more in the JSON report)"
    if groups.also_between_baselines:
        who = "baselines" if len(groups.baselines) > 1 else "candidates"
        yield (
            "noise",
            f"also between {who}: {'; '.join(difference.title for difference in groups.also_between_baselines)}",
        )


# Metrics as a table.


def metric_rows(comparison: RunComparison) -> list[tuple[str, ...]]:
    """The head and one row for each metric, steps first; without groups or metrics nothing."""
    groups, shown = comparison.groups, comparison.metrics[:MOST_METRICS]
    if groups is None or not shown:
        return []
    if not groups.pooled:
        width = min(len(groups.candidates), MOST_VALUES)
        return [("metric", "A", *groups.candidates[:width]), *(_single_row(metric, width) for metric in shown)]
    return [_HEADS, *(_pooled_row(metric) for metric in shown)]


def _single_row(one: MetricEffect, width: int) -> tuple[str, ...]:
    values = [value_text(value, one.unit) for value in (*one.values_a, *one.values_b)]
    return (one.name, *values[: width + 1], *("" for _ in range(width + 1 - len(values))))


def _pooled_row(metric: MetricEffect) -> tuple[str, ...]:
    a, b = (
        value_text(sum(values) / len(values), metric.unit) if values else "-"
        for values in (metric.values_a, metric.values_b)
    )
    return (
        metric.name,
        a,
        b,
        change_text(metric),
        interval_text(metric),
        smallest_text(metric),
        VERDICTS[metric.verdict],
    )


def gate_blocks(checks: Sequence[GateCheck]) -> Iterator[Block]:
    """The answer of a gate and the table of its budgets; nothing without a gate."""
    if checks:
        rows = [(one.budget, one.outcome, hide(one.reason)) for one in checks]
        marked = frozenset((at, 1) for at, one in enumerate(checks) if one.outcome != "passed")
        yield Grid(
            title=gate_headline(checks),
            head=("budget", "outcome", "reason"),
            rows=rows,
            numbers=(),
            marked=marked,
            wraps=True,
        )


def runs_sections(found: RunComparison) -> Iterator[Section]:
    """Sections on what several runs say about each other, and on metrics over them; none for two runs."""
    if lines := [(label, hide(text)) for label, text in groups_lines(found)]:
        yield Section("Runs", (Records(head=(), rows=lines, labelled=True),))
    if rows := metric_rows(found):
        head, *others = rows
        left = len(found.metrics) - MOST_METRICS
        more = f"{left:,} more are in the JSON report." if left > 0 else ""
        grid = Grid(head=head, rows=[(hide(row[0]), *row[1:]) for row in others], headed=True, more=more)
        yield Section("Metrics over runs", (grid, Prose(LEAST)) if head == _HEADS else (grid,))


# JSON.


def groups_json(groups: RunGroups | None, difference: Any) -> dict[str, Any] | None:
    """The groups as JSON; `difference` writes one difference."""
    if groups is None:
        return None
    return {
        "baselines": groups.baselines,
        "candidates": groups.candidates,
        "pooled": groups.pooled,
        "power": groups.power,
        "smallest_p": groups.smallest_p,
        "runs_needed": groups.runs_needed,
        "agreement": [{"aspect": one.aspect, "clusters": one.clusters} for one in groups.agreement],
        "outlier_runs": list(map(_outlier_json, groups.outlier_runs)),
        "outlier_ranks": list(map(_outlier_json, groups.outlier_ranks)),
        "also_between_baselines": list(map(difference, groups.also_between_baselines)),
    }


def _outlier_json(one: Outlier) -> dict[str, Any]:
    return {
        "name": one.name, "metric": hide(one.metric), "title": hide(one.title), "size": one.size, "runs": one.runs,
        "in_seconds": one.in_seconds,
    }  # fmt: skip


def metric_json(one: MetricEffect) -> dict[str, Any]:
    """One metric as JSON."""
    return {
        "name": hide(one.name), "unit": one.unit, "kind": one.kind, "is_ratio": one.is_ratio, "a": one.values_a,
        "b": one.values_b, "effect": one.effect, "low": one.low, "high": one.high, "p": one.p, "q": one.q,
        "smallest_effect": one.smallest_effect, "verdict": one.verdict, "lost_a": one.lost_a, "lost_b": one.lost_b,
    }  # fmt: skip


def gate_json(one: GateCheck) -> dict[str, Any]:
    """One budget as JSON."""
    return {"budget": one.budget, "outcome": one.outcome, "reason": hide(one.reason)}
