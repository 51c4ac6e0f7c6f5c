"""Results of a comparison of runs. Plain frozen data; nobody is accused.

Text from files is kept as it is: the drawing escapes it. There is no table among them, so that names can be redacted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.features.comparison.rules.time_comparison import TimeRatio
from rankscope.schema import Dataset, Frame
from rankscope.schema.option_sources import RunOptions

CellKind = Literal["equal", "differs", "absent"]
"""An operation that both runs have at a place, one that differs, and a place at which this run has none."""


@dataclass(frozen=True)
class RunLine:
    """One run of a series. Its label begins with its side: "A", "B", or "A1" with several runs a side."""

    label: str
    values: tuple[float | None, ...]
    """One value for each step; None where the run has none."""


@dataclass(frozen=True)
class SeriesPicture:
    """One training series of all runs by step, thinned so that its extremes and its first difference stay."""

    name: str
    rank: int | None
    steps: tuple[int, ...]
    lines: tuple[RunLine, ...]
    """Runs of A come first."""
    relative: tuple[float | None, ...]
    """|a - b| / |a| of the first run of each side by step; None where one has no number."""
    differs: tuple[bool, ...]
    """Whether the values differ by more than the printed digits; with three or more runs of A, whether the first run of
    B stays further from all of them than twice their range."""
    first: int | None
    """The first step that differs."""
    count: int
    """Number of steps before thinning."""


@dataclass(frozen=True)
class MapRow:
    """One row of a heat map: a rank, several ranks that are alike, or a series."""

    label: str
    cells: tuple[float | None, ...]
    """None where nothing can be compared; infinite if only one value is a number."""


@dataclass(frozen=True)
class HeatMap:
    """The difference between the runs over rows and columns; a cell is the largest difference of what it covers."""

    kind: Literal["schedule", "values", "times"]
    """Share of operations that differ (0 to 1); relative difference; seconds of B less those of A."""
    rows: tuple[MapRow, ...]
    first: int
    """The step or operation at which the columns begin."""
    last: int
    """The last step or operation in the columns."""
    left_out: int = 0
    """Rows that are not among these."""


@dataclass(frozen=True)
class LaneCell:
    """One operation of a rank, or the gap where a run has none."""

    kind: CellKind
    op: str = ""
    tensors: str = ""
    place: str = ""
    """Description of the group and number: "default_pg #19"; ranks of several groups of one description are alike."""
    is_open: bool = False
    """Whether the operation was issued and did not end, as far as the dump tells."""


@dataclass(frozen=True)
class LanePair:
    """Operations in both runs around the place where they part, one below the other, of ranks that are alike there."""

    ranks: tuple[int, ...]
    operation: int
    """Number of the first cell's operation in A, from the start of the run or of the dump."""
    in_a: tuple[LaneCell, ...]
    in_b: tuple[LaneCell, ...]
    left_out: int = 0
    """Operations of the parting that are not drawn."""


@dataclass(frozen=True)
class RankDot:
    """One rank of the scatter plot, with its mean seconds in both runs."""

    rank: int
    in_a: float
    in_b: float


@dataclass(frozen=True)
class RankScatter:
    """Mean time of each rank in the collectives that both runs have."""

    is_wait: bool
    """Whether the time is that of the collective itself, in which early ranks wait; else by how much a rank issues it
    later than the middle of its peers, by the clocks of the hosts."""
    dots: tuple[RankDot, ...]


@dataclass(frozen=True)
class SettingRow:
    """One pair of values of a setting that differs."""

    name: str
    weight: str
    value_a: str
    value_b: str
    ranks: tuple[int, ...]
    """Ranks with this pair; empty for processes of unknown rank."""
    effect: str


