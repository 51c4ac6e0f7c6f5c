"""The drawing of training series as text. No widget."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl
from rich.style import Style
from rich.text import Text
from textual_plotext.plot import Plot

from rankscope.analysis.arrays import Ints
from rankscope.analysis.comparison.series_comparison import Floats
from rankscope.analysis.comparison.series_curves import Curves
from rankscope.tui.styled_text import Line, Role, Span, line

_PER_COLUMN = 2
"""Points of a column that the drawing can tell apart."""
_TICKS = 5
_ROLES: dict[int, Role] = {1: "head", 2: "warn", 3: "text", 4: "dim"}
"""The roles of the colours with which A, B, equal values and the band are drawn; the theme colours them."""
_QUADRANTS = "hd"
"""plotext's name for quarter blocks: terminals agree on their width, so only changed cells are sent."""


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
