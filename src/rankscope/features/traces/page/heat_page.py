"""The heat map of traces: a digit for each rank and step, for a first look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from textual.binding import BindingType

from rankscope.analysis.model import Analysis
from rankscope.features.traces.path_section import NO_RANK, process_text
from rankscope.features.traces.rules.model import METRICS, STEP_TIME, TRACE_RESULTS, Metric, TraceAnalysis
from rankscope.schema import Dataset
from rankscope.text.wording import duration
from rankscope.tui.actions import bound
from rankscope.tui.detail.screens.grid_page import LABEL, GridPage, RankRow, fold_ranks, row_head
from rankscope.tui.detail.screens.page import Way
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Moment
from rankscope.tui.styled_text import HEAT, Line, Span, line, wrapped


class HeatScreen(GridPage):
    """Ranks by steps; dismisses with the chosen rank and the begin of its step."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("unfold", "unfold", "unfold"),
        bound("next_finding", "hottest", "hottest"),
    ]
    WAYS = (
        Way("m", "metric(1)", "the next metric"),
        Way("p", "metric(-1)", "the metric before"),
    )
    VIEW = "heat"
    ENTER = "go there"
    FIND_HINT = "a rank: 12"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset, self.analysis = dataset, analysis
        self.traces = TRACE_RESULTS.find(analysis) or TraceAnalysis()
        self.metric = 0
        self.heat = build_heat(self.traces.steps, METRICS[0])
        self._folded = True
        self._shown: list[RankRow] = []

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether no trace holds a step."""
        del dataset
        return TRACE_RESULTS.find(analysis) is None or TRACE_RESULTS.of(analysis).steps.is_empty()

    @property
    def columns(self) -> Sequence[int]:
        """The steps of the traces."""
        return self.heat.steps

    def heading(self) -> list[Line]:
        """The metric, the scale, and the numbers of steps."""
        title = line(Span(" heat map", "head"), "  ranks by steps  ")
        if not self.heat.steps:
            return [line(title, Span("no steps", "dim"))]
        metric = Span(f"{METRICS[self.metric].name} ", "bold")
        scale = Span(f" {self._scale()}", "dim")
        return [line(title, metric, *_legend(), scale), self._ruler()]

    def _scale(self) -> str:
        if np.isnan(self.heat.values).all():
            return "not known yet" if self.is_early else "not known: only collectives of the traces were read"
        return f"0 is {duration(round(self.heat.low))}, 9 is {duration(round(self.heat.high))}"

    def search(self, text: str) -> int:
        """Lists the rows with a rank."""
        apart = frozenset(self.heat.ranks) if not self._folded else frozenset(self.analysis.culprits)
        rows = fold_ranks(self.heat.ranks, self.heat.digits, apart)
        rank = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
        self._shown = [row for row in rows if rank is None or rank in row.ranks]
        self._digits = self.heat.digits
        return len(self._shown)

    def head(self, at: int) -> Span:
        """The ranks of a row."""
        ranks = self._shown[at].ranks
        mark = "!" if not set(ranks).isdisjoint(self.analysis.culprits) else " "
        if self.dataset.is_rankless:
            return Span(f"{f' {NO_RANK}':<{LABEL + 1}}", "text")
        return row_head(ranks, mark, "bad" if mark == "!" else "text")

    def look(self, at: int, column: int) -> Span:
        """The digit of a cell."""
        digit = int(self._digits[self._shown[at].at, column])
        return Span(" ", "text") if digit == MISSING else Span(str(digit), HEAT[digit // 2])

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The numbers of the cell under the cursor, beside the median of all ranks in that step."""
        row = self._shown[at]
        if not self.heat.steps:
            return []
        rank, step = self.heat.ranks[row.at], self.heat.steps[self._cell]
        who = Span(process_text(self.dataset, row.ranks, 24), "head")
        lines = [line(who, f"  step {step}")]
        parts: list[Span | str] = []
        for metric in METRICS:
            heat = build_heat(self.traces.steps.filter(step=step), metric)
            if rank not in heat.ranks:
                return [*lines, line(Span("its trace does not hold this step", "dim"))]
            value = heat.values[heat.ranks.index(rank), 0]
            if np.isnan(value):
                # of this trace only collectives and steps were read
                continue
            middle = float(np.nanmedian(heat.values))
            odd = value > 1.2 * middle + 1e6
            parts += ["; " if parts else "", f"{metric.name} ", Span(duration(round(value)), "warn" if odd else "bold")]
            parts += [Span(f" ({duration(round(middle))})", "dim")]
        return wrapped([*lines, line(*parts, Span("; in brackets the median of all ranks", "dim"))], width, 2)

    def begin(self) -> None:
        """Puts the cursor on the highest value."""
        super().begin()
        self.call_after_refresh(self.action_hottest)

    def action_metric(self, by: int) -> None:
        """Shows the next metric."""
        self.metric = (self.metric + by) % len(METRICS)
        self.heat = build_heat(self.traces.steps, METRICS[self.metric])
        self._relist()

    def action_unfold(self) -> None:
        """Gives each rank a row, or folds ranks with equal cells."""
        self._folded = not self._folded
        self._relist()

    def _relist(self) -> None:
        rank = self._shown[self.listing.cursor].ranks[0] if self._shown else None
        self.fill()
        for at, row in enumerate(self._shown):
            if rank in row.ranks:
                self.listing.move_to(at)
        self.draw_bars()

    def action_hottest(self) -> None:
        """Goes to the highest value of all."""
        if not self._shown or not len(self.heat.steps):
            return
        rows = np.nan_to_num(self.heat.values[[row.at for row in self._shown]], nan=-1)
        row, step = np.unravel_index(int(rows.argmax()), rows.shape)
        self.listing.move_to(int(row))
        self.go_step(int(step))

    def choose(self, at: int) -> None:
        """Goes to the begin of the step in the lane of the rank."""
        row = self._shown[at]
        start = int(self.heat.starts[row.at, self._cell])
        step = self.traces.steps.filter(rank=self.heat.ranks[row.at], step=self.heat.steps[self._cell])
        if start >= 0 and step.height:
            self.dismiss(Moment(self.heat.ranks[row.at], start, int(step["end_ns"][0])))