@dataclass(frozen=True)
class ComparisonPictures:
    """All that the pictures of a comparison show."""

    series: tuple[SeriesPicture, ...] = ()
    times: tuple[TimeRatio, ...] = ()
    """Steps first, then collectives by their cost."""
    heat_maps: tuple[HeatMap, ...] = ()
    lanes: tuple[LanePair, ...] = ()
    """Ranks that part first come first."""
    scatter: RankScatter | None = None
    settings: tuple[SettingRow, ...] = ()


DifferenceKind = Literal["schedule-differs", "values-differ", "durations-differ", "settings-differ", "outcome-differs"]
MetricKind = Literal["step", "loss", "throughput", "part"]
"""Metrics of steps, of training and of throughput can make runs different; parts of a step are context."""
MetricVerdict = Literal["differs", "not-shown", "too-few-runs"]


@dataclass(frozen=True)
class ComparedRun:
    """One of the runs: its tables, its analysis, and its training series."""

    title: str
    dataset: Dataset
    analysis: Analysis
    series: pl.DataFrame = field(default_factory=pl.DataFrame)
    """Training series, a table of `parsers.series.scalar_rows.SCALARS`; without columns if none were read."""
    series_problems: tuple[str, ...] = ()
    """Files with series that could not be read, each with the reason."""
    options: RunOptions = field(default_factory=RunOptions)
    """Options of the trainer, as its logs and configuration files tell them."""
    code_changes: tuple[str, ...] = ()
    """Files that git names between the commit of the first run and that of this one; empty if it cannot tell."""


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
    runs: tuple[str, ...] = ()
    """Labels of the candidates that differ so from the first baseline; empty if only two runs are compared."""


class PartState(Enum):
    """The answer of a part; its sentences only tell it to people."""

    EQUAL = "equal"
    UNCOUNTED = "uncounted"
    """Something differs, and nothing of it makes two runs different: hosts, folders, noise of reruns, small changes."""
    DIFFERS = "differs"
    NOT_COMPARED = "not-compared"


@dataclass(frozen=True)
class ComparedPart:
    """The answer to one question: are the schedules, settings, values or durations the same?"""

    name: str
    state: PartState
    summary: str
    """The answer in words; of a part that is not compared, the reason."""
    lines: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """What of a compared part was not compared, each with the reason."""

    @property
    def is_compared(self) -> bool:
        """Whether anything of it was compared."""
        return self.state is not PartState.NOT_COMPARED

    @property
    def answer(self) -> str:
        """The state, where it is needed beside the summary, and the summary."""
        return self.summary if self.is_compared else f"not compared: {self.summary}"


@dataclass(frozen=True)
class CauseAction:
    """The next step that a cause suggests, for a program to make a command of."""

    kind: Literal["determinism", "set-variable"]
    """To run the calls of a run again and look whether they repeat; to give a variable of A its value in B."""
    name: str = ""
    value: str | None = None
    """The value of the variable in B; None: it is unset there."""


DETERMINISM = CauseAction("determinism")


@dataclass(frozen=True)
class Hypothesis:
    """A possible cause, evidence for and against it, and the experiment that decides."""

    id: str
    """What makes it one cause: its kinds, or the kind and the setting, as "seed:option seed"."""
    cause: str
    speaks_for: tuple[str, ...]
    speaks_against: tuple[str, ...]
    experiment: str
    kinds: tuple[str, ...] = ()
    """The kinds of cause, of `option_roles.CAUSES`; several are one of them, which nothing recorded tells apart."""
    ranks: tuple[int, ...] = ()
    """The ranks that it names."""
    action: CauseAction | None = None
    """The next step, where a command can make it."""


