"""Training series of several runs as curves, and their drawing as text. No widget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.style import Style
from rich.text import Text
from textual_plotext.plot import Plot

from rankscope.analysis.comparison.series_comparison import VALUE_NAMES, SeriesComparison, unequal
from rankscope.tui.styled_text import Line, Role, Span, line

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
LEAST_BAND = 3
"""Fewest baselines that make a band."""
_PER_COLUMN = 2
"""Points of a column that the drawing can tell apart."""
_TICKS = 5
_ROLES: dict[int, Role] = {1: "head", 2: "warn", 3: "text", 4: "dim"}
"""The roles of the colours with which A, B, equal values and the band are drawn; the theme colours them."""
_QUADRANTS = "hd"
"""plotext's name for quarter blocks: terminals agree on their width, so only changed cells are sent."""


class SeriesKey(NamedTuple):
    """A series of one rank, or of the job."""

    name: str
    rank: int | None

    @property
    def shown(self) -> str:
        """The series in words."""
        return self.name if self.rank is None else f"{self.name} of rank {self.rank}"


def series_keys(tables: Sequence[pl.DataFrame], found: SeriesComparison) -> tuple[SeriesKey, ...]:
    """The series that all runs have: those that differ first, in the order of their first differing steps."""
    if not tables or any(table.is_empty() for table in tables):
        return ()
    known = [set(table.select("name", "rank").unique().iter_rows()) for table in tables]
    shared = {SeriesKey(*one) for one in set.intersection(*known)}
    first = {SeriesKey(one.name, one.rank): number for number, one in enumerate(found.differences)}
    order = {name: number for number, name in enumerate(VALUE_NAMES)}

    def place(key: SeriesKey) -> tuple[int, int, str, int]:
        rank = -1 if key.rank is None else key.rank
        return first.get(key, len(first)), order.get(key.name, len(order)), key.name, rank

    return tuple(sorted(shared, key=place))


@dataclass(frozen=True)
class Curves:
    """One series of several runs over the steps that any of them has."""

    key: SeriesKey
    steps: Ints
    """Rising."""
    values: Floats
    """Runs x steps; NaN where a run has no value."""
    known: NDArray[np.bool_]
    """Runs x steps: whether the run has a value, which may be NaN itself."""
    resolutions: Floats
    baselines: int = 1
    """How many of the runs, the first ones, are baselines; the first of them is A, the first other run is B."""

    @property
    def a(self) -> Floats:
        """The values of A."""
        values: Floats = self.values[0]
        return values

    @property
    def b(self) -> Floats:
        """The values of B."""
        values: Floats = self.values[self.baselines]
        return values

    @cached_property
    def both(self) -> NDArray[np.bool_]:
        """The steps that A and B have."""
        both: NDArray[np.bool_] = self.known[0] & self.known[self.baselines]
        return both

    @cached_property
    def differs(self) -> NDArray[np.bool_]:
        """The steps in which B differs from A by more than their digits."""
        return self.both & unequal(self.a, self.b, self.resolutions[0], self.resolutions[self.baselines])

    @cached_property
    def band(self) -> tuple[Floats, Floats] | None:
        """The least and the greatest value of the baselines in each step; None if there are too few of them."""
        own = self.values[: self.baselines]
        if len(own) < LEAST_BAND:
            return None
        empty = np.isnan(own).all(axis=0)
        filled = np.where(empty, 0.0, own)
        low, high = np.nanmin(filled, axis=0), np.nanmax(filled, axis=0)
        return np.where(empty, np.nan, low), np.where(empty, np.nan, high)

    def relative(self, at: int) -> float:
        """|a - b| / |a| in one step; NaN if it is not known."""
        a, b = float(self.a[at]), float(self.b[at])
        return abs(a - b) / abs(a) if a else float("nan")


def curves(tables: Sequence[pl.DataFrame], key: SeriesKey, baselines: int = 1) -> Curves:
    """The curves of a series; `tables` have the columns of `series_comparison.COLUMNS`."""
    own = [_newest(table, key) for table in tables]
    steps = np.unique(np.concatenate([table["step"].to_numpy() for table in own])).astype(np.int64)
    values = np.full((len(own), len(steps)), np.nan)
    known, resolutions = np.zeros(values.shape, np.bool_), np.zeros(values.shape)
    for number, table in enumerate(own):
        at = np.searchsorted(steps, table["step"].to_numpy())
        values[number, at], known[number, at] = table["value"].to_numpy(), True
        resolutions[number, at] = table["resolution"].fill_null(0.0).to_numpy()
    return Curves(key, steps, values, known, resolutions, baselines)


def _newest(table: pl.DataFrame, key: SeriesKey) -> pl.DataFrame:
    """One row for each exact step: of the newest restart, and there the most exact one."""
    exact = pl.col("step_hi").fill_null(pl.col("step")) == pl.col("step")
    own = table.filter(pl.col("name") == key.name, pl.col("rank").eq_missing(key.rank), exact)
    ordered = own.sort(pl.col("segment").fill_null(0), -pl.col("resolution").fill_null(0.0), maintain_order=True)
    return ordered.unique("step", keep="last", maintain_order=True)


# The drawing.


class PlotArea(NamedTuple):
    """The part of a drawing: steps from `low` to `high`, in cells."""

    low: int
    high: int
    width: int
    height: int
    is_log: bool = False
    letters: bool = False
    """Letters instead of blocks and colours: A, B, and = where they are equal."""
    ascii_only: bool = False


