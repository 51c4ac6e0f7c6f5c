"""A window over rows and an axis, with a cursor, its moves and its zoom. Subclasses know the content of the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rankscope.tui import axis
from rankscope.tui.axis import View
from rankscope.tui.lane_cells import LaneCells
from rankscope.tui.model import Model
from rankscope.tui.order import Ordering

Ints = NDArray[np.int64]

BEYOND = 18
"""Characters that the window may go past the end of the run: there the lanes tell why they end."""


class Window(ABC):
    """A window of `width` characters and `height` rows."""

    def __init__(self, view: View, width: int, height: int) -> None:
        self.view = view
        self.width, self.height = width, height
        self.before: list[View] = []
        """Earlier views for undo."""
        self.unit = 0
        """The column, or the time, under the cursor."""
        self.top = 0
        self.marker: int | None = None

    @property
    @abstractmethod
    def low(self) -> int:
        """The first unit of the run on this axis."""

    @property
    @abstractmethod
    def high(self) -> int:
        """One after the last unit of the run on this axis."""

    @property
    @abstractmethod
    def row(self) -> int:
        """The row the cursor is in."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many rows there are."""

    @abstractmethod
    def go_row(self, row: int) -> None:
        """Puts the cursor into a row."""

    @abstractmethod
    def refold(self) -> None:
        """Makes the rows anew for the window."""

    def resize(self, width: int, height: int) -> None:
        """Fits the window into a new size of the widget; the cursor stays at the same share of it."""
        if (width, height) != (self.width, self.height):
            share = (self.unit - self.view.first) / self.view.span(self.width)
            self.width, self.height = max(width, 1), max(height, 1)
            self.look_at(axis.centre(self.view, self.unit, self.width, share))

    def fitting(self, low: int, high: int) -> View:
        """The nearest view that shows all units from `low` up to `high`."""
        return axis.fit(self.view.kind, low, high, self.width)

    # Moving

    def keep_row_in_view(self) -> None:
        """Scrolls as little as possible to bring the row of the cursor into view."""
        last = max(self.count - self.height, 0)
        row = self.row
        self.top = max(min(self.top, row, last), row - self.height + 1, 0)

    def scroll_rows(self, count: int) -> None:
        """Moves the window over the rows; moves the cursor only if it must."""
        self.top = max(0, min(self.top + count, self.count - self.height))
        row = max(self.top, min(self.row, self.top + self.height - 1))
        if row != self.row:
            self.go_row(row)

    def go_unit(self, unit: int) -> None:
        """Puts the cursor on a column or a time, and moves the window if it must."""
        self.unit = max(self.low, min(unit, self.high - 1))
        self.look_at(axis.reveal(self.view, self.unit, self.width))

    def go_cell(self, count: int) -> None:
        """Moves the cursor by cells."""
        self.go_unit(self.view.unit_of(self.view.cell_of(self.unit) + count))

    # The window

    def look_at(self, view: View) -> None:
        """Shows a view, moved and zoomed until it holds the cursor and stays within the run."""
        beyond = BEYOND // view.chars if view.kind == "sequence" else 1
        whole = self.fitting(self.low, self.high)
        if (view.per, -view.chars) > (whole.per, -min(whole.chars, 2)):
            view = replace(whole, chars=min(whole.chars, 2))
        view = axis.reveal(view, self.unit, self.width, 0)
        view = axis.clamp(view, self.low, self.high, self.width, beyond)
        moved = view != self.view
        self.view = view
        if moved or not self.count:
            self.refold()
        self.keep_row_in_view()

    def remember(self) -> None:
        """Keeps the view for undo."""
        if not self.before or self.before[-1] != self.view:
            self.before = [*self.before[-49:], self.view]

    def zoom(self, steps: int) -> None:
        """Zooms in (or out, if negative) around the cursor."""
        self.remember()
        self.look_at(axis.zoom(self.view, steps, self.unit))

    def zoom_fit(self) -> None:
        """Shows the whole run."""
        self.remember()
        self.look_at(self.fitting(self.low, self.high))

    def zoom_to(self, low: int, high: int) -> None:
        """Shows the units from `low` up to `high`, and little else."""
        self.remember()
        view = self.fitting(low, high + 1)
        self.look_at(axis.centre(view, (low + high) // 2, self.width))

    def undo_zoom(self) -> bool:
        """Goes back to the view before the last zoom; False if there is none."""
        while self.before:
            view = self.before.pop()
            if view.kind == self.view.kind and view != self.view:
                self.look_at(view)
                return True
        return False

    def centre(self, share: float) -> None:
        """Moves the window so that the cursor is at `share` of its width."""
        self.look_at(axis.centre(self.view, self.unit, self.width, share))


class Track(Protocol):
    """Values of ranks that a line below each lane shows on the axis of time."""

    @property
    def note(self) -> str:
        """The values and their scale in words."""
        ...

    def cells(self, ranks: Sequence[Sequence[int]], edges: Ints) -> LaneCells:
        """The cells for rows of ranks; `edges` are rows x (cells + 1), or one row for all."""
        ...

    def held_at(self, ranks: Sequence[int], before: int) -> str:
        """The value of some ranks before a time; "" where none is."""
        ...


ALONE = 16
"""Most ranks to blame with rows of their own; more share rows with each other, never with others."""


class RankWindow(Window):
    """A window with rows of the ranks of a model, in an order, and with ranks to blame kept apart."""

    def __init__(self, view: View, width: int, height: int, model: Model) -> None:
        super().__init__(view, width, height)
        self.model = model
        self.lane = 0
        self.finding: int | None = None
        self.blamed: frozenset[int] = frozenset(model.analysis.culprits)
        self.first: tuple[frozenset[int], ...] = (self.blamed,)
        """The ranks to blame, and those that the finding on the screen is about: ordered by look, they come first."""
        self.ordering: Ordering = "rank"
        self.chosen = False
        """Whether the user has chosen the order."""
        self._room: tuple[int, int] | None = None
        """The width and the most rows that the order was made for."""
        self.order: Ints | None = None
        """The lanes in their order; None until it is made. It stays when the window moves."""
        self.track: Track | None = None
        """Memory that is drawn below the lanes on the axis of time."""
        self.fresh: frozenset[int] = frozenset()
        """Ranks of a watched job that changed since the last key."""

    @property
    def has_memory(self) -> bool:
        """Whether memory is drawn now."""
        return self.track is not None and self.view.kind == "time"

    @property
    def memory_words(self) -> list[str]:
        """The bytes of the drawn memory and their scale; nothing where none is drawn."""
        return [self.track.note] if self.track is not None and self.has_memory else []

    def set_order(self, ordering: Ordering) -> None:
        """Sets the order of the lanes, for good."""
        self.chosen = True
        self._reorder(ordering)

    def _reorder(self, ordering: Ordering) -> None:
        self.ordering, self.order = ordering, None
        self.refold()

    def settle(self, room: int) -> bool:
        """Orders the lanes by rank if at most `room` rows hold them, else by look; False if they are in order.

        An order that the user has chosen stays. A move of the window changes nothing: only a finding or a new size
        does.
        """
        if self._room == (self.width, room):
            return False
        self._room = (self.width, room)
        self._reorder(self.ordering if self.chosen else "rank")
        if not self.chosen and self.count > room:
            self._reorder("alike")
        self.top = 0
        self.keep_row_in_view()
        return True

    def blame(self, finding: int | None) -> None:
        """Keeps the ranks of a finding apart, beside those of the root causes."""
        self.finding, self._room = finding, None
        found = self.model.analysis.findings[finding] if finding is not None else None
        self.blamed = frozenset(self.model.analysis.culprits) | frozenset(found.culprit_ranks if found else ())
        members = found.group.ranks if found is not None and found.group is not None else ()
        self.first = self.blamed, frozenset((*(found.about if found is not None else ()), *members))
        self.refold()
