"""The rows of the lanes of traces in a window: unfolded ranks, shared rows, and order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rankscope.features.traces.page import trace_rows as unfolding
from rankscope.features.traces.page.lanes import TraceLanes
from rankscope.features.traces.page.lineup import LineUp
from rankscope.features.traces.page.trace_cells import Asked, draw
from rankscope.features.traces.page.trace_rows import FOLDED, PARTS, SINGLE, STRANDS, Row, build_rows, parts_of
from rankscope.features.traces.page.trace_selection import kind_of
from rankscope.tui.axis import View
from rankscope.tui.letters import Codes
from rankscope.tui.model import Model
from rankscope.tui.order import order_lanes
from rankscope.tui.row_window import ALONE, RankWindow

Ints = NDArray[np.int64]
MANY, COARSE = 64, 48
"""From this many ranks on, the comparison uses at most this many cells."""
_FURTHER = {FOLDED: PARTS, SINGLE: PARTS, PARTS: STRANDS, STRANDS: FOLDED}


class TraceRows(RankWindow):
    """Rows over lanes of traces; subclasses know the span under the cursor."""

    def __init__(self, lanes: TraceLanes, model: Model, width: int = 60, height: int = 10) -> None:
        super().__init__(View("time", lanes.low, 1, 1), width, height, model)
        self.lanes = lanes
        self.levels: dict[int, int] = {}
        """The level to which each lane is unfolded."""
        self.lined: LineUp | None = None
        self.rows: list[Row] = []
        self._row = 0
        self._unlined: tuple[View, int, dict[int, int]] | None = None
        self._held: tuple[int, int, int] | None = None
        """The span that the cursor was sent to, with the unit and the lane of the cursor then."""
        self._placed = False
        self._as_placed: dict[int, int] = {}
        self.unit = lanes.low
        self.view = self.fitting(self.low, self.high)
        self.refold()

    @property
    def low(self) -> int:
        """When the first window begins, in nanoseconds."""
        return self.lanes.low

    @property
    def high(self) -> int:
        """When the last window ends."""
        return self.lanes.high

    @property
    def row(self) -> int:
        """The row the cursor is in."""
        return self._row

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    @property
    def lane_count(self) -> int:
        """How many ranks there are."""
        return len(self.lanes.ranks)

    @property
    def rank(self) -> int:
        """The rank under the cursor; -1 without any."""
        return int(self.lanes.ranks[self.lane]) if len(self.lanes.ranks) else -1

    def ranks_of(self, row: int) -> list[int]:
        """The ranks that share a row."""
        return [int(self.lanes.ranks[lane]) for lane in self.rows[row].lanes]

    @property
    @abstractmethod
    def span(self) -> int | None:
        """The span under the cursor."""

    @abstractmethod
    def end_line_up(self) -> bool:
        """Goes back to one clock for all ranks; False if nothing is lined up."""

    def _shift(self, lane: int) -> int:
        return self.lined.shift(lane) if self.lined is not None else 0

    def cells_of(self, rows: list[Row]) -> tuple[list[Asked], Ints]:
        """The activities of some rows, and the edges of their cells, as rows x (cells + 1)."""
        shifts = np.array([self._shift(row.lanes[0]) for row in rows], np.int64)
        return [unfolding.asked(self.lanes, row) for row in rows], self.view.edges(self.width)[None, :] + shifts[
            :, None
        ]

    # Rows

    def refold(self) -> None:
        """Makes the rows anew for the window; the row of the cursor keeps its place on the screen."""
        offset = self._row - self.top
        at = self.rows[self._row] if self.rows else Row((self.lane,))
        if self.lined is not None:
            self.rows = self._lined_rows(self.lined)
        else:
            blamed = [self.lanes.lane_of[rank] for rank in self.blamed if rank in self.lanes.lane_of]
            alone = frozenset(blamed if len(blamed) <= ALONE else ())
            self.rows = build_rows(self.lanes, self._order(), self.levels, self._looks(), alone)
        self._row = self._find(at)
        self.top = self._row - offset
        self.keep_row_in_view()

    def _lined_rows(self, lined: LineUp) -> list[Row]:
        """The members of a collective, with all their parts if there is room."""
        order = [lane for lane in self._order() if lane in lined.arrived]
        parts = [row for lane in order for row in parts_of(self.lanes, lane)]
        return parts if len(parts) <= self.height else [Row((lane,)) for lane in order]

    def _unfold(self, change: Callable[[], None]) -> None:
        """Unfolds or folds; if the row of the cursor is gone, the cursor goes to the row with the same content."""
        span = self.span
        before = self.rows[self._row] if self.rows else Row((self.lane,))
        change()
        self.refold()
        after = self.rows[self._row] if self.rows else before
        if span is None or (before.kind, before.strand) == (after.kind, after.strand):
            return
        kind, track = kind_of(self.lanes, span), self.lanes.spans.track_of(span)
        for at, row in enumerate(self.rows):
            if self.lane in row.lanes and (row.kind == kind or self._holds(row, track)):
                self._row = at
        self.keep_row_in_view()

    def _holds(self, row: Row, track: int) -> bool:
        """Whether a row is that of the thread or stream with a track."""
        return row.strand >= 0 and track in self.lanes.strands[row.strand].tracks

    def _find(self, row: Row) -> int:
        """The row with the content of another row, or else the first row of its rank."""
        own = [at for at, other in enumerate(self.rows) if self.lane in other.lanes]
        same = [at for at in own if (self.rows[at].kind, self.rows[at].strand) == (row.kind, row.strand)]
        return (same or own or [0])[0]

    def _order(self) -> list[int]:
        shown = [rank for rank in self.model.ranks.tolist() if rank in self.lanes.lane_of]
        if self.ordering != "rank" and shown:
            looks = np.zeros(len(self.model.ranks), np.uint64)
            order = order_lanes(self.model, self.ordering, None, looks, self.first)
            shown = [rank for rank in self.model.ranks[order].tolist() if rank in self.lanes.lane_of]
        return [self.lanes.lane_of[rank] for rank in shown]

    def _looks(self) -> Codes | None:
        """The cells of all lanes, if any may share a row."""
        folded = [lane for lane in range(len(self.lanes.ranks)) if self.levels.get(lane, FOLDED) == FOLDED]
        if len(folded) < 2:
            return None
        asked, edges = self.cells_of([Row((lane,)) for lane in folded])
        every = -(-self.width // COARSE) if len(folded) > MANY else 1
        codes = draw(self.lanes.cover, self.lanes.key_of, asked, edges[:, ::every]).codes
        out = np.zeros((len(self.lanes.ranks), codes.shape[1]), np.uint8)
        out[folded] = codes
        return out

    def place(self) -> None:
        """Shows the whole run, and unfolds as much as fits, after the window is known."""
        self.view = self.fitting(self.low, self.high)
        self._unfold(self._unfold_fitting)

    def settle(self, room: int) -> bool:
        """Orders the lanes; those to blame come first also where their parts have no room in the order of ranks."""
        as_placed = self._placed and self.levels == self._as_placed
        if not super().settle(room):
            return False
        if as_placed:
            self._unfold(self._unfold_fitting)
            hidden = any(rank in self.lanes.lane_of for rank in self.blamed) and not self.levels
            if hidden and self.ordering == "rank" and not self.chosen:
                self._reorder("alike")
                self._unfold(self._unfold_fitting)
        return True

    def _unfold_fitting(self) -> None:
        """Unfolds as many ranks as fit, ranks to blame first."""
        self.levels = {}
        self.refold()
        blamed = [self.lanes.lane_of[rank] for rank in sorted(self.blamed) if rank in self.lanes.lane_of]
        few = range(len(self.lanes.ranks)) if len(self.lanes.ranks) <= self.height else ()
        for lane in dict.fromkeys([*blamed[:ALONE], *few]):
            self.levels[lane] = PARTS
            self.refold()
            if self.count > self.height:
                del self.levels[lane]
        self._as_placed = dict(self.levels)

    def fitting(self, low: int, high: int) -> View:
        """The nearest view that shows all units from `low` up to `high` in the present cells."""
        per = max(-(-(high - low) // max(self.width - 1, 1)), 1)
        return View("time", low // per * per, per, 1)

    def resize(self, width: int, height: int) -> None:
        """Fits the window into a new size of the widget; settings that nobody has changed are made anew for it."""
        whole = self.view == self.fitting(self.low, self.high)
        super().resize(width, height)
        if not self._placed and height > 1:
            self._placed = True
            self.place()
        elif self._placed and self.levels == self._as_placed:
            self._unfold(self._unfold_fitting)
        if whole:
            self.look_at(self.fitting(self.low, self.high))

    def toggle_fold(self) -> None:
        """Unfolds the rank under the cursor by a step, or folds it if it is fully unfolded."""
        if not self.rows or self.lined is not None:
            return
        row = self.rows[self._row]
        level = self.levels.get(self.lane, FOLDED)
        following = SINGLE if len(row.lanes) > 1 else _FURTHER[level]
        self._unfold(lambda: self.levels.update(dict.fromkeys(row.lanes, following)))

    def toggle_fold_all(self) -> None:
        """Unfolds all ranks by a step, or folds all."""
        if self.lined is None:
            lanes = range(len(self.lanes.ranks))
            lowest = min((self.levels.get(lane, FOLDED) for lane in lanes), default=FOLDED)
            self._unfold(lambda: self.levels.update(dict.fromkeys(lanes, _FURTHER[lowest])))

    def replace_model(self, model: Model) -> None:
        """Shows the ranks of a model, and its traces if they are new; the cursor keeps its rank and time."""
        self.model = model
        if isinstance(model.timed, TraceLanes) and model.timed is not self.lanes:
            self._replace_lanes(model.timed)
        self.refold()
        if self.rows and self.lane not in self.rows[self._row].lanes:
            # the rank under the cursor is hidden now
            self.lane = self.rows[self._row].lanes[0]

    def _replace_lanes(self, lanes: TraceLanes) -> None:
        """Shows other traces: more of the same, or newer ones."""
        self.end_line_up()
        rank, before = self.rank, self.lanes
        whole = self.view == self.fitting(self.low, self.high)
        as_placed = self.levels == self._as_placed
        self.levels = {
            lanes.lane_of[rank]: level
            for rank, level in ((int(before.ranks[lane]), level) for lane, level in self.levels.items())
            if rank in lanes.lane_of
        }
        self._held = None
        self.lanes, self.lane = lanes, lanes.lane_of.get(rank, 0)
        self.rows, self._row = [Row((self.lane,), self.rows[self._row].kind if self.rows else "")], 0
        self.unit = max(self.low, min(self.unit, self.high - 1))
        if whole:
            self.view = self.fitting(self.low, self.high)
        if as_placed and self._placed:
            self._unfold(self._unfold_fitting)
