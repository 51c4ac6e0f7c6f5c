"""Blocks of a report: a section is made once of them, and each form (text, Markdown, HTML) draws them in its own way.

All texts in blocks are data: a form makes them harmless where it draws them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rankscope.analysis.model import Analysis
from rankscope.kinds.features import FEATURES
from rankscope.kinds.functions import function
from rankscope.schema import Dataset

if TYPE_CHECKING:
    from htpy import Node

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table of short cells."""

    head: Row
    rows: Sequence[Row]
    title: str = ""
    numbers: tuple[int, ...] | None = None
    """Columns whose cells end at one edge; None for all but the first."""
    narrow: int | None = None
    """Number of columns that fit into 80 characters; None for all."""
    wraps: bool = False
    """The last cells may be long: a narrow form goes on with them in lines below."""
    headed: bool = False
    """The first cells may be long: a narrow form puts one that does not fit above the others of its row."""
    code: tuple[int, ...] = ()
    """Columns of names and values that stand in files as they are shown."""
    marked: frozenset[tuple[int, int]] = frozenset()
    """Cells, by row and column, that a form with colours makes stand out."""
    more: str = ""
    """Sentence on rows that are left out; "" if none is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """A table with sentences in its cells: a narrow form shows each row as lines below its label."""

    head: Row
    rows: Sequence[Row]
    """A label, sentences, and at last the place that they come from, if `placed`."""
    placed: bool = False
    labelled: bool = False
    """The label is one of few words: it stands at the side, and else before a colon."""
    more: str = ""


@dataclass(frozen=True, slots=True)
class Bullets:
    """Sentences of a list."""

    lines: Sequence[str]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Prose:
    """One sentence, or a few."""

    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture with its words: they stand below it, and in its place where it cannot be seen or drawn."""

    title: str
    caption: str
    height: float
    """In units of which the width has `svg_marks.WIDTH`."""
    marks: Sequence[Node]
    """Elements of SVG."""


@dataclass(frozen=True, slots=True)
class FindingDetail:
    """One respect of a finding; a form leaves out one without lines."""

    label: str
    """Its name in few letters, for a narrow form."""
    title: str
    lines: Sequence[str]
    """Texts; the first of frames of a stack is the innermost."""
    form: Literal["fact", "evidence", "steps", "list", "frames"] = "fact"
    """One line; lines with their places; steps in their order; sentences; frames of a stack."""
    owner: str = ""
    """The thread whose frames these are."""
    rows: Sequence[Row] = ()
    """Evidence as place, rank and text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A finding, a difference or a cause, with what is known of it."""

    title: str
    number: int = 0
    """Its place in a list; 0 if it has none."""
    kind: str = ""
    text: str = ""
    """Sentences below the title."""
    details: Sequence[FindingDetail]
    tone: Literal["critical", "warning", "info"] = "critical"


Block = Grid | Records | Bullets | Prose | Picture | Card


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a report."""

    title: str
    blocks: tuple[Block, ...]


def feature_sections(dataset: Dataset, analysis: Analysis) -> Iterator[Section]:
    """The sections of all features that the job has something for, in the order of reports."""
    for feature in sorted(FEATURES, key=lambda feature: feature.place):
        if feature.section and dataset.has_any(feature.tables):
            yield from function(feature.section)(dataset, analysis)
