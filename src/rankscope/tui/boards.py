"""Boards of lanes: what keys, controllers and widgets ask of each of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.model import Finding
from rankscope.tui.cell_selection import Place
from rankscope.tui.lane_paint import Gutter, Line
from rankscope.tui.letters import CURSOR, Codes
from rankscope.tui.model import Model
from rankscope.tui.overview import Strip
from rankscope.tui.row_window import RankWindow
from rankscope.tui.search import Hits
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line as StyledLine

Ints = NDArray[np.int64]


class LaneBoard(RankWindow):
    """Lanes of ranks as the screen shows them: their cursor, moves, search, words and lines.

    Units are columns of logical time, or nanoseconds.
    """

    FOOTER: ClassVar[tuple[str, ...]]
    """Actions in the footer, the most important first."""
    SEARCHED: ClassVar[str]
    """Where a search looks, in words."""
    RULED: ClassVar[int] = 1
    """Lines above the lanes."""

    CARD: ClassVar[bool] = True
    """Whether the detail begins with the card of the finding where the cursor stands at it."""

    # Content under the cursor

    @property
    @abstractmethod
    def selection(self) -> Selection | None:
        """The rank under the cursor and its operation; None if there is no lane."""

    @abstractmethod
    def ranks_of(self, row: int) -> list[int]:
        """The ranks that share a row."""

    @abstractmethod
    def span_of_instance(self) -> tuple[int, int] | None:
        """Begin and end of what is under the cursor, over all ranks that take part; None if there is nothing."""

    def facts(self) -> Callable[[int, int], list[StyledLine]] | None:
        """Lines for the detail pane, by its width and height; None if they are those of the selection."""
        return None

    @abstractmethod
    def clock_offsets(self, whole: Model) -> Mapping[int, int]:
        """Nanoseconds to subtract from times of each rank, so that they stand on the axis of this board."""

    @property
    def most_rows(self) -> int:
        """The rows that it shows where there is room."""
        return self.count

    # Changes of the rows

    @abstractmethod
    def replace_model(self, model: Model) -> None:
        """Shows the lanes of another model; the cursor stays on its rank if that is still there."""

    @abstractmethod
    def toggle_fold(self) -> None:
        """Unfolds the row under the cursor, or folds it."""

    @abstractmethod
    def toggle_fold_all(self) -> None:
        """Unfolds all rows, or folds all of them."""

    def line_up(self, step: int = 1) -> bool:
        """Lines up the collective under the cursor on all members, or goes on to the next member; False without any."""
        del step
        return False

    def end_line_up(self) -> bool:
        """Goes back to one clock for all ranks; False if nothing is lined up."""
        return False

    # Moves

    @abstractmethod
    def go_rank(self, rank: int) -> bool:
        """Moves to the lane of a rank; False if none is in view."""

    @abstractmethod
    def go_neighbour(self, step: int) -> bool:
        """Moves to what comes next (1) or before (-1) in the row; False at its ends."""

    @abstractmethod
    def go_place(self, whole: Model, place: Place) -> None:
        """Moves to a place of the whole model."""

    def go_finding(self, finding: Finding | None) -> None:
        """Moves on from the place of a finding to what only these lanes show of it; without one, to what stands out."""

    @abstractmethod
    def go_text(self, text: str) -> None:
        """Moves to a typed place; ValueError says why it cannot."""

    @abstractmethod
    def search(self, text: str) -> Hits:
        """Hits that contain every word of `text`, in the order of a walk."""

    @abstractmethod
    def first_hit(self, hits: Ints) -> int:
        """The index of the first hit at or after the cursor; 0 if none is."""

    @abstractmethod
    def go_hit(self, hit: int) -> None:
        """Moves to a hit of a search."""

    # Words and lines

    @property
    @abstractmethod
    def row_words(self) -> list[str]:
        """The number of ranks and rows in words, and what is drawn with them."""

    @property
    @abstractmethod
    def clock_words(self) -> list[str]:
        """How reliable the times are, if there are any."""

    @abstractmethod
    def legend(self, present: Codes) -> list[str]:
        """The meaning of each of these codes of cells, the most important first."""

    @abstractmethod
    def overview(self, whole: Model, worst: Codes) -> tuple[object, Callable[[int], Strip]]:
        """The source of the overview, another object after each change; and the overview, by its width.

        `worst` has the worst code of each column of the whole model.
        """

    @abstractmethod
    def gutter(self, width: int) -> Gutter:
        """The parts left of the cells of a widget `width` wide."""

    @abstractmethod
    def rulers(self, gutter: Gutter) -> list[tuple[str, str]]:
        """RULED pairs of a label over the gutter, and a ruler over the cells."""

    @abstractmethod
    def compose(self, gutter: Gutter, count: int) -> tuple[list[Line], Codes]:
        """The content of the rows in view, at most `count` lines, and the codes of their cells."""

    # Memory below the lanes: cells of each rank at the time scale of its lane, and its bytes at the cursor

    def last_rows(self, rows: Sequence[int]) -> list[int]:
        """The rows of `rows` below which memory is drawn: the last of each rank."""
        return list(rows)

    def edges_of(self, rows: Sequence[int]) -> Ints:
        """Edges of the cells of some rows in nanoseconds, as rows x (cells + 1); one row stands for all if equal."""
        del rows
        return self.view.edges(self.width)[None, :]

    def memory_lines(self, rows: Sequence[int], gutter: int) -> list[Line]:
        """A line for each of `last_rows`."""
        last, track = self.last_rows(rows), self.track
        if track is None or not last:
            return []
        ranks = [self.ranks_of(row) for row in last]
        edges = self.edges_of(last)
        cells = track.cells(ranks, edges)
        styles, cursor = cells.styles.copy(), self.view.cell_of(self.unit)
        inside = 0 <= cursor < styles.shape[1]
        out = []
        for at, row in enumerate(last):
            end = int(edges[min(at, len(edges) - 1), cursor + 1]) if inside else None
            head = f"{track.held_at(ranks[at], end) if end is not None else '':>{gutter - 1}} "
            if inside and row == self.row:
                styles[at, cursor] |= CURSOR
            text = np.pad(cells.text[at], (0, max(self.width - cells.text.shape[1], 0)), constant_values=ord(" "))
            style = np.pad(styles[at], (0, max(self.width - styles.shape[1], 0)))
            out.append(Line(head[-gutter:], False, False, text.tobytes(), style.tobytes()))
        return out
