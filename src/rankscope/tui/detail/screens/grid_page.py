"""A page with rows of cells over a ruler of numbers, and a cursor on one cell: heat maps, memory, numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from textual.binding import BindingType
from textual.containers import Container
from textual.widget import Widget

from rankscope.text.wording import rank_ranges
from rankscope.tui.actions import bound
from rankscope.tui.detail.line_widgets import CellList, Lines
from rankscope.tui.detail.screens.page import ListPage
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import Line, Role, Span, cut, line

LABEL = 12
"""Cells for the ranks of a row and their number."""


class GridPage(ListPage):
    """Rows of cells over a ruler of numbers. Subclasses give these, and the head and the cells of each row."""

    DEFAULT_CSS = "GridPage #list { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        bound("right", "cell(1)", "step", "left right"),
        bound("left", "cell(-1)"),
    ]
    RULED: ClassVar[str] = "step"
    """Noun of the columns."""

    def __init__(self, options: ViewOptions) -> None:
        super().__init__(options)
        self._cell = 0
        self._first = 0
        """The column at the left edge."""

    @property
    def columns(self) -> Sequence[int]:
        """The numbers of the columns."""
        raise NotImplementedError

    @property
    def label_width(self) -> int:
        """Cells for the label of a row."""
        return LABEL

    @property
    def ruled(self) -> str:
        """Noun of the columns, over the labels."""
        return self.RULED

    def column_label(self, column: int) -> str:
        """The label of a column, in the ruler."""
        return str(self.columns[column])

    def head(self, at: int) -> Span:
        """The label of a row, in `label_width` cells."""
        raise NotImplementedError

    def look(self, at: int, column: int) -> Span:
        """The character of a cell."""
        raise NotImplementedError

    def body(self) -> Iterable[Widget]:
        """The grid, and the numbers of the cell under the cursor."""
        yield Container(CellList(self.options, id="list"), Lines(self.options, id="text"), id="body")

    @property
    def _chars(self) -> int:
        """Characters of a cell."""
        return 2 if len(self.columns) * 2 <= self._room else 1

    @property
    def _room(self) -> int:
        return max(self.size.width - self.label_width - 2, 1)

    def _ruler(self) -> Line:
        chars = self._chars
        every = {1: 10, 2: 5}.get(chars, 1)
        text = [" "] * (self._room + 8)
        columns = self.columns
        for at in range(self._first, min(len(columns), self._first + self._room)):
            place = (at - self._first) * chars
            if (at % every == 0 or at == self._first) and place < self._room - 6:
                label = f"|{self.column_label(at)}"
                if all(char == " " for char in text[place : place + len(label) + 1]):
                    text[place : place + len(label)] = label
        return line(Span(f"  {self.ruled:<{self.label_width - 1}}" + "".join(text)[: self._room], "dim"))

    def entry_line(self, at: int, width: int) -> Line:
        """A row of the grid."""
        return cut(line(self.head(at), *self._cells(at, cursor=at == self.listing.cursor)), width)

    def _cells(self, at: int, *, cursor: bool) -> list[Span]:
        chars = self._chars
        last = min(self._first + self._room // chars, len(self.columns))
        out = []
        for column in range(self._first, last):
            text, role = self.look(at, column)
            role = "mark" if cursor and column == self._cell else role
            out.append(Span(text * chars if role == "mark" and chars == 1 else text.ljust(chars), role))
        return out

    def action_cell(self, by: int) -> None:
        """Moves along the steps."""
        self.go_step(self._cell + by)

    def go_step(self, at: int) -> None:
        """Puts the cursor on a step and brings it into view."""
        self._cell = max(0, min(at, len(self.columns) - 1))
        fitting = max(self._room // self._chars, 1)
        self._first = max(min(self._first, self._cell), self._cell - fitting + 1, 0)
        self.draw_bars()
        self.listing.move_to(self.listing.cursor)


def row_head(ranks: Sequence[int], mark: str, role: Role, width: int = LABEL) -> Span:
    """The head of a row of ranks: a mark, the ranks and their number."""
    count = f"x{len(ranks)}" if len(ranks) > 1 else ""
    return Span(f"{mark}{rank_ranges(ranks, width - 7):<{width - 7}} {count:>4} ", role)


class RankRow(NamedTuple):
    """A row of a grid: neighbouring ranks with equal cells."""

    ranks: tuple[int, ...]
    at: int
    """The row of cells that stands for them."""


def fold_ranks(ranks: Sequence[int], cells: NDArray[np.int8], apart: frozenset[int]) -> list[RankRow]:
    """The rows of a grid with a row of `cells` for each rank; ranks in `apart` share none."""
    out: list[RankRow] = []
    for at, rank in enumerate(ranks):
        before = out[-1] if out else None
        alone = before is None or rank in apart or before.ranks[-1] in apart
        if before is not None and not alone and bool((cells[before.at] == cells[at]).all()):
            out[-1] = before._replace(ranks=(*before.ranks, rank))
        else:
            out.append(RankRow((rank,), at))
    return out


class BinnedPage(GridPage):
    """A grid whose columns hold neighbours of an axis, as many as it takes to show all; keys zoom.

    Subclasses give the axis, and the codes of a row.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("zoom_in", "zoom(-1)", "zoom, all", "+ - 0"),
        bound("zoom_out", "zoom(1)"),
        bound("zoom_fit", "zoom(0)"),
    ]
    LOOKS: ClassVar[Sequence[Span]]
    """The look of each code."""

    def __init__(self, options: ViewOptions) -> None:
        super().__init__(options)
        self.per = 1
        """Units of the axis in a column."""

    @property
    def axis(self) -> NDArray[np.int64]:
        """The numbers of all units; empty while they are arranged."""
        raise NotImplementedError

    def codes_of(self, at: int) -> NDArray[np.uint8]:
        """The codes of the columns of a row."""
        raise NotImplementedError

    @property
    def columns(self) -> Sequence[int]:
        """The first number of each column."""
        numbers: list[int] = self.axis[:: self.per].tolist()
        return numbers

    @property
    def fitting(self) -> int:
        """Fewest units of a column so that all of them fit."""
        return max(-(-len(self.axis) // max(self._room, 1)), 1)

    @property
    def bin(self) -> slice:
        """The units under the cursor."""
        return slice(self._cell * self.per, min((self._cell + 1) * self.per, len(self.axis)))

    @property
    def unit(self) -> int:
        """The unit that stays in view when the page zooms."""
        return self._cell * self.per

    @property
    def most_per(self) -> int:
        """Most units that a column may hold."""
        return self.fitting

    def _cells(self, at: int, *, cursor: bool) -> list[Span]:
        """The cells in view as runs of one look, the one under the cursor alone."""
        chars = self._chars
        codes = self.codes_of(at)[self._first :][: self._room // chars]
        own = self._cell - self._first if cursor else -1
        edges = {0, len(codes), *(np.flatnonzero(np.diff(codes)) + 1).tolist()}
        edges |= {own, own + 1} if 0 <= own < len(codes) else set()
        spans = []
        for begin, end in pairwise(sorted(edges)):
            text, style = self.LOOKS[int(codes[begin])]
            spans.append(Span(text.ljust(chars) * (end - begin), "mark" if begin == own else style))
        return spans

    def action_zoom(self, by: int) -> None:
        """Puts half or twice as many units into a column; 0 shows all."""
        if len(self.axis):
            unit, per = self.unit, self.per * 2 if by > 0 else self.per // 2
            self.per = min(max(per, 1) if by else self.fitting, self.most_per)
            self.go_step(unit // self.per)
