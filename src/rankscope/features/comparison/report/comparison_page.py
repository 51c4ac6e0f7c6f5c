"""The comparison of two runs as one HTML page with pictures, made of blocks as the page of a report is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import htpy as h
from htpy import Node

from rankscope import __version__
from rankscope.analysis.host_stacks import own_frames
from rankscope.features.comparison.report.comparison_charts import (
    heat_picture,
    lanes_picture,
    outliers,
    ratios_picture,
    scatter_picture,
    series_picture,
)
from rankscope.features.comparison.report.sides_section import gate_blocks, runs_sections
from rankscope.features.comparison.rules.model import (
    ComparisonPictures,
    Hypothesis,
    PartState,
    RunComparison,
    RunDifference,
    SettingRow,
)
from rankscope.features.comparison.rules.picture_data import MOST_POINTS
from rankscope.features.comparison.rules.run_statistics import candidates_text
from rankscope.report.blocks import Block, Bullets, Card, FindingDetail, Grid, Picture, Prose, Section
from rankscope.report.html import SECRETS, draw, draw_section, html_page, names_line
from rankscope.report.svg_marks import shown
from rankscope.schema import Frame
from rankscope.text.wording import plural, rank_ranges

MOST_DIFFERENCES = 12
MOST_HYPOTHESES = 8
MOST_FRAMES = 8
MOST_SETTINGS = 200
MOST_LINES = 40
"""Most lines of a part or a difference."""
_KINDS = {
    "schedule": "schedule-differs",
    "settings": "settings-differ",
    "values": "values-differ",
    "durations": "durations-differ",
}
_STATES = {
    PartState.DIFFERS: "differs",
    PartState.UNCOUNTED: "none that counts",
    PartState.NOT_COMPARED: "not compared",
    PartState.EQUAL: "no difference",
}
"""The answer of a part in some words."""


def comparison_page(found: RunComparison, is_redacted: bool = False) -> str:
    """The page; `is_redacted` tells that names were replaced before."""
    numbers = count(1)
    blocks = [node for block in _head_blocks(found) for node in draw(block, numbers)]
    head = h.header[
        h.p(".tool")[f"rankscope diff {__version__}"],
        [node for block in gate_blocks(found.gate) for node in draw(block, numbers)],
        h.h1[shown(found.headline)],
        blocks,
        list(map(_next_step, found.hypotheses[:1])),
    ]
    body = h.main[head, [draw_section(section, numbers) for section in comparison_sections(found)]]
    return html_page(f"rankscope diff: {found.headline}", body, missing(found, is_redacted))


def _head_blocks(found: RunComparison) -> Iterator[Block]:
    """The runs, and the answer of each part."""
    runs = [
        (run.label, run.title, f"{run.world_size:,}" if run.world_size else "unknown", run.verdict)
        for run in found.runs
    ]
    yield Grid(head=("run", "path", "ranks", "verdict"), rows=runs, numbers=(), code=(1,), wraps=True)
    parts = [(part.name, _STATES[part.state], part.summary) for part in found.parts]
    marked = frozenset((at, 1) for at, part in enumerate(found.parts) if part.state is PartState.DIFFERS)
    yield Grid(head=("compared", "answer", "how much"), rows=parts, numbers=(), marked=marked, wraps=True)


def comparison_sections(comparison: RunComparison) -> Iterator[Section]:
    """The differences, their causes, what several runs say, then each part; a picture stands once."""
    pictures = part_pictures(comparison.pictures)
    cards: list[Block] = [
        _difference(number, difference, candidates_text(difference.runs, comparison.groups))
        for number, difference in enumerate(comparison.differences[:MOST_DIFFERENCES], 1)
    ]
    if cards:
        kind = comparison.differences[0].kind
        cards[1:1] = pictures.pop(next((part for part, of in _KINDS.items() if of == kind), ""), [])
    left = len(comparison.differences) - MOST_DIFFERENCES
    more = [Prose(f"{left:,} more are in the JSON report.")] if left > 0 else []
    yield Section("Differences, the earliest first", (*cards, *more))
    yield Section("Possible causes, and how to decide", tuple(map(_cause, comparison.hypotheses[:MOST_HYPOTHESES])))
    yield from runs_sections(comparison)
    for part in comparison.parts:
        drawn = pictures.pop(part.name, [])
        rows = comparison.pictures.settings if part.name == "settings" else ()
        if drawn or rows or part.lines:
            lines = _settings(rows) if rows else Bullets(_some(part.lines))
            yield Section(part.name.capitalize(), (Prose(part.answer), *drawn, lines))


def part_pictures(data: ComparisonPictures) -> dict[str, list[Picture]]:
    """The pictures of each part that its data allow."""
    # without a rank that stands apart, the times of ranks are noise
    apart = data.scatter is not None and bool(outliers(data.scatter.dots))
    maps = {one.kind: heat_picture(one) for one in data.heat_maps if apart or one.kind != "times"}
    drawn: dict[str, list[Picture | None]] = {
        "schedule": [lanes_picture(data.lanes), maps.get("schedule")],
        "values": [*map(series_picture, data.series), maps.get("values")],
        "durations": [
            ratios_picture(data.times),
            scatter_picture(data.scatter) if data.scatter else None,
            maps.get("times"),
        ],
    }
    return {part: [one for one in pictures if one is not None] for part, pictures in drawn.items()}


def _next_step(one: Hypothesis) -> Node:
    """The first of the causes in short, so that the first screen says what to do."""
    return h.p(".next")[
        "May be the cause: ",
        shown(one.cause),
        ". ",
        h.strong[f"To decide: {shown(one.experiment)}"],
    ]


def _difference(number: int, one: RunDifference, candidates: str) -> Card:
    details = [FindingDetail("", "", _some((candidates, *one.details) if candidates else one.details), "list")]
    if one.stacks.in_a or one.stacks.in_b:
        for label, frames in (("A", one.stacks.in_a), ("B", one.stacks.in_b)):
            details.append(FindingDetail(f"in {label}", f"Stack in {label}", _frames(frames), "frames"))
    return Card(number=number, title=one.title, kind=one.kind, details=details)


def _frames(frames: Sequence[Frame]) -> list[str]:
    shown_frames = own_frames(frames) or frames
    lines = [f"{frame.function} ({frame.file}:{frame.line})" for frame in shown_frames[:MOST_FRAMES]]
    left = len(shown_frames) - MOST_FRAMES
    return [*lines, plural(left, "more frame")] if left > 0 else lines or ["No stack is recorded."]


def _cause(one: Hypothesis) -> Card:
    facts = (("for", one.speaks_for), ("against", one.speaks_against), ("decides", (one.experiment,)))
    return Card(title=one.cause, details=[FindingDetail(label, label, lines) for label, lines in facts], tone="info")


def _some(lines: Sequence[str]) -> list[str]:
    left = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], f"{left:,} more are in the JSON report."] if left > 0 else list(lines)


def _settings(rows: Sequence[SettingRow]) -> Grid:
    """The table of settings that differ, those that decide results first."""
    left = len(rows) - MOST_SETTINGS
    return Grid(
        head=("setting", "in A", "in B", "ranks", "matters for", "effect"),
        rows=[
            (one.name, one.value_a, one.value_b, rank_ranges(one.ranks, 40), one.weight, one.effect)
            for one in rows[:MOST_SETTINGS]
        ],
        numbers=(),
        code=(0, 1, 2),
        wraps=True,
        more=f"{left:,} more are in the JSON report." if left > 0 else "",
    )


def missing(comparison: RunComparison, is_redacted: bool) -> Iterator[str]:
    """Sentences on what the page leaves out, for those who only get the page."""
    yield "Dumps, logs and traces themselves, and tensors: the page has only what rankscope took from them."
    yield f"Frames of libraries, and more than {MOST_FRAMES} frames of a stack."
    data = comparison.pictures
    if any(picture.count > len(picture.steps) for picture in data.series):
        yield f"Some steps of long series: each of {MOST_POINTS} parts keeps its highest and lowest values."
    lacks = {
        "series by step: no training series with common steps": not data.series,
        "ratios of durations: no durations that both runs have": not data.times,
        "times of ranks: too few collectives that both runs have": data.scatter is None,
    }
    yield from (f"A picture of {words}." for words, is_missing in lacks.items() if is_missing)
    yield SECRETS
    yield names_line(is_redacted)
