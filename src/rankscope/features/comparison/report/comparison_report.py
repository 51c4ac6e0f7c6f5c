"""The comparison of runs as text, Markdown and JSON: the headline first, then the parts, then causes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from rankscope import __version__
from rankscope.analysis.host_stacks import own_frames
from rankscope.features.comparison.report.sides_section import (
    answer_text,
    gate_blocks,
    gate_json,
    groups_json,
    metric_json,
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
from rankscope.report.blocks import Card, FindingDetail, Grid, Prose, Records, Section
from rankscope.report.json import SCHEMA, TOOL, FrameObject, dump_json, escaped_json
from rankscope.report.markdown import markdown_block, markdown_section
from rankscope.report.text import section_lines, text_of
from rankscope.schema import Frame
from rankscope.text.escaping import markdown
from rankscope.text.secrets import hide

MOST_LINES = 8
"""Most lines of a part in a report for people."""
MOST_DIFFERENCES = 12
MOST_RUNS = 8
"""Most runs at the head of a text."""
MOST_HYPOTHESES = 5
MOST_FRAMES = 4


def _some(lines: Sequence[str], most: int) -> list[str]:
    """The first lines, and how many more there are."""
    left = len(lines) - most
    return [*lines[:most], f"({left:,} more in the JSON report)"] if left > 0 else list(lines)


def _frames(frames: Sequence[Frame]) -> list[str]:
    shown_frames = own_frames(frames) or frames
    return [f"{frame.function} ({frame.file}:{frame.line})" for frame in shown_frames[:MOST_FRAMES]]


def _reasons(one: Hypothesis) -> list[tuple[str, str]]:
    """The lines below a cause, each with its label."""
    return [
        *(("for", text) for text in one.speaks_for),
        *(("against", text) for text in one.speaks_against),
        ("decide", one.experiment),
    ]


# Text for a terminal.


def comparison_text(comparison: RunComparison) -> str:
    """The comparison as text of 80 columns."""
    parts = [section_lines(section, ruled=False) for section in _head_sections(comparison)]
    parts += map(section_lines, runs_sections(comparison))
    if comparison.differences:
        left = len(comparison.differences) - MOST_DIFFERENCES
        more = [Prose(f"({left:,} more in the JSON report)")] if left > 0 else []
        parts.append(section_lines(Section("", (*_difference_cards(comparison), *more)), ruled=False))
    if comparison.hypotheses:
        causes = [
            Card(
                title=hide(cause.cause),
                details=[FindingDetail(label, "", [hide(text)]) for label, text in _reasons(cause)],
            )
            for cause in comparison.hypotheses[:MOST_HYPOTHESES]
        ]
        parts.append(section_lines(Section("Why? What may be the cause, and what decides:", tuple(causes))))
    return text_of(chain.from_iterable(parts))


def _head_sections(found: RunComparison) -> Iterator[Section]:
    """The gate, the headline with the runs, and the answer of each part."""
    if found.gate:
        checks = [(check.outcome, check.budget, hide(check.reason)) for check in found.gate]
        yield Section(hide(answer_text(found)), (Records(head=(), rows=checks, labelled=True),))
    runs = [(run.label, f"{hide(run.title)}: {hide(run.verdict)}") for run in found.runs[:MOST_RUNS]]
    left = len(found.runs) - MOST_RUNS
    more = f"({left:,} more runs in the JSON report)" if left > 0 else ""
    yield Section("" if found.gate else hide(found.headline), (Records(head=(), rows=runs, labelled=True, more=more),))
    rows = [
        (label, hide(text))
        for part in found.parts
        for label, text in ((part.name, part.answer), *(("", f"- {line}") for line in _some(part.lines, MOST_LINES)))
    ]
    yield Section("", (Records(head=(), rows=rows, labelled=True),))


def _difference_cards(comparison: RunComparison) -> Iterator[Card]:
    """The first differences, each with its details and the stacks of both runs."""
    for number, difference in enumerate(comparison.differences[:MOST_DIFFERENCES], 1):
        some = candidates_text(difference.runs, comparison.groups)
        lines = [hide(line) for line in _some((some, *difference.details) if some else difference.details, MOST_LINES)]
        details = [FindingDetail("", "", lines, "list")]
        for label, frames in (("A", difference.stacks.in_a), ("B", difference.stacks.in_b)):
            details.append(FindingDetail(f"in {label}", f"Stack in {label}", _frames(frames), "frames"))
        yield Card(number=number, kind=difference.kind, title=hide(difference.title), details=details)


def _cause_card(one: Hypothesis) -> Card:
    return Card(
        title=hide(one.cause), details=[FindingDetail(label, "", [hide(text)]) for label, text in _reasons(one)]
    )


# Markdown for an issue.


def comparison_markdown(found: RunComparison) -> str:
    """The comparison as GitHub-flavoured Markdown in which nothing from a file can act as markup."""
    return "\n\n".join(_blocks(found)) + "\n"


def _blocks(found: RunComparison) -> Iterator[str]:
    yield f"# {_inline(answer_text(found))}"
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
    for card in _difference_cards(found):
        yield from markdown_block(card)
    if found.hypotheses:
        yield "## What may be the cause"
    for cause in found.hypotheses[:MOST_HYPOTHESES]:
        yield f"**{_inline(cause.cause)}**"
        yield "\n".join(f"- {label}: {_inline(text)}" for label, text in _reasons(cause))
    yield f"*Made with rankscope {__version__}.*"


def _lines_of(part: ComparedPart) -> Iterator[str]:
    if part.lines:
        yield f"**{part.name.capitalize()}**"
        yield "\n".join(f"- {_inline(line)}" for line in _some(part.lines, MOST_LINES))


def _inline(text: str) -> str:
    return markdown(hide(text))


# JSON for programs.


def comparison_json(comparison: RunComparison, ascii_only: bool = False) -> bytes:
    """The comparison as one JSON object; what differs stands in `differences`, the earliest first."""
    raw = dump_json(
        {
            "schema": SCHEMA,
            "tool": TOOL,
            "headline": hide(comparison.headline),
            "same": comparison.is_same,
            "runs": [
                {"label": run.label, "path": run.title, "world_size": run.world_size, "verdict": hide(run.verdict)}
                for run in comparison.runs
            ],
            "compared": [
                {"name": part.name, "state": part.state.value, "summary": hide(part.answer),
                 "lines": list(map(hide, part.lines)), "not_compared": list(map(hide, part.left))}
                for part in comparison.parts
            ],
            "differences": list(map(_difference_json, comparison.differences)),
            "hypotheses": [
                {"id": hide(cause.id), "cause": hide(cause.cause), "for": list(map(hide, cause.speaks_for)),
                 "against": list(map(hide, cause.speaks_against)), "experiment": hide(cause.experiment),
                 "kinds": cause.kinds, "ranks": cause.ranks, "action": _action_json(cause.action)}
                for cause in comparison.hypotheses
            ],
            "metrics": list(map(metric_json, comparison.metrics)),
            "groups": groups_json(comparison.groups, _difference_json),
            "gate": list(map(gate_json, comparison.gate)),
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
        label: list(map(FrameObject.of, frames)) for label, frames in (("a", one.stacks.in_a), ("b", one.stacks.in_b))
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
