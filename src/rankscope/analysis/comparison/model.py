"""Results of a comparison of two runs. Plain frozen data; nobody is accused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from rankscope.analysis.comparison.pictures import ComparisonPictures
from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset, Frame

DifferenceKind = Literal["schedule-differs", "values-differ", "durations-differ", "settings-differ", "outcome-differs"]


@dataclass(frozen=True)
class ComparedRun:
    """One of the two runs: its tables, its analysis, and its training series."""

    title: str
    dataset: Dataset
    analysis: Analysis
    series: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Training series, a table of `parsers.series.scalar_rows.SCALARS`; without columns if none were read."""
    series_problems: tuple[str, ...] = ()
    """Files with series that could not be read, each with the reason."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the trainer, as its logs and configuration files tell them."""


@dataclass(frozen=True)
class RunFacts:
    """The facts of a run that head a report."""

    label: str
    title: str
    world_size: int
    verdict: str


@dataclass(frozen=True)
class StackPair:
    """The stacks of both runs at one place, innermost first."""

    in_a: tuple[Frame, ...] = ()
    in_b: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class RunDifference:
    """One difference between the runs."""

    kind: DifferenceKind
    title: str
    ranks: tuple[int, ...] = ()
    """Ranks on which the runs differ; empty if it concerns no rank in particular."""
    details: tuple[str, ...] = ()
    stacks: StackPair = StackPair()
    step: int | None = None
    """The training step of the difference, if it is known."""
    operation: int | None = None
    """The place in the schedule of the first of the ranks in A, from 0."""


@dataclass(frozen=True)
class ComparedPart:
    """The answer to one question: are the schedules, settings, values or durations the same?"""

    name: str
    summary: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Hypothesis:
    """A possible cause, evidence for and against it, and the experiment that decides."""

    cause: str
    speaks_for: tuple[str, ...]
    speaks_against: tuple[str, ...]
    experiment: str
    kinds: tuple[str, ...] = ()
    """The kinds of cause, of `hypotheses.CAUSES`; several are one of them, which nothing recorded tells apart."""
    ranks: tuple[int, ...] = ()
    """The ranks that it names."""


@dataclass(frozen=True)
class RunComparison:
    """The whole comparison of run B with run A."""

    headline: str
    runs: tuple[RunFacts, ...]
    parts: tuple[ComparedPart, ...]
    differences: tuple[RunDifference, ...] = ()
    """The earliest in program order first."""
    hypotheses: tuple[Hypothesis, ...] = ()
    pictures: ComparisonPictures = field(default_factory=ComparisonPictures)
    """Data of pictures, for a report that has some."""

    @property
    def is_same(self) -> bool:
        """Whether no difference was found."""
        return not self.differences
