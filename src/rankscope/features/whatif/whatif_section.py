"""Gains of mending, in reports for people and programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import UNSET, UnsetType

from rankscope.analysis.model import Analysis
from rankscope.features.whatif.gain_text import gain_line, part_text, slowdown_line
from rankscope.features.whatif.model import CAUSES, ORIGINS, WHAT_IF_RESULTS, WhatIf
from rankscope.report.blocks import Block, Bullets, Grid, Prose, Section
from rankscope.report.json import Count, Rank, ReportPart, one_of
from rankscope.schema import Dataset

TITLE = "Gains of mending, best first"
MOST_SHOWN = 5
"""Most rows of a table for people."""
NOTABLE = 1.005
"""Smallest slowdown of a row."""


def section(_: Dataset, analysis: Analysis) -> Iterator[Section]:
    """Causes that are worth mending; nothing where all takes as long as is typical."""
    told = WHAT_IF_RESULTS.find(analysis)
    if told is None or (not told.gains and told.origin != "step-trace"):
        return
    blocks: list[Block] = []
    if told.gains:
        blocks.append(Bullets([gain_line(told, gain) for gain in told.gains[:MOST_SHOWN]]))
    blocks.append(Prose(". ".join(summary(told)) + "."))
    if told.origin == "step-trace":
        rows = slowdown_rows(told)
        if rows:
            blocks.append(Grid(head=("alone", "slowdown"), rows=rows, title="Slowdown by one alone"))
    yield Section(TITLE, tuple(blocks))


def summary(told: WhatIf) -> list[str]:
    """The figures of the whole job."""
    line = slowdown_line(told)
    lines = [line[0].upper() + line[1:]]
    if told.slowdown > 1 + 2 * (NOTABLE - 1):
        parts = [("the worst 3 % of workers", told.worst_workers), ("the last stage", told.last_stage)]
        shares = [f"{part_text(share)} of it goes without {name}" for name, share in parts if share is not None]
        if shares:
            lines.append(", ".join(shares).capitalize())
    return lines


def slowdown_rows(told: WhatIf) -> list[tuple[str, str]]:
    """The ranks, stages, and kinds of operations that alone make a step longer."""
    tables = (("rank", told.workers), ("stage", told.by_stage), ("", told.by_kind))
    return [
        (f"{noun} {one.name}".strip(), f"{one.ratio:.3f}")
        for noun, table in tables
        for one in table[:MOST_SHOWN]
        if one.ratio >= NOTABLE
    ]


class GainObject(ReportPart):
    """The gain if one thing were as usual."""

    cause: Annotated[str, one_of(CAUSES)]
    ranks: Sequence[Rank]
    stage: int | None
    what: str
    step_ns: int
    share: float


class SlowdownObject(ReportPart):
    """The slowdown by one thing alone."""

    name: str
    ratio: float


class WhatIfObject(ReportPart):
    """Answers to what-if questions."""

    origin: Annotated[str, one_of(ORIGINS)]
    steps: Count
    stages: Count
    replicas: Count
    measured_ns: int
    step_ns: int
    ideal_ns: int
    slowdown: float
    worst_workers: float | None
    last_stage: float | None
    correlation: float | None
    gains: Sequence[GainObject]
    workers: Sequence[SlowdownObject]
    by_replica: Sequence[SlowdownObject]
    by_stage: Sequence[SlowdownObject]
    by_kind: Sequence[SlowdownObject]


class WhatIfKeys(ReportPart):
    """The key of what-if questions in the JSON report, only where their answers are known."""

    what_if: WhatIfObject | UnsetType = UNSET


def json_keys(_: Dataset, analysis: Analysis) -> WhatIfKeys:
    """All answers."""
    told = WHAT_IF_RESULTS.find(analysis)
    if told is None:
        return WhatIfKeys()
    tables = {
        name: [SlowdownObject.of(one) for one in getattr(told, name)]
        for name in ("workers", "by_replica", "by_stage", "by_kind")
    }
    return WhatIfKeys(WhatIfObject.of(told, gains=[GainObject.of(gain) for gain in told.gains], **tables))
