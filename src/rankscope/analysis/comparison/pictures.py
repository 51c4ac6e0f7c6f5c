"""Data of the pictures of a comparison: few enough values to draw, whatever the size of the runs.

Text from files is kept as it is: the drawing escapes it. There is no table among them, so that names can be redacted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rankscope.analysis.comparison.time_comparison import TimeRatio

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
