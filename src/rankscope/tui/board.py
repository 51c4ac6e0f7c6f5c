"""The state of the lanes: cursor and window, and all moves. No widget."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rankscope.tui import axis
from rankscope.tui.axis import View
from rankscope.tui.cell_selection import item_at, item_at_time, neighbour, selection_of
from rankscope.tui.lane_cells import LaneCells, cell_codes, draw
from rankscope.tui.letters import find
from rankscope.tui.model import Model
from rankscope.tui.order import Hashes, Rows, cell_looks, fold, order_lanes, running_looks, window_looks
from rankscope.tui.row_window import ALONE, RankWindow
from rankscope.tui.selection import Selection
from rankscope.tui.times import Times

Ints = NDArray[np.int64]

_BLAMED = np.uint64(0x5BD1E995)


class Board(RankWindow):
    """The lanes of one model in a window of `width` characters and `height` rows."""

    def __init__(self, model: Model, width: int = 60, height: int = 10) -> None:
        super().__init__(View("sequence", 0), width, height, model)
        self.times: Times | None = None
        self.unfolded: set[int] = set()
        """Ranks that the user has given a row of their own."""
        self._sums = running_looks(model.items.code, model.items.col)
        self.rows = Rows(np.zeros(0, np.int64), np.zeros(1, np.int64))
        self.refold()

    # Content of the lanes

    @property
    def low(self) -> int:
        """The first unit of the run on this axis."""
        return self.times.low if self.view.kind == "time" and self.times else 0

    @property
    def high(self) -> int:
        """One after the last unit of the run on this axis."""
        return self.times.high if self.view.kind == "time" and self.times else max(self.model.width, 1)

    @property
    def row(self) -> int:
        """The row the cursor is in."""
        return self.rows.row_of(self.lane)

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    @property
    def item(self) -> int | None:
        """The item of the model under the cursor."""
        if not len(self.model.ranks):
            return None
        first = self.view.unit_of(self.view.cell_of(self.unit))
        if self.view.kind == "time" and self.times is not None:
            return item_at_time(self.times, self.lane, first, first + self.view.per)
        return item_at(self.model, self.lane, first, first + self.view.per)

    @property
    def selection(self) -> Selection | None:
        """The selection under the cursor; None if there is no lane."""
        if not len(self.model.ranks):
            return None
        unit = self.unit if self.view.kind == "sequence" else None
        return selection_of(self.model, self.lane, self.item, self.finding, unit)

    def cells(self, lanes: Ints) -> LaneCells:
        """The cells of some lanes in the window."""
        return draw(self.model, self.times, self.view, lanes, self.width)

    def group_label(self, row: int) -> str:
        """The group of a row, left of its ranks; "" where rows are those of ranks."""
        del row
        return ""

    def unit_of_item(self, item: int) -> int:
        """The unit of an item on this axis."""
        if self.view.kind == "sequence" or self.times is None:
            return int(self.model.items.col[item])
        at = np.flatnonzero(self.times.item == item)
        return int(self.times.start[at[0]]) if len(at) else self.unit

    # Changes of the lanes

    def replace_model(self, model: Model, times: Times | None = None) -> None:
        """Shows other lanes; the cursor stays on its rank if that is still there."""
        rank = int(self.model.ranks[self.lane]) if len(self.model.ranks) else -1
        if times is None and self.view.kind == "time":
            self.show_sequence()
        self.model, self.times = model, times
        self._sums = running_looks(model.items.code, model.items.col)
        self.order = None
        self.lane = model.lane_of.get(rank, 0)
        self.refold()

    def toggle_fold(self) -> None:
        """Gives each rank of the row under the cursor its own row, or folds these ranks back."""
        ranks = self.ranks_of(self.row)
        if len(ranks) > 1:
            self.unfolded.update(ranks)
        elif ranks and ranks[0] in self.unfolded:
            self.unfolded -= set(self._unfolded_around(self.row))
        self.refold()

    def toggle_fold_all(self) -> None:
        """Gives every rank a row, or folds all of them."""
        self.unfolded = set() if self.unfolded else set(self.model.ranks.tolist())
        self.refold()

    def _unfolded_around(self, row: int) -> list[int]:
        first = last = row
        while first > 0 and self._is_unfolded(first - 1):
            first -= 1
        while last + 1 < len(self.rows) and self._is_unfolded(last + 1):
            last += 1
        return [rank for at in range(first, last + 1) for rank in self.ranks_of(at)]

    def _is_unfolded(self, row: int) -> bool:
        ranks = self.ranks_of(row)
        return len(ranks) == 1 and ranks[0] in self.unfolded

    def ranks_of(self, row: int) -> list[int]:
        """The ranks that share a row."""
        if not len(self.rows):
            return []
        return [int(rank) for rank in self.model.ranks[self.rows.lanes(row)]]

    def refold(self) -> None:
        """Folds the lanes anew for the window; the row of the cursor keeps its place on the screen."""
        offset = self.row - self.top if len(self.rows) else 0
        looks = self._looks()
        if self.order is None:
            self.order = self._ordered(looks)
        self.rows = fold(self.order, looks, self._alone())
        self.top = self.row - offset
        self.keep_row_in_view()

    def _alone(self) -> NDArray[np.bool_]:
        kept = set(self.unfolded)
        if len(self.blamed) <= ALONE:
            kept |= self.blamed
        return np.isin(self.model.ranks, list(kept))

    def _looks(self) -> Hashes:
        model, view = self.model, self.view
        if view.kind == "time" and self.times is not None:
            lanes = np.arange(len(model.ranks), dtype=np.int64)
            looks = cell_looks(cell_codes(model, self.times, view, lanes, self.width))
        else:
            window = (view.first, view.first + view.span(self.width))
            looks = window_looks(self._sums, model.items.col, model.bounds, model.gap_until, window)
        return np.where(np.isin(model.ranks, list(self.blamed)), looks ^ _BLAMED, looks)

    def _ordered(self, looks: Hashes) -> Ints:
        item = self.item
        group = int(self.model.items.group[item]) if item is not None else None
        return order_lanes(self.model, self.ordering, group, looks, self.first)

    # Moving

    def go_row(self, row: int) -> None:
        """Puts the cursor into a row."""
        if len(self.rows):
            self.lane = int(self.rows.lanes(max(0, min(row, len(self.rows) - 1)))[0])
            self.keep_row_in_view()

    def go_neighbour(self, step: int) -> bool:
        """Moves to the next (1) or previous (-1) item of the lane; False at its ends."""
        if not len(self.model.ranks):
            return False
        times = self.times if self.view.kind == "time" else None
        cell = self.view.unit_of(self.view.cell_of(self.unit))
        item = neighbour(self.model, self.lane, cell + self.view.per - 1 if step > 0 else cell, step, times)
        if item is not None:
            self.go_unit(self.unit_of_item(item))
        return item is not None

    def go_rank(self, rank: int) -> bool:
        """Moves to the lane of a rank; False if none is in view."""
        if rank not in self.model.lane_of:
            return False
        self.lane = self.model.lane_of[rank]
        self.keep_row_in_view()
        return True

    def go_item(self, item: int) -> None:
        """Moves to the lane and the column of an item."""
        self.lane = int(self.model.items.lane[item])
        self.go_unit(self.unit_of_item(item))
        self.keep_row_in_view()

    # The axes

    def show_time(self, times: Times) -> None:
        """Changes to the axis of time; the cursor stays on its item."""
        item = self.item
        self.times, self.marker = times, None
        self.view = axis.fit("time", times.low, times.high, self.width)
        self.unit = self.unit_of_item(item) if item is not None else times.low
        self.view = replace(self.view, first=self.view.first - 1)
        self.go_unit(self.unit)

    def show_sequence(self) -> None:
        """Changes to the axis of logical time; the cursor stays on its item."""
        item = self.item
        self.view, self.marker = View("sequence", 0), None
        self.unit = int(self.model.items.col[item]) if item is not None else 0
        self.look_at(axis.centre(self.view, self.unit, self.width, 0.7))

    def span_of_instance(self) -> tuple[int, int] | None:
        """Begin and end of the collective under the cursor over all lanes; None if there is none."""
        item = self.item
        if item is None:
            return None
        items, times = self.model.items, self.times
        same = (items.group == items.group[item]) & (items.seq == items.seq[item]) & (items.p2p == items.p2p[item])
        if self.view.kind == "sequence" or times is None:
            columns = items.col[same]
            return int(columns.min()) - 3, int(columns.max()) + 3
        at = np.flatnonzero(same[times.item])
        start, end = int(times.start[at].min()), int(np.minimum(times.end[at], self.high).max())
        pad = max((end - start) // 4, 1)
        return start - pad, end + pad

    def members_at_cursor(self, lanes: Ints) -> NDArray[np.bool_]:
        """For each lane, whether it takes part in the collective under the cursor, in the column of the cursor."""
        item, items = self.item, self.model.items
        if item is None or self.view.kind == "time" or self.view.per > 1:
            return np.zeros(len(lanes), np.bool_)
        low, high = self.model.bounds[lanes], self.model.bounds[lanes + 1]
        at = find(items.col, low, high, np.full(len(lanes), self.unit))
        safe = np.minimum(at, max(len(items.col) - 1, 0))
        found: NDArray[np.bool_] = (
            (at < high) & (items.col[safe] == self.unit) & (items.group[safe] == items.group[item])
            & (items.seq[safe] == items.seq[item])
        )  # fmt: skip
        return found
