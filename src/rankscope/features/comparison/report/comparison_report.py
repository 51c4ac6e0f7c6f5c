"""The comparison of runs as text, Markdown and JSON: the headline first, then the parts, then causes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from rankscope import __version__
from rankscope.analysis.host_stacks import own_frames
from rankscope.features.comparison.report.sides_section import (
    gate_blocks,
    gate_headline,
    gate_json,
    groups_json,
    groups_lines,
    metric_json,
    metric_text,
    runs_sections,
)
from rankscope.features.comparison.rules.model import (
    CauseAction,
    ComparedPart,
    Hypothesis,
    RunComparison,
    RunDifference,
)
from rankscope.features.comparison.rules.run_statistics import candidates_text
from rankscope.report.blocks import Card, FindingDetail, Grid
from rankscope.report.json import SCHEMA, dump_json, escaped_json
from rankscope.report.markdown import markdown_block, markdown_section
from rankscope.schema import Frame
from rankscope.text.escaping import markdown, plain
from rankscope.text.secrets import hide

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


# Text for a terminal.


def comparison_text(found: RunComparison) -> str:
    """The comparison as text of 80 columns."""
    return "\n".join(line.rstrip() for line in _text_lines(found)) + "\n"


def _text_lines(found: RunComparison) -> Iterator[str]:
    yield from _head(found)
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


def _head(found: RunComparison) -> Iterator[str]:
    """The gate, the headline and the runs."""
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


# Markdown for an issue.


def comparison_markdown(found: RunComparison) -> str:
    """The comparison as GitHub-flavoured Markdown in which nothing from a file can act as markup."""
    return "\n\n".join(_blocks(found)) + "\n"


def _blocks(found: RunComparison) -> Iterator[str]:
    yield f"# {_inline(found.headline)}"
    for block in gate_blocks(found.gate):
        yield from markdown_block(block)
    runs = [(run.label, hide(run.title), f"{run.world_size or 'unknown'}", hide(run.verdict)) for run in found.runs]
    yield from markdown_block(Grid(head=("run", "path", "ranks", "verdict"), rows=runs))
    parts = [(part.name, hide(part.answer)) for part in found.parts]
    yield from markdown_block(Grid(head=("compared", "answer"), rows=parts))
    for part in found.parts:
        yield from _lines_of(part)
    for section in runs_sections(found):
        yield from markdown_section(section)
    for number, one in enumerate(found.differences[:MOST_DIFFERENCES], 1):
        some = candidates_text(one.runs, found.groups)
        lines = [hide(line) for line in _some((some, *one.details) if some else one.details, MOST_LINES)]
        details = [FindingDetail("", "", lines, "list")]
        for label, frames in (("A", one.stacks.in_a), ("B", one.stacks.in_b)):
            details.append(FindingDetail(f"in {label}", f"Stack in {label}", _frames(frames), "frames"))
        yield from markdown_block(Card(number=number, kind=one.kind, title=hide(one.title), details=details))
    if found.hypotheses:
        yield "## What may be the cause"
    for cause in found.hypotheses[:MOST_HYPOTHESES]:
        yield f"**{_inline(cause.cause)}**"
        yield "\n".join(f"- {label}: {_inline(text)}" for label, text in _reasons(cause))
    yield f"*Made with rankscope {__version__}.*"


def _lines_of(part: ComparedPart) -> Iterator[str]:
    if part.lines:
        yield f"**{part.name.capitalize()}**"
        yield from _bullets(part.lines)


def _bullets(lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield "\n".join(f"- {_inline(line)}" for line in _some(lines, MOST_LINES))


def _inline(text: str) -> str:
    return markdown(hide(text))


# JSON for programs.


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
