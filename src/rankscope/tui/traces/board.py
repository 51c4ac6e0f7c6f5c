"""Where the cursor is in the lanes of traces and what is in view. No widget."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.tui.axis import View
from rankscope.tui.letters import Codes
from rankscope.tui.model import Model
from rankscope.tui.order import Ordering, order_lanes
from rankscope.tui.pick import item_of, selection_of
from rankscope.tui.selection import Selection
from rankscope.tui.traces import rows as unfolding
from rankscope.tui.traces.cells import Asked, draw
from rankscope.tui.traces.lanes import TraceLanes
from rankscope.tui.traces.lineup import LineUp, line_up
from rankscope.tui.traces.pick import neighbour, span_at
from rankscope.tui.traces.rows import FOLDED, PARTS, SINGLE, STRANDS, Row, build_rows, parts_of
from rankscope.tui.window import Window

Ints = NDArray[np.int64]
ALONE = 16
"""So many ranks to blame each have rows of their own."""
_FURTHER = {FOLDED: PARTS, SINGLE: PARTS, PARTS: STRANDS, STRANDS: FOLDED}


class TraceBoard(Window):
    """The lanes of traces in a window of `width` characters and `height` rows."""

    def __init__(self, lanes: TraceLanes, model: Model, width: int = 60, height: int = 10) -> None:
        super().__init__(View("time", lanes.low, 1, 1), width, height)
        self.lanes, self.model = lanes, model
        self.levels: dict[int, int] = {}
        """How far lanes are unfolded."""
        self.lined: LineUp | None = None
        self.finding: int | None = None
        self.blamed: frozenset[int] = frozenset(model.analysis.culprits)
        self.ordering: Ordering = "rank"
        self.rows: list[Row] = []
        self.lane = 0
        self._row = 0
        self._unlined: tuple[View, int, dict[int, int]] | None = None
        self._placed = False
        self._as_placed: dict[int, int] = {}
        self.unit = lanes.low
        self.view = self.fitting(self.low, self.high)
        self.refold()

    # What is there

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
    def cell(self) -> tuple[int, int]:
        """From when to when the cell under the cursor reaches, on the axis."""
        first = self.view.unit_of(self.view.cell_of(self.unit))
        return first, first + self.view.per

    @property
    def moment(self) -> int:
        """The aligned time under the cursor, of the lane it is in."""
        return self.unit + self._shift(self.lane)

    @property
    def span(self) -> int | None:
        """The span under the cursor."""
        if not self.rows:
            return None
        shift = self._shift(self.lane)
        first, last = self.cell
        return span_at(self.lanes, self.rows[self._row], first + shift, last + shift)

    @property
    def selection(self) -> Selection | None:
        """The rank under the cursor and its collective, for the screens that know no spans."""
        if not self.rows:
            return None
        span = self.span
        row = -1 if span is None else int(self.lanes.spans.op[span])
        match = int(self.lanes.match_of[row]) if row >= 0 else -1
        if match < 0:
            return Selection(self.rank, finding=self.finding)
        member = self.lanes.members(match).row(0, named=True)
        group, seq, is_p2p = member["group"], member["seq"], bool(member["is_p2p"])
        item = item_of(self.model, self.rank, group, seq, p2p=is_p2p)
        if item is None:
            return Selection(self.rank, None, group, seq, is_p2p, self.finding)
        return selection_of(self.model, self.model.lane_of[self.rank], item, self.finding)

    def _shift(self, lane: int) -> int:
        return self.lined.shift(lane) if self.lined is not None else 0

    def cells_of(self, rows: list[Row]) -> tuple[list[Asked], Ints]:
        """What some rows show, and the edges of their cells, as rows x (cells + 1)."""
        shifts = np.array([self._shift(row.lanes[0]) for row in rows], np.int64)
        return [unfolding.asked(self.lanes, row) for row in rows], self.view.edges(self.width)[None, :] + shifts[
            :, None
        ]

    # Rows

    def refold(self) -> None:
        """Makes the rows anew for the window; the row of the cursor stays where it is on the screen."""
        offset = self._row - self.top
        at = self.rows[self._row] if self.rows else Row((self.lane,))
        if self.lined is not None:
            self.rows = [Row((lane,)) for lane in self._order() if lane in self.lined.arrived]
        else:
            blamed = [self.lanes.lane_of[rank] for rank in self.blamed if rank in self.lanes.lane_of]
            alone = frozenset(blamed if len(blamed) <= ALONE else ())
            self.rows = build_rows(self.lanes, self._order(), self.levels, self._looks(), alone)
        self._row = self._find(at)
        self.top = self._row - offset
        self.keep_row_in_view()

    def _find(self, row: Row) -> int:
        """The row that shows what another one showed, or else the first one of its rank."""
        own = [at for at, other in enumerate(self.rows) if self.lane in other.lanes]
        same = [at for at in own if (self.rows[at].kind, self.rows[at].strand) == (row.kind, row.strand)]
        return (same or own or [0])[0]

    def _order(self) -> list[int]:
        shown = [rank for rank in self.model.ranks.tolist() if rank in self.lanes.lane_of]
        if self.ordering != "rank" and shown:
            looks = np.zeros(len(self.model.ranks), np.uint64)
            order = order_lanes(self.model, self.ordering, None, looks)
            shown = [rank for rank in self.model.ranks[order].tolist() if rank in self.lanes.lane_of]
        return [self.lanes.lane_of[rank] for rank in shown]

    def _looks(self) -> Codes | None:
        """The cells of all lanes, where any may share a row."""
        folded = [lane for lane in range(len(self.lanes.ranks)) if self.levels.get(lane, FOLDED) == FOLDED]
        if len(folded) < 2:
            return None
        asked, edges = self.cells_of([Row((lane,)) for lane in folded])
        codes = draw(self.lanes.cover, self.lanes.key_of, asked, edges).codes
        out = np.zeros((len(self.lanes.ranks), codes.shape[1]), np.uint8)
        out[folded] = codes
        return out

    def place(self) -> None:
        """Shows the whole run, and unfolds what there is room for, once the window is known."""
        self.view = self.fitting(self.low, self.high)
        self._unfold_fitting()

    def _unfold_fitting(self) -> None:
        """Unfolds as many ranks as there is room for, those to blame first."""
        self.levels = {}
        self.refold()
        room = self.height - self.count
        blamed = [self.lanes.lane_of[rank] for rank in sorted(self.blamed) if rank in self.lanes.lane_of]
        few = range(len(self.lanes.ranks)) if len(self.lanes.ranks) <= self.height else ()
        for lane in dict.fromkeys([*blamed, *few]):
            more = len(parts_of(self.lanes, lane)) - 1
            if more <= room:
                self.levels[lane] = PARTS
                room -= more
        self._as_placed = dict(self.levels)
        self.refold()

    def fitting(self, low: int, high: int) -> View:
        """The nearest view that shows all from `low` up to `high`, in as many cells as there are."""
        per = max(-(-(high - low) // max(self.width - 1, 1)), 1)
        return View("time", low // per * per, per, 1)

    def resize(self, width: int, height: int) -> None:
        """Fits the window into a widget of another size; the first time it also settles what is unfolded."""
        super().resize(width, height)
        if not self._placed and height > 1:
            self._placed = True
            self.place()

    def toggle_fold(self) -> None:
        """Unfolds what is under the cursor by a step, or folds it where it is all unfolded."""
        if not self.rows or self.lined is not None:
            return
        row = self.rows[self._row]
        level = self.levels.get(self.lane, FOLDED)
        following = SINGLE if len(row.lanes) > 1 else _FURTHER[level]
        self.levels.update(dict.fromkeys(row.lanes, following))
        self.refold()

    def toggle_fold_all(self) -> None:
        """Unfolds all ranks by a step, or folds all."""
        if self.lined is None:
            lanes = range(len(self.lanes.ranks))
            lowest = min((self.levels.get(lane, FOLDED) for lane in lanes), default=FOLDED)
            self.levels = dict.fromkeys(lanes, _FURTHER[lowest])
            self.refold()

    def replace_model(self, model: Model) -> None:
        """Shows the ranks of a model, and its traces where they are others; the cursor stays at its rank and time."""
        self.model = model
        if model.traces is not None and model.traces is not self.lanes:
            self._replace_lanes(model.traces)
        self.refold()

    def _replace_lanes(self, lanes: TraceLanes) -> None:
        """Takes other traces: more of the same, or newer ones."""
        self.end_line_up()
        rank, before = self.rank, self.lanes
        whole = self.view == self.fitting(self.low, self.high)
        as_placed = self.levels == self._as_placed
        self.levels = {
            lanes.lane_of[rank]: level
            for rank, level in ((int(before.ranks[lane]), level) for lane, level in self.levels.items())
            if rank in lanes.lane_of
        }
        self.lanes, self.lane = lanes, lanes.lane_of.get(rank, 0)
        self.unit = max(self.low, min(self.unit, self.high - 1))
        if whole:
            self.view = self.fitting(self.low, self.high)
        if as_placed and self._placed:
            self._unfold_fitting()

    def set_order(self, ordering: Ordering) -> None:
        """Orders the lanes another way."""
        self.ordering = ordering
        self.refold()

    def blame(self, finding: int | None) -> None:
        """Keeps apart the ranks of a finding, beside those of the root causes."""
        self.finding = finding
        also = self.model.analysis.findings[finding].culprit_ranks if finding is not None else ()
        self.blamed = frozenset(self.model.analysis.culprits) | frozenset(also)
        self.refold()

    # Moving

    def zoom(self, steps: int) -> None:
        """Zooms in (or out, if negative) around the cursor; what the cell stood for stays under the cursor."""
        if steps > 0:
            self._go_on_span()
        super().zoom(steps)

    def _go_on_span(self) -> None:
        """Moves the cursor within its cell onto the span that the cell stands for."""
        span = self.span
        if span is not None:
            start, end = self.lanes.spans.times(span)
            if not start <= self.moment < end:
                self.unit = max(self.low, min(start - self._shift(self.lane), self.high - 1))

    def go_row(self, row: int) -> None:
        """Puts the cursor into a row."""
        if self.rows:
            self._row = max(0, min(row, len(self.rows) - 1))
            self.lane = self.rows[self._row].lanes[0]
            self.keep_row_in_view()

    def go_rank(self, rank: int) -> bool:
        """Moves to the first row of a rank; False where it has none in view."""
        if rank not in self.lanes.lane_of:
            return False
        lane = self.lanes.lane_of[rank]
        for at, row in enumerate(self.rows):
            if lane in row.lanes:
                self._row, self.lane = at, lane
                self.keep_row_in_view()
                return True
        return False

    def go_neighbour(self, step: int) -> bool:
        """Moves to the next (1) or previous (-1) span of the row; False at its ends."""
        if not self.rows:
            return False
        first, last = self.cell
        shift = self._shift(self.lane)
        found = neighbour(self.lanes, self.rows[self._row], (last - 1 if step > 0 else first) + shift, step)
        if found is not None:
            self.go_unit(found - shift)
        return found is not None

    def go_span(self, span: int, kind: str = "") -> None:
        """Moves to a span, rank and all."""
        track = self.lanes.spans.track_of(span)
        lane = next(s.lane for s in self.lanes.strands if track in s.tracks)
        self.go_rank(int(self.lanes.ranks[lane]))
        for at, row in enumerate(self.rows):
            if lane in row.lanes and (row.kind == kind or (row.strand >= 0 and track in self._tracks(row))):
                self._row = at
        self.go_unit(self.lanes.spans.times(span)[0] - self._shift(lane))

    def _tracks(self, row: Row) -> tuple[int, ...]:
        return self.lanes.strands[row.strand].tracks

    def span_of_instance(self) -> tuple[int, int] | None:
        """From when to when what is under the cursor reaches, over all members if it is a collective."""
        span = self.span
        if span is None:
            return None
        self._go_on_span()
        start, end = self.lanes.spans.times(span)
        found = line_up(self.lanes, span)
        if found is not None:
            start, end = found.low, found.high
        pad = max((end - start) // 4, 1)
        return start - pad - self._shift(self.lane), end + pad - self._shift(self.lane)

    # Lining up

    def line_up(self, step: int = 1) -> bool:
        """Lines up the collective under the cursor on all members, or goes on to the next one; False where none is."""
        if self.lined is not None:
            lanes = [row.lanes[0] for row in self.rows]
            self.go_row((lanes.index(self.lane) + step) % len(lanes))
            self.go_unit(self.lined.arrived[self.lined.anchor])
            return True
        found = self._collective_here()
        if found is None:
            return False
        self._unlined = (self.view, self.unit, dict(self.levels))
        self.lined = found
        self.unit = found.arrived[found.anchor]
        long = max(found.high - min(found.arrived.values()), 1)
        self.refold()
        self.zoom_to(self.unit - long, self.unit + long)
        self.refold()
        return True

    def _collective_here(self) -> LineUp | None:
        """The matched collective under the cursor, else the one its rank is in at that time, else its next one."""
        if not self.rows:
            return None
        first, last = self.cell
        communication = Row((self.lane,), "communication")
        following = neighbour(self.lanes, communication, last - 1, 1)
        tried = [self.span, span_at(self.lanes, communication, first, last)]
        if following is not None:
            tried.append(span_at(self.lanes, communication, following, following + 1))
        found = (line_up(self.lanes, span) for span in tried if span is not None)
        return next((one for one in found if one is not None), None)

    def end_line_up(self) -> bool:
        """Goes back to one clock for all, where the lanes were lined up."""
        if self.lined is None or self._unlined is None:
            return False
        moment = self.moment
        self.lined = None
        view, _, self.levels = self._unlined
        self._unlined = None
        self.unit = max(self.low, min(moment, self.high - 1))
        self.refold()
        self._row = self._find(Row((self.lane,), "communication"))
        self.look_at(view)
        return True
