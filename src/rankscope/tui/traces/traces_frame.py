"""What the keys of the main screen do with traces, and how it takes what was read of them later."""

from __future__ import annotations

from pathlib import Path

from textual import on

from rankscope.text.escaping import plain
from rankscope.tui.board import AnyBoard
from rankscope.tui.filters import apply
from rankscope.tui.lanes_frame import LanesFrame
from rankscope.tui.letters import Codes
from rankscope.tui.live.anchor import carry, same_finding
from rankscope.tui.model import Model
from rankscope.tui.options import Export
from rankscope.tui.selection import Moment
from rankscope.tui.target import place_of_selection
from rankscope.tui.traces.lanes import TraceLanes
from rankscope.tui.traces.trace_board import TraceBoard
from rankscope.tui.worker_messages import Exported


class TracesFrame(LanesFrame):
    """The frame with the lanes of traces in it."""

    def complete(self, model: Model, overview: Codes) -> None:
        """Shows all of what was there only in part, in the same place."""
        before, finding = self.whole.analysis, self.board.finding
        self.whole, self._worst, self._strips, self._traced_strip = model, overview, {}, None
        shown = apply(model, self.wanted)
        shown = shown if len(shown.ranks) else model
        carry(self.operations, shown, None)
        if self.traced is not None:
            self.traced.replace_model(shown)
        at = same_finding(before, finding, model.analysis)
        at = 0 if at is None and finding is None and model.analysis.findings else at
        for board in self.boards:
            board.blame(at)
        self.found = self.hits = None
        self.show_board(self.board)
        if not self.touched:
            self.show_finding(at)
        self._draw_head()
        self.note("")

    def change_board(self, board: AnyBoard) -> None:
        """Shows the other board, the cursor on the same rank and collective."""
        if not len(board.model.ranks):
            self.note("the traces tell of no operation that could stand on the axis of logical time")
            return
        selection = self.board.selection
        self.found = self.hits = None
        self.show_board(board)
        place = place_of_selection(self.whole, selection) if selection is not None else None
        if place is not None:
            self.go(place)
        self.note("")

    def go_moment(self, moment: Moment) -> None:
        if self.traced is None:
            return
        if self.board is not self.traced:
            self.change_board(self.traced)
        self.traced.end_line_up()
        self.traced.go_rank(moment.rank)
        self.traced.go_unit(moment.start_ns)
        self.traced.zoom_to(moment.start_ns, moment.end_ns)
        self.lanes.changed()

    def action_line_up(self) -> None:
        """Lines up the collective under the cursor on all its ranks; again: to the next of them."""
        self._line_up(1)

    def action_line_up_back(self) -> None:
        """Lines up the collective under the cursor on all its ranks; again: to the previous of them."""
        self._line_up(-1)

    def _line_up(self, step: int) -> None:
        board = self.board
        if not isinstance(board, TraceBoard):
            self.note("collectives are lined up on the axis of time, with traces")
        elif board.line_up(step):
            self.lanes.changed()
        else:
            self.note("no collective here that was matched with other ranks")

    def action_export_traces(self) -> None:
        """Writes the traces of all ranks as one file, on one clock, for Perfetto."""
        if self.options.export_traces is None or self.traced is None:
            self.note("there are no profiler traces to merge")
            return
        if self.traced.lanes.is_partial:
            self.note("wait until all of the traces is read")
            return
        self.note("writing the merged trace ...")
        lanes, export = self.traced.lanes, self.options.export_traces
        self.work_out([lambda: _written(lanes, export, self.options.export_dir)])

    @on(Exported)
    def _exported(self, event: Exported) -> None:
        self.note(plain(event.text))


def _written(lanes: TraceLanes, export: Export, directory: Path) -> Exported:
    try:
        path = export(lanes.dataset, lanes.analysis, directory)
    except OSError as error:
        return Exported(f"not written: {error.strerror or error}")
    return Exported(f"written: {path.name} in {path.parent}, for ui.perfetto.dev")
