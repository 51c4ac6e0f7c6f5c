"""The cursor in the lanes of traces, and all its moves. No widget."""

from __future__ import annotations

from rankscope.features.traces.page.lineup import LineUp, item_of_traced, line_up
from rankscope.features.traces.page.rowboard import TraceRows
from rankscope.features.traces.page.trace_rows import Row
from rankscope.features.traces.page.trace_selection import neighbour, shown_in, span_at
from rankscope.tui.cell_selection import selection_of
from rankscope.tui.selection import Selection


class TraceBoard(TraceRows):
    """The lanes of traces in a window of `width` characters and `height` rows."""

    # Content of the lanes

    @property
    def cell(self) -> tuple[int, int]:
        """Begin and end of the cell under the cursor, on the axis."""
        first = self.view.unit_of(self.view.cell_of(self.unit))
        return first, first + self.view.per

    @property
    def moment(self) -> int:
        """The aligned time under the cursor, for its lane."""
        return self.unit + self._shift(self.lane)

    @property
    def span(self) -> int | None:
        """The span under the cursor: the one that it was sent to, else the span of the cell."""
        if not self.rows:
            return None
        if self._held is not None and self._held[1:] == (self.unit, self.lane) and self._shows(self._held[0]):
            return self._held[0]
        shift = self._shift(self.lane)
        first, last = self.cell
        return span_at(self.lanes, self.rows[self._row], first + shift, last + shift)

    def _shows(self, span: int) -> bool:
        """Whether the row of the cursor shows a span of its rank."""
        row = self.rows[self._row]
        shown = shown_in(row)[self.lanes.spans.activity[span]]
        return bool(shown) and (row.strand < 0 or self._holds(row, self.lanes.spans.track_of(span)))

    @property
    def selection(self) -> Selection | None:
        """The rank under the cursor and its collective, for screens without spans.

        Between two collectives it is the next one: the rank comes late to it because of its present work.
        """
        if not self.rows:
            return None
        span = self.span
        row = -1 if span is None else int(self.lanes.spans.op[span])
        if row < 0 and (ahead := self._collective_here()) is not None and self.lane in ahead.spans:
            row = int(self.lanes.spans.op[ahead.spans[self.lane]])
        item = item_of_traced(self.lanes, self.model, row) if row >= 0 else None
        if item is None:
            return Selection(self.rank, finding=self.finding)
        return selection_of(self.model, self.model.lane_of[self.rank], item, self.finding)

    # Moving

    def zoom(self, steps: int) -> None:
        """Zooms in (or out, if negative) around the cursor; the span of the cell stays under the cursor."""
        if steps > 0:
            self._go_on_span()
        super().zoom(steps)

    def _go_on_span(self) -> None:
        """Moves the cursor within its cell onto the span of the cell."""
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
        """Moves to the first row of a rank; False if none is in view."""
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
            self._hold(found)
        return found is not None

    def _hold(self, span: int) -> None:
        """Puts the cursor on a span of its row."""
        self.go_unit(self.lanes.spans.times(span)[0] - self._shift(self.lane))
        self._held = (span, self.unit, self.lane)

    def go_span(self, span: int, kind: str = "") -> None:
        """Moves to the rank and the time of a span."""
        track = self.lanes.spans.track_of(span)
        lane = next(s.lane for s in self.lanes.strands if track in s.tracks)
        self.go_rank(int(self.lanes.ranks[lane]))
        for at, row in enumerate(self.rows):
            if lane in row.lanes and (row.kind == kind or self._holds(row, track)):
                self._row = at
        self._hold(span)

    def span_of_instance(self) -> tuple[int, int] | None:
        """Begin and end of the span under the cursor, over all members if it is a collective."""
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

    # Line-up

    def line_up(self, step: int = 1) -> bool:
        """Lines up the collective under the cursor on all members, or goes on to the next member; False without any."""
        if self.lined is not None:
            lanes = list(dict.fromkeys(row.lanes[0] for row in self.rows))
            self._go_member(self.lined, lanes[(lanes.index(self.lane) + step) % len(lanes)])
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
        self._go_member(found, self.lane)
        return True

    def _go_member(self, lined: LineUp, lane: int) -> None:
        """Puts the cursor on the part of a lane in the collective that is lined up."""
        self.lane = lane
        self._row = self._find(Row((lane,), "communication"))
        self.go_unit(lined.arrived[lined.anchor])
        if lane in lined.spans:
            self._held = (lined.spans[lane], self.unit, lane)
        self.keep_row_in_view()

    def _collective_here(self) -> LineUp | None:
        """The matched collective under the cursor, else its rank's one at that time, else its rank's next one."""
        if not self.rows:
            return None
        communication = Row((self.lane,), "communication")
        following = neighbour(self.lanes, communication, self.moment, 1)
        tried = [self.span, span_at(self.lanes, communication, self.moment, self.moment + 1), following]
        found = (line_up(self.lanes, span) for span in tried if span is not None)
        return next((one for one in found if one is not None), None)

    def end_line_up(self) -> bool:
        """Goes back to one clock for all ranks; False if nothing is lined up."""
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
