"""Results of what-if questions: what a step takes, what it would take, and what makes the difference."""

from __future__ import annotations

from dataclasses import dataclass

from rankscope.analysis.model import FeaturePart

CAUSES = ("worker", "stage", "sequence", "link", "launch")
"""Slow ranks, stages of unequal work, sequences of unequal length, slow links, and time between operations that no
operation explains."""
ORIGINS = ("step-trace", "traces", "dumps")
"""Sources of the durations."""


@dataclass(frozen=True)
class Gain:
    """The gain if one thing were as usual; all else stays as it was recorded."""

    cause: str
    """One of CAUSES."""
    ranks: tuple[int, ...]
    """The slow ranks, those of the slow link, or those of the longest stage; empty for sequences and launches."""
    stage: int | None
    """The longest stage."""
    what: str
    """The kind of operation of a link; "" else."""
    step_ns: int
    """Time of a step without it."""
    share: float
    """Part of the time of a step that is gained."""


@dataclass(frozen=True)
class Slowdown:
    """Time of the ideal step in which only one thing keeps its recorded durations, over that of the ideal step."""

    name: str
    """A rank, stage or replica as a number; or a kind of operation."""
    ratio: float


@dataclass(frozen=True)
class WhatIf:
    """Answers for one job."""

    origin: str
    """One of ORIGINS."""
    steps: int
    """Steps in which it was asked; 0 where the steps are not known, and times are of all that was recorded."""
    stages: int
    replicas: int
    measured_ns: int
    """Mean time of a step as recorded."""
    step_ns: int
    """The same, simulated without time between operations that no operation explains."""
    ideal_ns: int
    """Simulated, each operation as long as is typical of its kind."""
    slowdown: float
    """step_ns / ideal_ns."""
    worst_step: tuple[int, float]
    """The step, from 0, with the largest slowdown, and that."""
    workers: tuple[Slowdown, ...]
    """By rank, the largest first; so are the others."""
    by_replica: tuple[Slowdown, ...]
    by_stage: tuple[Slowdown, ...]
    by_kind: tuple[Slowdown, ...]
    worst_workers: float | None
    """M_W: part of the slowdown that goes if the worst 3 % of workers are as usual; None without a slowdown."""
    last_stage: float | None
    """M_S: the same for the last stage; None without stages."""
    correlation: float | None
    """Of the times of forward and backward of one micro batch; None where too few are known."""
    gains: tuple[Gain, ...]
    """Causes that are worth mending, best first."""
    acquitted: bool = False
    """Whether a stage, lengths of sequences, a link or other ranks explain why the accused ranks are late."""

    @property
    def cause(self) -> Gain | None:
        """The first of what is worth mending; None if nothing is."""
        return self.gains[0] if self.gains else None


WHAT_IF_RESULTS = FeaturePart[WhatIf]("what-if")
"""Answers in an analysis."""
WHAT_IF_REASON = FeaturePart[str]("what-if reason")
"""In an analysis without answers: what the input lacks, for the user."""


class TimesError(ValueError):
    """The input does not tell what is asked; the message is the reason, for the user."""
