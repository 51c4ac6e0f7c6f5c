"""The axis of a lane: the window over it, how zooming changes that, and the line of numbers above it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.text.wording import clock
from rankscope.tui.model import Model

Kind = Literal["sequence", "time"]

LAST = 2**62
"""No unit is beyond this one."""
WIDEST = 16
"""Characters of the widest cell of the sequence axis."""


@dataclass(frozen=True)
class View:
    """A window on an axis. Units are columns of logical time, or nanoseconds."""

    kind: Kind
    first: int
    """The unit at the left edge."""
    per: int = 1
    """Units in one cell."""
    chars: int = 2
    """Characters of one cell; more than 1 only where a cell holds one unit."""

    def cells(self, width: int) -> int:
        """How many cells fit into `width` characters."""
        return max(1, width // self.chars)

    def span(self, width: int) -> int:
        """How many units fit into `width` characters."""
        return self.cells(width) * self.per

    def edges(self, width: int) -> NDArray[np.int64]:
        """The first unit of each cell, and the end of the last one. The units never fall, even if times are odd."""
        edges = [min(self.first + self.per * cell, LAST) for cell in range(self.cells(width) + 1)]
        return np.array(edges, np.int64)

    def cell_of(self, unit: int) -> int:
        """The cell a unit falls into; outside the window it is negative or too high."""
        return (unit - self.first) // self.per

    def unit_of(self, cell: int) -> int:
        """The first unit of a cell."""
        return self.first + cell * self.per


def zoom(view: View, steps: int, anchor: int, shortest: int = 1) -> View:
    """The view `steps` nearer (further if negative); `anchor` keeps its place on the screen."""
    per, chars = view.per, view.chars
    for _ in range(abs(steps)):
        per, chars = _nearer(view.kind, per, chars) if steps > 0 else _further(view.kind, per, chars)
    per = max(per, shortest)
    at = view.cell_of(anchor) * view.chars
    return _snapped(replace(view, per=per, chars=chars, first=anchor - (at // chars) * per))


def _nearer(kind: Kind, per: int, chars: int) -> tuple[int, int]:
    if kind == "time":
        return _below(per), 1
    return (per // 2, 1) if per > 1 else (1, min(chars * 2, WIDEST))


def _further(kind: Kind, per: int, chars: int) -> tuple[int, int]:
    if kind == "time":
        return _above(per), 1
    return (1, chars // 2) if chars > 1 else (per * 2, 1)


def _above(per: int) -> int:
    power = int(10 ** (len(str(per)) - 1))
    return next(power * step for step in (2, 5, 10) if power * step > per)


def _below(per: int) -> int:
    if per <= 1:
        return 1
    power = int(10 ** (len(str(per - 1)) - 1))
    return next(power * step for step in (5, 2, 1) if power * step < per)


def _snapped(view: View) -> View:
    return replace(view, first=view.first // view.per * view.per)


def fit(kind: Kind, low: int, high: int, width: int) -> View:
    """The nearest view that shows all units from `low` up to `high`."""
    view = View(kind, low, 1, WIDEST if kind == "sequence" else 1)
    for _ in range(200):
        view = replace(view, first=low // view.per * view.per)
        if view.unit_of(view.cells(width)) >= high:
            break
        per, chars = _further(kind, view.per, view.chars)
        view = replace(view, per=per, chars=chars)
    return view


def clamp(view: View, low: int, high: int, width: int, beyond: int = 0) -> View:
    """The view moved so that it begins no earlier than `low` and ends at most `beyond` cells after `high`."""
    last = high + beyond * view.per - view.span(width)
    # Up to the next whole cell: the last unit must stay visible.
    last = -(-last // view.per) * view.per
    first = max(min(view.first, last), low // view.per * view.per)
    return _snapped(replace(view, first=first))


def reveal(view: View, unit: int, width: int, margin: int = 2) -> View:
    """The view moved as little as needed for `unit` to be `margin` cells inside."""
    cells = view.cells(width)
    margin = min(margin, (cells - 1) // 2)
    cell = view.cell_of(unit)
    if cell < margin:
        return replace(view, first=view.first + (cell - margin) * view.per)
    if cell > cells - 1 - margin:
        return replace(view, first=view.first + (cell - cells + 1 + margin) * view.per)
    return view


def centre(view: View, unit: int, width: int, share: float = 0.5) -> View:
    """The view moved so that `unit` is at `share` of its width."""
    return _snapped(replace(view, first=unit - int(view.cells(width) * share) * view.per))


APART = 10
"""Characters between two numbers, at least."""


def group_ticks(model: Model, group: int | None) -> tuple[list[int], list[int]]:
    """Columns of a group's collectives, rising, and their sequence numbers; without a group, the steps themselves."""
    if group is None:
        return [], []
    part = model.instances.filter(pl.col("group") == group).sort("col")
    return part["col"].to_list(), part["seq"].to_list()


def sequence_ruler(view: View, width: int, ticks: tuple[list[int], list[int]], steps: int) -> str:
    """`|1105     |1110` over the columns of a group's collectives; without a group, the numbers of steps."""
    line = [" "] * width
    columns, numbers = ticks
    first = np.searchsorted(columns, view.first) if columns else 0
    pairs = zip(columns[int(first) :], numbers[int(first) :], strict=True) if columns else _steps(view, width, steps)
    free = 0
    for column, number in pairs:
        at = view.cell_of(column) * view.chars
        if at >= width:
            break
        text = f"|{number}"
        if at >= free and at + len(text) <= width and (not columns or _round(number, view, columns) or at == 0):
            line[at : at + len(text)] = text
            free = at + max(APART, len(text) + 1)
    return "".join(line)


def _steps(view: View, width: int, steps: int) -> list[tuple[int, int]]:
    every = nice(APART * view.per // view.chars)
    last = min(view.first + view.span(width), steps)
    start = -(-max(view.first, 0) // every) * every
    return [(column, column) for column in range(start, last, every)]


def nice(least: int) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50, ... that is no less than `least`."""
    power = 1
    while True:
        for step in (1, 2, 5):
            if step * power >= least:
                return step * power
        power *= 10


def _round(number: int, view: View, columns: list[int]) -> bool:
    """Whether the ruler shows a number: the multiples it shows are as far apart as it needs."""
    per_column = (columns[-1] - columns[0]) / max(len(columns) - 1, 1) or 1
    return number % nice(round(APART * view.per / view.chars / per_column)) == 0


def time_ruler(view: View, width: int, zone: tzinfo | None = None) -> str:
    """`|14:02:11.113` at round times, with as many digits as their distance needs."""
    every = nice(16 * view.per)
    digits = max(0, 9 - (len(str(every)) - 1))
    line = [" "] * width
    at_ns = -(-view.first // every) * every
    while (at := view.cell_of(at_ns)) < width:
        text = "|" + clock(at_ns, zone, digits)
        if at + len(text) <= width:
            line[at : at + len(text)] = text
        at_ns += every
    return "".join(line)
