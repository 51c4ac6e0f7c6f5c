"""Two metrics of each rank against each other, for both runs: a slow rank lies apart, and is named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual_plotext.plot import Plot

from rankscope.features.comparison.page.compared_view import ComparedView, TargetPage, shown
from rankscope.features.comparison.page.series_page import Drawing, recoloured
from rankscope.features.comparison.rules.model import ComparedRun
from rankscope.features.comparison.rules.run_sides import WholeComparison
from rankscope.features.traces.rules.model import TRACE_RESULTS
from rankscope.text.wording import duration
from rankscope.tui.detail.screens.heat_page import METRICS
from rankscope.tui.key_hints import Hint
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import Line, Span, cut, line, wrap
from rankscope.tui.text_bars import TextBar

Floats = NDArray[np.float64]
LEAST_RANKS = 3
"""Fewest ranks that make a scatter."""
FAR = 5.0
"""Distance from the median, in median absolute deviations scaled to a normal distribution, from which a rank is an
outlier (Iglewicz and Hoaglin 1993 take 3.5; of thousands of ranks some reach that by chance)."""
LEAST_SHARE = 0.05
"""Least distance of an outlier from the median, as a share of it."""
_NORMAL = 1.4826
MOST_LABELS = 8
_TEXT_LINES = 2


class ScatterMetric(NamedTuple):
    """A number of each rank of both runs."""

    name: str
    is_time: bool
    """Whether it is nanoseconds."""
    values: tuple[dict[int, float], dict[int, float]]
    """The values of A and of B by rank."""

    def shown(self, value: float | None) -> str:
        """A value in words."""
        if value is None:
            return "unknown"
        return duration(round(value)) if self.is_time else f"{value:.4g}"

    @property
    def varies(self) -> bool:
        """Whether ranks of a run have other values."""
        return any(len(set(values.values())) > 1 for values in self.values)


def rank_metrics(whole: WholeComparison) -> list[ScatterMetric]:
    """The metrics that at least `LEAST_RANKS` ranks of both runs have, those of traces first."""
    series = whole.series.tables[0], whole.series.tables[whole.baselines]
    tables = [_metrics(run, table) for run, table in zip(whole.pair, series, strict=True)]
    both = [
        ScatterMetric(name, is_time, (values, tables[1][name, is_time]))
        for (name, is_time), values in tables[0].items()
        if (name, is_time) in tables[1]
    ]
    return [one for one in both if one.varies and min(map(len, one.values)) >= LEAST_RANKS]


def _metrics(run: ComparedRun, series: pl.DataFrame) -> dict[tuple[str, bool], dict[int, float]]:
    """The value of each rank by name, and whether it is a time."""
    found: dict[tuple[str, bool], dict[int, float]] = {}
    if TRACE_RESULTS.find(run.analysis) is not None and not TRACE_RESULTS.of(run.analysis).steps.is_empty():
        for metric in METRICS:
            found[metric.name, True] = _by_rank(TRACE_RESULTS.of(run.analysis).steps, metric.column)
    found |= _operation_times(run.dataset.ops)
    if not series.is_empty():
        for name in sorted(series["name"].unique().to_list()):
            finite = series.filter(pl.col("name") == name, pl.col("value").is_finite())
            found[f"median {name}", False] = _by_rank(finite, pl.col("value"))
    return found


def _by_rank(table: pl.DataFrame, column: pl.Expr) -> dict[int, float]:
    medians = table.drop_nulls("rank").group_by("rank").agg(column.median().cast(pl.Float64).alias("value"))
    return dict(medians.drop_nulls().select("rank", "value").iter_rows())


def _operation_times(ops: pl.DataFrame) -> dict[tuple[str, bool], dict[int, float]]:
    """Medians of the time in operations, and of the time from one to the next; clocks of other ranks do not matter."""
    timed = ops.filter(pl.col("rank").is_not_null()).select("rank", "created_ns", "completed_ns", "duration_ns")
    took = pl.col("duration_ns").fill_null(pl.col("completed_ns") - pl.col("created_ns"))
    gap = (pl.col("created_ns").shift(-1) - pl.col("completed_ns")).clip(0)
    return {
        ("time in an operation", True): _by_rank(timed, took),
        ("time between operations", True): _by_rank(timed.with_columns(gap.over("rank").alias("gap")), pl.col("gap")),
    }


def outliers(values: dict[int, float]) -> dict[int, float]:
    """The ranks far from the median of all, each with its value as a share of the median."""
    numbers = np.array(list(values.values()))
    if len(numbers) < LEAST_RANKS:
        return {}
    middle = float(np.median(numbers))
    spread = _NORMAL * float(np.median(np.abs(numbers - middle)))
    least = max(FAR * spread, LEAST_SHARE * abs(middle))
    return {rank: value / middle for rank, value in values.items() if middle and abs(value - middle) > least}


class OddRank(NamedTuple):
    """A rank that lies apart in one run."""

    label: str
    """"A" or "B"."""
    rank: int
    distance: float
    """The larger change against the median of its metric, as a share of it."""


def scatter_outliers(x: ScatterMetric, y: ScatterMetric) -> list[OddRank]:
    """The outliers of both runs on either axis, the farthest first."""
    found: dict[tuple[str, int], float] = {}
    for number, label in enumerate("AB"):
        for metric in (x, y):
            for rank, share in outliers(metric.values[number]).items():
                found[label, rank] = max(found.get((label, rank), 0.0), abs(share - 1))
    rows = [OddRank(label, rank, far) for (label, rank), far in found.items()]
    return sorted(rows, key=lambda one: (-one.distance, one.label, one.rank))


class RankPoint(NamedTuple):
    """The place of a rank in a scatter."""

    label: str
    rank: int
    x: float
    y: float


def points(x: ScatterMetric, y: ScatterMetric) -> list[RankPoint]:
    """The ranks of both runs that have both metrics."""
    return [
        RankPoint(label, rank, x.values[number][rank], y.values[number][rank])
        for number, label in enumerate("AB")
        for rank in sorted(x.values[number].keys() & y.values[number].keys())
    ]


def draw_points(
    known: Sequence[RankPoint], named: Sequence[OddRank], size: tuple[int, int],
    axes: tuple[ScatterMetric, ScatterMetric], *, ascii_only: bool,
) -> Drawing:  # fmt: skip
    """The points as letters, with the numbers of outliers beside them; plotext draws them."""
    plot = Plot()
    plot.plotsize(*size)
    plot.theme("clear")
    for mark, colour, own in _marked(known, size):
        plot.scatter([point.x for point in own], [point.y for point in own], marker=mark, color=colour)
    places = {(point.label, point.rank): point for point in known}
    for one in named[:MOST_LABELS]:
        point = places.get((one.label, one.rank))
        if point is not None:
            plot.text(f"{one.label}{one.rank}", point.x, point.y, color=3, alignment="left")
    for metric, values, ticks in (
        (axes[0], [point.x for point in known], plot.xticks), (axes[1], [point.y for point in known], plot.yticks),
    ):  # fmt: skip
        at = np.unique(np.linspace(min(values), max(values), 3)).tolist()
        ticks(at, [metric.shown(value) for value in at])
    return recoloured(Text.from_ansi(plot.build()), ascii_only=ascii_only)


def _marked(known: Sequence[RankPoint], size: tuple[int, int]) -> Iterator[tuple[str, int, list[RankPoint]]]:
    """Points by mark, with the number of its colour: A, B, or = where both have one; one point for each cell."""
    x, y = np.array([point.x for point in known]), np.array([point.y for point in known])
    cells = [
        np.round((values - values.min()) / (np.ptp(values) or 1.0) * cells).astype(np.int64)
        for values, cells in ((x, size[0]), (y, size[1]))
    ]
    at: dict[tuple[int, int], dict[str, RankPoint]] = {}
    for point, column, row in zip(known, *(one.tolist() for one in cells), strict=True):
        at.setdefault((column, row), {}).setdefault(point.label, point)
    for mark, colour, labels in (("A", 1, {"A"}), ("B", 2, {"B"}), ("=", 3, {"A", "B"})):
        own = [next(iter(here.values())) for here in at.values() if set(here) == labels]
        if own:
            yield mark, colour, own


class ScatterPage(TargetPage):
    """The scatter of two metrics over ranks."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m,right_square_bracket", "metric(1,1)", "next metric upwards", key_display="m M"),
        Binding("M,left_square_bracket", "metric(1,-1)", "previous metric upwards", show=False),
        Binding("x", "metric(0,1)", "next metric to the right", key_display="x X"),
        Binding("X", "metric(0,-1)", "previous metric to the right", show=False),
        Binding("n,right,l,down,j", "rank(1)", "next outlier"),
        Binding("N,left,h,up,k", "rank(-1)", "previous outlier"),
        Binding("escape", "back", "back"),
    ]
    TITLE = "scatter"
    OWN = (
        Hint("m", "m", "up"), Hint("x", "x", "right"), Hint("n", "n", "outlier"), Hint("escape", "esc", "back"),
    )  # fmt: skip

    def __init__(self, view: ComparedView, options: ViewOptions, target: str = "") -> None:
        super().__init__(view, options, target)
        self.metrics = rank_metrics(view.whole)
        self._axes = [0, min(1, len(self.metrics) - 1)]
        self._at = 0
        """The outlier in the text."""

    @classmethod
    def missing(cls, view: ComparedView) -> str:
        """Why there is no scatter."""
        if rank_metrics(view.whole):
            return ""
        return f"no scatter: it needs traces, dumps with times, or series of {LEAST_RANKS} ranks or more"

    @property
    def axes(self) -> tuple[ScatterMetric, ScatterMetric]:
        """The metrics to the right and upwards."""
        return self.metrics[self._axes[0]], self.metrics[self._axes[1]]

    def body(self) -> Iterable[Widget]:
        """The plot, and the outlier."""
        yield TextBar("plot", self.options)
        yield TextBar("values", self.options)

    def fill(self) -> None:
        """Nothing: everything is drawn for the size."""

    def heading(self) -> list[Line]:
        """The runs, and the metrics."""
        x, y = self.axes
        axes = line(" up: ", Span(shown(y.name), "bold"), "   right: ", Span(shown(x.name), "bold"))
        legend = line(
            "   ", Span("A", "head"), " ", Span("B", "warn"), " = both", Span("   (median of all ranks)", "dim")
        )
        return [self.title_line(), cut(line(axes, legend), self.size.width)]

    def draw_bars(self) -> None:
        """Draws plot, text and keys."""
        super().draw_bars()
        width, height = self.size.width - 1, max(self.size.height - 3 - _TEXT_LINES, 4)
        known, named = points(*self.axes), scatter_outliers(*self.axes)
        if known:
            drawing = draw_points(known, named, (width, height), self.axes, ascii_only=self.options.ascii_only)
            self.query_one("#plot", TextBar).put(*drawing.lines[:height])
        else:
            self.query_one("#plot", TextBar).put(line(Span(" no rank has both metrics", "dim")))
        words = wrap(self._values(named), width, 1)[:_TEXT_LINES]
        self.query_one("#values", TextBar).put(*[cut(one, width) for one in words])

    def _values(self, named: Sequence[OddRank]) -> Line:
        """The outlier with its values in both runs."""
        if not named:
            return line(Span(" no outlier: all ranks are near the medians of their runs", "dim"))
        one = named[self._at % len(named)]
        head = f" outlier {self._at % len(named) + 1}/{len(named)} "
        parts: list[Span | str] = [Span(head, "dim"), Span(f"rank {one.rank} of {one.label}", "warn")]
        for metric in self.axes:
            told = [metric.shown(values.get(one.rank)) for values in metric.values]
            middles = [metric.shown(float(np.median(list(values.values())))) for values in metric.values]
            parts.append(f"   {shown(metric.name)} A {told[0]} ({middles[0]}), B {told[1]} ({middles[1]})")
        return line(*parts)

    def copied(self) -> str:
        """The outlier in the text."""
        return self._values(scatter_outliers(*self.axes)).plain.strip()

    def action_metric(self, axis: int, by: int) -> None:
        """Shows another metric to the right (0) or upwards (1)."""
        self._axes[axis] = (self._axes[axis] + by) % len(self.metrics)
        self._at = 0
        self.draw_bars()

    def action_rank(self, by: int) -> None:
        """Shows the values of the next outlier."""
        count = len(scatter_outliers(*self.axes))
        self._at = (self._at + by) % max(count, 1)
        self.draw_bars()
