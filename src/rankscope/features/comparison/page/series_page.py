"""Loss, gradient norm and others of both runs as a plot, with the steps that differ marked below it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
import polars as pl
from rich.style import Style
from rich.text import Text
from textual.binding import BindingType
from textual.widget import Widget
from textual_plotext.plot import Plot

from rankscope.analysis.arrays import Ints
from rankscope.features.comparison.page.compared_view import ComparedView, TargetPage, shown
from rankscope.features.comparison.rules.series_comparison import Curves, Floats, SeriesKey, curves, series_keys
from rankscope.tui.actions import Hint, bound
from rankscope.tui.detail.screens.page import Way
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import Line, Role, Span, cut, line, wrap
from rankscope.tui.text_bars import TextBar

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
    return line(
        Span(text[:column], "warn"),
        Span(text[column] if text[column] != " " else "|", "mark"),
        Span(text[column + 1 :], "warn"),
    )


_TEXT_LINES = 2
_LEAST_HEIGHT = 4
"""Fewest lines of a plot."""
_LEAST_STEPS = 4
"""Fewest steps that a zoom shows."""


class SeriesPage(TargetPage):
    """One series of both runs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("next_finding", "difference(1)", "next step that differs"),
        bound("previous_finding", "difference(-1)", "previous step that differs"),
        bound("down", "rank(1)", "next rank of the series", "up down"),
        bound("up", "rank(-1)"),
        bound("right", "column(1)", "a column to the right", "left right"),
        bound("left", "column(-1)"),
        bound("next_op", "step(1)", "next step"),
        bound("previous_op", "step(-1)"),
        bound("begin", "end(0)", "first step", "home end"),
        bound("end", "end(-1)"),
        bound("zoom_in", "zoom(2)", "zoom in and out, all", "+ - 0"),
        bound("zoom_out", "zoom(0.5)"),
        bound("zoom_fit", "zoom(0)"),
        bound("axis", "scale", "linear or logarithmic scale"),
        bound("back", "back", "back"),
    ]
    WAYS = (
        Way("s", "series(1)", "the next series"),
        Way("p", "series(-1)", "the series before"),
    )
    TITLE = "series"
    OWN = (
        Hint("n", "n", "next"),
        Hint("g", "g", "series"),
        Hint("t", "t", "log"),
        Hint("plus", "+ - 0", "zoom"),
        Hint("escape", "esc", "back"),
    )

    def __init__(self, view: ComparedView, options: ViewOptions, target: str = "") -> None:
        super().__init__(view, options, target)
        self._keys_of = series_keys(view.whole.series.tables, view.whole.grounds.series)
        named = (number for number, key in enumerate(self._keys_of) if key.name == target)
        self._at = next(named, 0)
        self.curves = self._load()
        self.is_log = False
        # the place of the first step that differs, else of the last one
        differs = np.flatnonzero(self.curves.differs)
        self.cursor = int(differs[0]) if len(differs) else len(self.curves.steps) - 1
        self.window = self._whole()

    @classmethod
    def missing(cls, view: ComparedView) -> str:
        """Why there is no series."""
        known = series_keys(view.whole.series.tables, view.whole.grounds.series)
        return "" if known else f"no series: values are {shown(view.part('values').answer)}"

    @property
    def key(self) -> SeriesKey:
        """The series on the page."""
        return self._keys_of[self._at]

    def _load(self) -> Curves:
        whole = self.view.whole
        return curves(whole.series.tables, [self.key], whole.baselines)[0]

    def _whole(self) -> tuple[int, int]:
        return int(self.curves.steps[0]), int(self.curves.steps[-1])

    @property
    def step(self) -> int:
        """The step under the cursor."""
        return int(self.curves.steps[self.cursor])

    def body(self) -> Iterable[Widget]:
        """The plot, the marks below it, and the values at the cursor."""
        yield TextBar("plot", self.options)
        yield TextBar("marks", self.options)
        yield TextBar("values", self.options)

    def heading(self) -> list[Line]:
        """The runs, and the series with its place among all."""
        count = len(self._keys_of)
        number = Span(f"  {self._at + 1} of {count}", "dim") if count > 1 else ""
        scale = Span("  log scale" if self.is_log else "", "dim")
        legend = line(Span("  A", "head"), " ", Span("B", "warn"), " ", Span("= equal" if self._letters else "equal"))
        return [self.title_line(), line(" ", Span(shown(self.key.shown), "bold"), number, scale, legend)]

    @property
    def _letters(self) -> bool:
        return self.options.ascii_only or self.options.palette == "none"

    @property
    def _area(self) -> PlotArea:
        height = self.size.height - 2 - 1 - _TEXT_LINES - 1
        return PlotArea(
            *self.window,
            self.size.width - 1,
            max(height, _LEAST_HEIGHT),
            self.is_log,
            self._letters,
            self.options.ascii_only,
        )

    def fill(self) -> None:
        """Nothing: everything is drawn for the size."""

    def draw_bars(self) -> None:
        """Draws plot, marks, values and keys."""
        super().draw_bars()
        area = self._area
        drawing = draw(self.curves, area)
        self.query_one("#plot", TextBar).put(*drawing.lines[: area.height])
        self.query_one("#marks", TextBar).put(mark_line(self.curves, area, drawing, self.step))
        width = self.size.width - 1
        words = wrap(self._values(), width, 1)[:_TEXT_LINES]
        self.query_one("#values", TextBar).put(*[cut(one, width) for one in words])

    def _values(self) -> Line:
        """The values of both runs at the cursor, and how they compare."""
        curves, at = self.curves, self.cursor
        pair = [0, curves.baselines]
        texts = [
            f"{value:.9g}" if known else "no value"
            for value, known in zip(curves.values[pair, at], curves.known[pair, at], strict=True)
        ]
        parts: list[Span | str] = [" step ", Span(f"{self.step:,}", "bold"), f"  A {texts[0]}  B {texts[1]}  "]
        if not curves.both[at]:
            parts.append(Span("not comparable", "dim"))
        elif curves.differs[at]:
            parts += [Span("DIFFERS", "warn"), f" by {curves.relative[at]:.1e} of A"]
        else:
            parts.append(Span("equal", "good"))
        count = int(curves.differs.sum())
        first = f"; first at step {int(curves.steps[curves.differs.argmax()]):,}" if count else ""
        parts.append(Span(f"   {count:,} of {int(curves.both.sum()):,} steps differ{first}", "dim"))
        return line(*parts)

    def copied(self) -> str:
        """The values at the cursor."""
        return f"{self.key.shown}: {self._values().plain.strip()}"

    # Keys

    def _show(self, at: int) -> None:
        """Shows another series; cursor and window stay if they can."""
        step, whole = self.step, self.window == self._whole()
        self._at = at % len(self._keys_of)
        self.curves = self._load()
        self._go(int(np.searchsorted(self.curves.steps, step)))
        if whole:
            self.window = self._whole()
        self.draw_bars()

    def action_series(self, by: int) -> None:
        """Shows the next series with another name."""
        names = list(dict.fromkeys(key.name for key in self._keys_of))
        name = names[(names.index(self.key.name) + by) % len(names)]
        self._show(next(number for number, key in enumerate(self._keys_of) if key.name == name))

    def action_rank(self, by: int) -> None:
        """Shows the same series of another rank."""
        numbers = [number for number, key in enumerate(self._keys_of) if key.name == self.key.name]
        self._show(numbers[(numbers.index(self._at) + by) % len(numbers)])

    def action_difference(self, by: int) -> None:
        """Goes to the next or the previous step that differs."""
        places = np.flatnonzero(self.curves.differs)
        ahead = places[places > self.cursor] if by > 0 else places[places < self.cursor][::-1]
        if len(ahead):
            self._go(int(ahead[0]))
            self.draw_bars()
        else:
            self.note("no further step differs" if by > 0 else "no earlier step differs")

    def action_column(self, by: int) -> None:
        """Moves by a column of the plot."""
        low, high = self.window
        steps = by * max((high - low) // max(self.size.width, 1), 1)
        at = int(np.searchsorted(self.curves.steps, self.step + steps))
        self._go(at if at != self.cursor else self.cursor + by)
        self.draw_bars()

    def action_step(self, by: int) -> None:
        """Moves by one step."""
        self._go(self.cursor + by)
        self.draw_bars()

    def action_end(self, at: int) -> None:
        """Goes to the first or the last step."""
        self._go(at if at >= 0 else len(self.curves.steps) - 1)
        self.draw_bars()

    def _go(self, at: int) -> None:
        """Puts the cursor on a step and moves the window if it must."""
        self.cursor = max(0, min(at, len(self.curves.steps) - 1))
        low, high = self.window
        if not low <= self.step <= high:
            self._centre(high - low)

    def _centre(self, span: int) -> None:
        """Shows `span` steps around the cursor, within the run."""
        first, last = self._whole()
        low = max(first, min(self.step - span // 2, last - span))
        self.window = low, min(low + span, last)

    def action_zoom(self, factor: float) -> None:
        """Zooms in or out around the cursor; 0 shows all steps."""
        low, high = self.window
        if factor:
            self._centre(max(round((high - low) / factor), _LEAST_STEPS))
        else:
            self.window = self._whole()
        self.draw_bars()

    def action_scale(self) -> None:
        """Changes between a linear and a logarithmic scale."""
        self.is_log = not self.is_log
        self.draw_bars()
