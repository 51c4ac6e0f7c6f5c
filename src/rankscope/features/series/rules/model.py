"""Steps that a trainer printed, as series, and the places at which they break."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from rankscope.analysis.model import FeaturePart
from rankscope.features.series.read.training_lines import OVERFLOW

Values = npt.NDArray[np.float64]
Lines = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PrintedSeries:
    """The values of one quantity that one printer of one file printed."""

    file: int
    printer: int | None
    """The number in front of its lines; None without one."""
    rank: int | None
    """By the name of its file."""
    name: str
    raw_name: str
    steps: Values
    """NaN where a print has none."""
    values: Values
    lines: Lines
    times_ns: Lines
    """0 where a print has none."""
    restarts: int = 0
    """How often its step goes back."""
    since: int = 0
    """Index of the first value after the last restart."""

    def __eq__(self, other: object) -> bool:
        """Whether the other holds the same values."""
        return isinstance(other, PrintedSeries) and all(
            np.array_equal(mine, theirs, equal_nan=True) if isinstance(mine, np.ndarray) else mine == theirs
            for mine, theirs in ((getattr(self, name), getattr(other, name)) for name in self.__dataclass_fields__)
        )

    def __hash__(self) -> int:
        """The hash of what names it."""
        return hash((self.file, self.printer, self.raw_name))

    def place(self, at: int) -> str:
        """The step of a value in words; where no step is printed, its place among the prints."""
        step = self.steps[at]
        return f"step {int(step):,}" if np.isfinite(step) else f"print {at + 1:,}"


class SeriesBreak(NamedTuple):
    """The place from which on a series is another one."""

    kind: Literal["not-finite", "passing", "jump", "slower", "skipping"]
    series: PrintedSeries
    at: int
    """Index of the first value behind the break."""
    end: int
    """Index behind the last of them; the number of values if the series ends so."""
    before: float
    """The usual value before, or the last one that was finite; NaN without any."""
    after: float
    """The usual value since, or the first that is not finite."""


@dataclass(frozen=True)
class TrainingResults:
    """The series of a job, and where they break."""

    series: tuple[PrintedSeries, ...]
    breaks: tuple[SeriesBreak, ...]

    @property
    def longest(self) -> PrintedSeries:
        """The series with the most steps, or prints; those that count skipped steps last."""
        return max(
            self.series,
            key=lambda series: (series.name != OVERFLOW, int(np.isfinite(series.steps).sum()), series.values.size),
        )


TRAINING_RESULTS = FeaturePart[TrainingResults]("training")
"""Results on the steps of a trainer in an analysis."""
