"""The line of numbers over the lanes: sequence numbers of the group under the cursor, or the time of day."""

from __future__ import annotations

from datetime import tzinfo

import numpy as np
import polars as pl

from rankscope.text.wording import clock
from rankscope.tui.axis import View
from rankscope.tui.model import Model

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
