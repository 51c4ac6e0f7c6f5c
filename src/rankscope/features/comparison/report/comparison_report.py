"""The comparison of runs as text, Markdown and JSON: the headline, then the parts, causes, and metrics over runs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from rankscope import __version__
from rankscope.analysis.stack_frames import own_frames
from rankscope.features.comparison.rules.model import (
    CauseAction,
    GateCheck,
    Hypothesis,
    MetricEffect,
    Outlier,
    RunComparison,
    RunDifference,
    RunGroups,
)
from rankscope.features.comparison.rules.run_statistics import (
    VERDICTS,
    candidates_text,
    change_text,
    interval_text,
    smallest_text,
    value_text,
)
from rankscope.report.json import SCHEMA, dump_json, escaped_json
from rankscope.schema import Frame
from rankscope.text.escaping import code_block, markdown, plain
from rankscope.text.secrets import hide
from rankscope.text.wording import clipped, plural

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


def groups_lines(found: RunComparison) -> Iterator[tuple[str, str]]:
    """Label and text of the lines on several runs, for people."""
    groups = found.groups
    if groups is None:
        return
    yield "runs", groups.power
    for one in groups.agreement:
        yield "agree", f"{one.aspect}: {one.shown}"
    for kind, outliers in (("outlier", groups.outlier_runs), ("rank", groups.outlier_ranks)):
        for outlier in outliers[:MOST_OUTLIERS]:
            yield kind, outlier.title
        if len(outliers) > MOST_OUTLIERS:
            yield kind, f"({len(outliers) - MOST_OUTLIERS:,} more in the JSON report)"
    if groups.also_between_baselines:
        who = "baselines" if len(groups.baselines) > 1 else "candidates"
        yield "noise", f"also between {who}: {'; '.join(one.title for one in groups.also_between_baselines)}"


def metric_rows(found: RunComparison) -> list[tuple[str, ...]]:
    """The head and one row for each metric, steps first; without groups or metrics nothing."""
    groups, shown = found.groups, found.metrics[:MOST_METRICS]
    if groups is None or not shown:
        return []
    if not groups.pooled:
        width = min(len(groups.candidates), MOST_VALUES)
        return [("metric", "A", *groups.candidates[:width]), *(_single_row(one, width) for one in shown)]
    return [_HEADS, *(_pooled_row(one) for one in shown)]


def _single_row(one: MetricEffect, width: int) -> tuple[str, ...]:
    values = [value_text(value, one.unit) for value in (*one.values_a, *one.values_b)]
    return (one.name, *values[: width + 1], *("" for _ in range(width + 1 - len(values))))


def _pooled_row(one: MetricEffect) -> tuple[str, ...]:
    a, b = (value_text(sum(own) / len(own), one.unit) if own else "-" for own in (one.values_a, one.values_b))
    return one.name, a, b, change_text(one), interval_text(one), smallest_text(one), VERDICTS[one.verdict]


def metric_text(found: RunComparison, width: int) -> Iterator[str]:
    """The table of metrics as lines of at most `width` columns; a name that is too long has a line of its own."""
    rows = metric_rows(found)
    if not rows:
        return
    sizes = [max(map(len, column)) for column in list(zip(*rows, strict=True))[1:]]
    room = max(width - sum(sizes) - 2 * len(sizes) - 2, 6)
    for row in rows:
        cells = "".join(f"  {cell:>{size}}" for cell, size in zip(row[1:], sizes, strict=True))
        if len(row[0]) > room:
            yield f"  {clipped(row[0], width - 2)}"
        yield f"  {row[0] if len(row[0]) <= room else '':<{room}}{cells}".rstrip()
    left = len(found.metrics) - MOST_METRICS
    if left > 0:
        yield f"  ({left:,} more in the JSON report)"
    if rows[0] == _HEADS:
        yield f"  {LEAST}"


def gate_blocks(checks: Sequence[GateCheck]) -> Iterator[str]:
    """The table of a gate as blocks of Markdown."""
    if checks:
        yield f"**{gate_headline(checks)}**"
        cells = [(_inline(one.budget), one.outcome, _inline(one.reason)) for one in checks]
        yield _table([("budget", "outcome", "reason"), *cells])


def sides_blocks(found: RunComparison) -> Iterator[str]:
    """All that is known of several runs, as blocks of Markdown."""
    lines = list(groups_lines(found))
    if lines:
        yield "## Runs"
        yield "\n".join(f"- {label}: {_inline(text)}" for label, text in lines)
    rows = metric_rows(found)
    if rows:
        yield "## Metrics over runs"
        # numbers are of rankscope's own; names are those of files
        yield _table([(_inline(row[0]), *row[1:]) for row in rows])
        if rows[0] == _HEADS:
            yield LEAST


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *others = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "| " + " | ".join("---" for _ in rows[0]) + " |", *others])


def _inline(text: str) -> str:
    return markdown(hide(text)) if text else ""


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
        "name": one.name,
        "metric": hide(one.metric),
        "title": hide(one.title),
        "size": one.size,
        "runs": one.runs,
        "in_seconds": one.in_seconds,
    }


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


WIDTH = 80
MOST_LINES = 8
"""Most lines of a part in a report for people."""
MOST_DIFFERENCES = 12
MOST_RUNS = 8
"""Most runs at the head of a text."""
MOST_HYPOTHESES = 5
MOST_FRAMES = 4
_LABEL_WIDTH = 13


def _shown(text: str) -> str:
    """Text as it may be shown."""
    return plain(hide(text))


def _some(lines: Sequence[str], most: int) -> list[str]:
    """The first lines, and how many more there are."""
    left = len(lines) - most
    return [*lines[:most], f"({left:,} more in the JSON report)"] if left > 0 else list(lines)


def _frames(frames: Sequence[Frame]) -> list[str]:
    own = own_frames(frames) or frames
    return [f"{frame.function} ({frame.file}:{frame.line})" for frame in own[:MOST_FRAMES]]


def _reasons(one: Hypothesis) -> list[tuple[str, str]]:
    """The lines below a cause, each with its label."""
    return [
        *(("for", text) for text in one.speaks_for),
        *(("against", text) for text in one.speaks_against),
        ("decide", one.experiment),
    ]


def comparison_text(found: RunComparison) -> str:
    """The comparison as text of 80 columns."""
    return "\n".join(line.rstrip() for line in _text_lines(found)) + "\n"


def _text_lines(found: RunComparison) -> Iterator[str]:
    # the gate, the headline and the runs
    if found.gate:
        yield from _wrapped(gate_headline(found.gate))
        for check in found.gate:
            yield from _labelled(check.outcome, f"{check.budget}: {check.reason}", hang=2)
        yield ""
    yield from _wrapped(found.headline)
    for run in found.runs[:MOST_RUNS]:
        yield from _labelled(run.label, f"{run.title}: {run.verdict}")
    if len(found.runs) > MOST_RUNS:
        yield f"  ({len(found.runs) - MOST_RUNS:,} more runs in the JSON report)"
    yield ""
    for part in found.parts:
        yield from _labelled(part.name, part.answer)
        for line in _some(part.lines, MOST_LINES):
            yield from _labelled("", f"- {line}", hang=2)
    for label, text in groups_lines(found):
        yield from _labelled(label, text, hang=2)
    yield from (_shown(line) for line in metric_text(found, WIDTH))
    for number, one in enumerate(found.differences[:MOST_DIFFERENCES], 1):
        yield "-" * WIDTH
        yield from _wrapped(f"{number}. {one.kind}: {one.title}", hang=3)
        if some := candidates_text(one.runs, found.groups):
            yield from _labelled("", some)
        yield from _below(one)
    left = len(found.differences) - MOST_DIFFERENCES
    if left > 0:
        yield f"({left:,} more in the JSON report)"
    if found.hypotheses:
        yield "-" * WIDTH
        yield "Why? What may be the cause, and what decides:"
    for cause in found.hypotheses[:MOST_HYPOTHESES]:
        yield from _wrapped(f"- {cause.cause}", hang=2)
        for label, text in _reasons(cause):
            yield from _labelled(label, text)


def _below(one: RunDifference) -> Iterator[str]:
    for line in _some(one.details, MOST_LINES):
        yield from _labelled("", line)
    for label, frames in (("in A", one.stacks.in_a), ("in B", one.stacks.in_b)):
        for number, line in enumerate(_frames(frames)):
            yield from _labelled("" if number else label, line)


def _wrapped(text: str, hang: int = 0) -> list[str]:
    lines = textwrap.TextWrapper(WIDTH, subsequent_indent=" " * hang, break_on_hyphens=False, break_long_words=False)
    return lines.wrap(_shown(text))


def _labelled(label: str, text: str, hang: int = 0) -> list[str]:
    indent = " " * _LABEL_WIDTH
    first = f"  {label}".ljust(_LABEL_WIDTH)
    lines = textwrap.TextWrapper(WIDTH, break_on_hyphens=False, break_long_words=False)
    lines.initial_indent, lines.subsequent_indent = first, indent + " " * hang
    return lines.wrap(_shown(text))


def comparison_markdown(found: RunComparison) -> str:
    """The comparison as GitHub-flavoured Markdown in which nothing from a file can act as markup."""
    return "\n\n".join(_blocks(found)) + "\n"


def _blocks(found: RunComparison) -> Iterator[str]:
    yield f"# {_inline(found.headline)}"
    yield from gate_blocks(found.gate)
    runs = [
        f"| {run.label} | {_inline(run.title)} | {run.world_size or 'unknown'} | {_inline(run.verdict)} |"
        for run in found.runs
    ]
    yield "\n".join(["| run | path | ranks | verdict |", "| --- | --- | --- | --- |", *runs])
    rows = [f"| {part.name} | {_inline(part.answer)} |" for part in found.parts]
    yield "\n".join(["| compared | answer |", "| --- | --- |", *rows])
    for part in found.parts:
        if part.lines:
            yield f"**{part.name.capitalize()}**"
            yield from _bullets(part.lines)
    yield from sides_blocks(found)
    for number, one in enumerate(found.differences[:MOST_DIFFERENCES], 1):
        yield f"## {number}. {one.kind}: {_inline(one.title)}"
        some = candidates_text(one.runs, found.groups)
        yield from _bullets((some, *one.details) if some else one.details)
        for label, frames in (("A", one.stacks.in_a), ("B", one.stacks.in_b)):
            if frames:
                yield f"**Stack in {label}** (innermost first)"
                yield code_block(_frames(frames))
    if found.hypotheses:
        yield "## What may be the cause"
    for cause in found.hypotheses[:MOST_HYPOTHESES]:
        yield f"**{_inline(cause.cause)}**"
        yield "\n".join(f"- {label}: {_inline(text)}" for label, text in _reasons(cause))
    yield f"*Made with rankscope {__version__}.*"


def _bullets(lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield "\n".join(f"- {_inline(line)}" for line in _some(lines, MOST_LINES))


def comparison_json(found: RunComparison, ascii_only: bool = False) -> bytes:
    """The comparison as one JSON object; what differs stands in `differences`, the earliest first."""
    raw = dump_json(
        {
            "schema": SCHEMA,
            "tool": {"name": "rankscope", "version": __version__},
            "headline": hide(found.headline),
            "same": found.is_same,
            "runs": [
                {"label": run.label, "path": run.title, "world_size": run.world_size, "verdict": hide(run.verdict)}
                for run in found.runs
            ],
            "compared": [
                {"name": part.name, "state": part.state.value, "summary": hide(part.answer),
                 "lines": list(map(hide, part.lines)), "not_compared": list(map(hide, part.left))}
                for part in found.parts
            ],
            "differences": list(map(_difference_json, found.differences)),
            "hypotheses": [
                {"id": hide(one.id), "cause": hide(one.cause), "for": list(map(hide, one.speaks_for)),
                 "against": list(map(hide, one.speaks_against)), "experiment": hide(one.experiment),
                 "kinds": one.kinds, "ranks": one.ranks, "action": _action_json(one.action)}
                for one in found.hypotheses
            ],
            "metrics": list(map(metric_json, found.metrics)),
            "groups": groups_json(found.groups, _difference_json),
            "gate": list(map(gate_json, found.gate)),
        }
    )  # fmt: skip
    return escaped_json(raw) if ascii_only else raw


def _action_json(action: CauseAction | None) -> dict[str, Any] | None:
    if action is None:
        return None
    value = hide(action.value) if action.value is not None else None
    return {"kind": action.kind, "name": action.name, "value": value}


def _difference_json(one: RunDifference) -> dict[str, Any]:
    stacks = {
        label: [{"function": frame.function, "file": frame.file, "line": frame.line} for frame in frames]
        for label, frames in (("a", one.stacks.in_a), ("b", one.stacks.in_b))
    }
    return {
        "kind": one.kind,
        "title": hide(one.title),
        "ranks": one.ranks,
        "step": one.step,
        "operation": one.operation,
        "details": list(map(hide, one.details)),
        "stacks": stacks,
        "runs": one.runs,
    }