def _legend() -> list[Span]:
    return [Span(f"{2 * level}{2 * level + 1}", role) for level, role in enumerate(HEAT)]


# The heat map as a grid of digits: ranks by steps, 0 the least and 9 the most. No widget, no terminal.

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MISSING = -1
"""The digit of a step that a rank's trace does not hold."""
NOISE = 0.05
"""Least share of a step that the scale spans: smaller differences are noise and must not look like heat."""


@dataclass(frozen=True)
class Heat:
    """A metric of all ranks and steps."""

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    values: Floats
    """Nanoseconds, ranks x steps; NaN where a trace does not hold the step."""
    starts: Ints
    """Begin of each step on each rank; -1 if the rank has none."""
    low: float
    high: float
    """Values for the digits 0 and 9."""

    @property
    def digits(self) -> NDArray[np.int8]:
        """Each cell from 0 to 9, MISSING where nothing is known."""
        size = self.high - self.low
        share = (self.values - self.low) / size if size > 0 else np.zeros_like(self.values)
        known = ~np.isnan(self.values)
        tenths = np.floor(np.clip(np.where(known, share, 0), 0, 1) * 9.999)
        return np.where(known, tenths, MISSING).astype(np.int8)


def build_heat(steps: pl.DataFrame, metric: Metric) -> Heat:
    """The grid of a metric over `TraceAnalysis.steps`; the worst value counts for a repeated step."""
    table = steps.select("rank", "step", "start_ns", metric.column.cast(pl.Float64).alias("value"))
    table = table.group_by("rank", "step").agg(pl.col("value").max(), pl.col("start_ns").min())
    ranks = sorted(table["rank"].drop_nulls().unique().to_list())
    numbers = sorted(table["step"].drop_nulls().unique().to_list())
    table = table.drop_nulls(["rank", "step"])
    row = np.searchsorted(ranks, table["rank"].to_numpy()) if ranks else np.zeros(0, np.int64)
    column = np.searchsorted(numbers, table["step"].to_numpy()) if numbers else np.zeros(0, np.int64)
    values = np.full((len(ranks), len(numbers)), np.nan)
    starts = np.full(values.shape, -1, np.int64)
    values[row, column] = table["value"].fill_null(float("nan")).to_numpy()
    starts[row, column] = table["start_ns"].fill_null(-1).to_numpy()
    known = values[~np.isnan(values)]
    low = _least(known) if metric.name == STEP_TIME else min(_least(known), 0.0)
    high = max(float(known.max()), low + NOISE * _median_step(steps)) if len(known) else low
    return Heat(tuple(ranks), tuple(numbers), values, starts, low, high)


def _least(known: Floats) -> float:
    return float(known.min()) if len(known) else 0.0


def _median_step(steps: pl.DataFrame) -> float:
    length = (steps["end_ns"] - steps["start_ns"]).median()
    return float(length) if isinstance(length, (int, float)) else 0.0