class Drawing(NamedTuple):
    """A drawn plot."""

    lines: list[Line]
    left: int
    """The first column inside the axes."""
    columns: int
    """Columns inside the axes."""

    def column(self, area: PlotArea, step: int) -> int:
        """The column of a step, from the left edge of the drawing."""
        span = max(area.high - area.low, 1)
        return self.left + round((step - area.low) / span * (self.columns - 1))


def draw(found: Curves, area: PlotArea) -> Drawing:
    """The curves of A and B, and the band of the baselines; plotext draws them."""
    plot = Plot()
    plot.plotsize(area.width, area.height)
    plot.theme("clear")
    inside = (found.steps >= area.low) & (found.steps <= area.high)
    equal = found.both & ~found.differs
    if found.band is not None:
        for edge in found.band:
            _add(plot, found.steps[inside], edge[inside], area, ".", 4)
    for values, mark, colour in ((found.a, "A", 1), (found.b, "B", 2)):
        _add(plot, found.steps[inside], values[inside], area, mark, colour)
    _add(plot, found.steps[inside & equal], found.a[inside & equal], area, "=", 3, joined=False)
    plot.xlim(area.low, max(area.high, area.low + 1))
    ticks = np.unique(np.linspace(area.low, area.high, _TICKS).round().astype(np.int64)).tolist()
    plot.xticks(ticks, [f"{tick:,}" for tick in ticks])
    if area.is_log:
        plot.yscale("log")
    return recoloured(Text.from_ansi(plot.build()), ascii_only=area.ascii_only)


def _add(
    plot: Plot, steps: Ints, values: Floats, area: PlotArea, mark: str, colour: int, *, joined: bool = True
) -> None:
    """Adds a run to the plot: in each column at most its least and its greatest value."""
    drawn = np.isfinite(values) & (values > 0 if area.is_log else True)
    steps, values = thinned(steps[drawn], values[drawn], area)
    if len(steps):
        add = plot.plot if joined and not area.letters else plot.scatter
        add(steps.tolist(), values.tolist(), marker=mark if area.letters else _QUADRANTS, color=colour)


def thinned(steps: Ints, values: Floats, area: PlotArea) -> tuple[Ints, Floats]:
    """The least and the greatest value of each column, in the order of steps; few points stay as they are."""
    columns = max(area.width * _PER_COLUMN, 1)
    if len(steps) <= 2 * columns:
        return steps, values
    column = (steps - area.low) * columns // max(area.high - area.low + 1, 1)
    table = pl.DataFrame({"column": column, "value": values}).with_row_index("at")
    ends = table.group_by("column").agg(
        pl.col("at").get(pl.col("value").arg_min()).alias("least"),
        pl.col("at").get(pl.col("value").arg_max()).alias("greatest"),
    )
    kept = np.unique(np.concatenate([ends["least"].to_numpy(), ends["greatest"].to_numpy()])).astype(np.int64)
    return steps[kept], values[kept]


_FRAME = str.maketrans("\u250c\u2510\u2514\u2518\u2500\u2502\u2524\u252c\u253c\u251c\u2534", "++++-|+++++")
"""The lines around a plot in ASCII."""


def recoloured(text: Text, *, ascii_only: bool) -> Drawing:
    """The lines of a plot with roles instead of colours, and the columns inside its axes."""
    left, columns = 0, 1
    lines = []
    for one in text.split("\n"):
        start, end = one.plain.find("\u2514"), one.plain.find("\u2518")
        if 0 <= start < end:
            left, columns = start + 1, end - start - 1
        plain = one.plain.translate(_FRAME) if ascii_only else one.plain
        edges = sorted({0, len(plain), *(edge for span in one.spans for edge in (span.start, span.end))})
        parts = [Span(plain[a:b], _role(one, a)) for a, b in pairwise(edges)]
        lines.append(line(*parts))
    return Drawing([one for one in lines if one.plain.strip()], left, columns)


def _role(text: Text, at: int) -> Role:
    """The role for the colour of a character."""
    for span in text.spans:
        style = span.style
        if span.start <= at < span.end and isinstance(style, Style) and style.color is not None:
            return _ROLES.get(style.color.number or 0, "dim")
    return "dim"


def mark_line(found: Curves, area: PlotArea, drawing: Drawing, cursor: int) -> Line:
    """The line below a plot: `^` under columns with a differing step, `.` under equal ones, `N` where a value is no
    number, `|` at the cursor.
    """
    marks = [" "] * (drawing.left + drawing.columns)
    inside = np.flatnonzero((found.steps >= area.low) & (found.steps <= area.high) & found.both)
    odd = ~np.isfinite(found.a) | ~np.isfinite(found.b)
    for at in inside.tolist():
        column = drawing.column(area, int(found.steps[at]))
        mark = "N" if odd[at] else "^" if found.differs[at] else "."
        if marks[column] in " ." or mark == "N":
            marks[column] = mark
    column = drawing.column(area, cursor)
    text = "".join(marks)
    if not 0 <= column < len(text):
        return line(Span(text, "warn"))
    return line(Span(text[:column], "warn"), Span(text[column] if text[column] != " " else "|", "mark"),
                Span(text[column + 1 :], "warn"))  # fmt: skip