@dataclass(frozen=True)
class MetricEffect:
    """One metric of all runs, and the change from side A to side B; the run is the unit."""

    name: str
    unit: str
    """"s", "/s" or "" for plain numbers."""
    kind: MetricKind
    is_ratio: bool
    """Whether `effect`, its interval and `smallest_effect` are relative (0.12: 12 % more), not in `unit`."""
    values_a: tuple[float, ...]
    """One for each run that has the metric, such as a median over steps."""
    values_b: tuple[float, ...]
    effect: float
    """Change of the mean of runs; a ratio is one of geometric means."""
    low: float | None = None
    """Ends of the 95 % interval of `effect` over runs; of one run against one within these two, if known."""
    high: float | None = None
    p: float | None = None
    """Two-sided p of the permutation test over runs; None if a side has one run."""
    q: float | None = None
    """`p` held over all metrics (Benjamini-Hochberg)."""
    smallest_effect: float | None = None
    """Smallest change that this many runs show in 80 % of cases."""
    verdict: MetricVerdict = "too-few-runs"
    less_is_better: bool = True
    lost_a: int = 0
    """Runs in which the metric is no finite number: their training broke."""
    lost_b: int = 0


@dataclass(frozen=True)
class RunAgreement:
    """Which runs agree with each other in one respect."""

    aspect: str
    """"schedule", "settings", "values" or "outcome"."""
    clusters: tuple[tuple[str, ...], ...]
    """Labels of runs that agree, the largest set first."""

    @property
    def shown(self) -> str:
        """The sets in words: "3 + 1: B2 is the one"."""
        sizes = [len(one) for one in self.clusters]
        if len(sizes) == 1:
            return f"all {sizes[0]} runs agree"
        if sizes[0] == 1:
            return "no two runs agree"
        if len(sizes) == 2 and sizes[1] == 1 < sizes[0]:
            return f"{sizes[0]} + 1: {self.clusters[1][0]} is the one"
        return f"{' + '.join(map(str, sizes))}: {' | '.join(' '.join(one) for one in self.clusters)}"


@dataclass(frozen=True)
class Outlier:
    """A run that differs from its peers in one metric, or a rank that does so over runs."""

    name: str
    """The label of the run, or "rank 3"."""
    metric: str
    title: str
    size: float
    """Change against the peers: relative, or in seconds if `in_seconds`."""
    runs: tuple[str, ...] = ()
    """Labels of the runs in which a rank stands out."""
    in_seconds: bool = False


@dataclass(frozen=True)
class RunGroups:
    """More than two runs: who is compared with whom, what they agree in, and how much they can show."""

    baselines: tuple[str, ...]
    candidates: tuple[str, ...]
    pooled: bool
    """Whether the candidates are reruns of one setting; else each is compared by itself."""
    power: str
    """A sentence: the smallest p of this many runs, and how many would do."""
    smallest_p: float | None = None
    runs_needed: int | None = None
    """Runs of each side that a difference of one of the metrics needs to be significant."""
    agreement: tuple[RunAgreement, ...] = ()
    outlier_runs: tuple[Outlier, ...] = ()
    outlier_ranks: tuple[Outlier, ...] = ()
    also_between_baselines: tuple[RunDifference, ...] = ()
    """Differences that reruns of one setting show as well; they do not count."""


@dataclass(frozen=True)
class GateCheck:
    """One budget, and whether the candidate keeps it."""

    budget: str
    """As it is given: "step=3%"."""
    outcome: Literal["passed", "failed", "unmeasured"]
    reason: str


@dataclass(frozen=True)
class RunComparison:
    """The whole comparison of run B, or of several candidates, with run A or several baselines."""

    headline: str
    runs: tuple[RunFacts, ...]
    parts: tuple[ComparedPart, ...]
    differences: tuple[RunDifference, ...] = ()
    """The earliest in program order first."""
    hypotheses: tuple[Hypothesis, ...] = ()
    metrics: tuple[MetricEffect, ...] = ()
    """Metrics of all runs; empty for two runs without a gate."""
    groups: RunGroups | None = None
    """None for two runs."""
    gate: tuple[GateCheck, ...] = ()
    pictures: ComparisonPictures = field(default_factory=ComparisonPictures)
    """Data of pictures, for a report that has some."""

    @property
    def is_same(self) -> bool:
        """Whether no difference was found."""
        return not self.differences
