"""The time axis of the lanes of operations; a thread aligns the clocks for it."""

from __future__ import annotations

from functools import partial

from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.model import Model
from rankscope.tui.times import Times, build_times


class TimeAxis:
    """Changes between logical sequence and time."""

    def __init__(self, view: MainView, boards: BoardSet) -> None:
        self._view, self._boards = view, boards

    def toggle(self) -> None:
        """Changes to the other axis."""
        board = self._boards.operations
        if not self._boards.on_time and board.times is None:
            self._view.note("bringing the clocks together ...")
            self.bring(board.model)
            return
        if self._boards.on_time or board.times is None:
            board.show_sequence()
        else:
            board.show_time(board.times)
        self._view.board_moved()

    def bring(self, model: Model) -> None:
        """Aligns the clocks, then shows the axis of time."""
        self._view.work_out(partial(build_times, model), partial(self._show, model))

    def _show(self, model: Model, times: Times) -> None:
        if model is not self._boards.operations.model:
            return
        if not len(times.start):
            self._view.note("no times were recorded: only the sequence can be shown")
            return
        self._boards.operations.show_time(times)
        self._view.note("")
        self._view.board_moved()
