"""The axis of time of the lanes, and lines of memory on it; threads align clocks and arrange samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import polars as pl

from rankscope.kinds.functions import function
from rankscope.kinds.view_kinds import TRACKS
from rankscope.tui.boards import LaneBoard
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.model import Model
from rankscope.tui.row_window import Track
from rankscope.tui.selection import Moment
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

    def go_moment(self, moment: Moment) -> None:
        """Moves to the begin of a stretch of time, on the axis of time."""
        board = self._boards.operations
        if board.times is None:
            self._view.note("bringing the clocks together ...")
            self._view.work_out(partial(build_times, board.model), partial(self._show, board.model, moment=moment))
        else:
            self._show(board.model, board.times, moment)

    def bring(self, model: Model) -> None:
        """Aligns the clocks, then shows the axis of time."""
        self._view.work_out(partial(build_times, model), partial(self._show, model))

    def _show(self, model: Model, times: Times, moment: Moment | None = None) -> None:
        if model is not self._boards.operations.model:
            return
        if not len(times.start):
            self._view.note("no times were recorded: only the sequence can be shown")
            return
        board = self._boards.operations
        board.show_time(times)
        if moment is not None:
            board.go_rank(moment.rank)
            board.go_unit(moment.start_ns)
        self._view.note("")
        self._view.board_moved()


class MemoryToggle:
    """Shows the samples of memory on the clocks of the lanes; a thread arranges them."""

    def __init__(self, view: MainView, boards: BoardSet, times: TimeAxis) -> None:
        self._view, self._boards, self._times = view, boards, times
        self._wanted = False
        self._made: tuple[LaneBoard, pl.DataFrame] | None = None
        """The board and the samples of the newest track, from when it is begun."""

    def toggle(self) -> None:
        """Draws the memory of each rank below its lane, or takes it away."""
        if self._boards.sites is not None:
            self._view.note("memory is drawn on the axis of time: t shows it")
            return
        if self._boards.shown.track is not None and not self._boards.shown.has_memory:
            # it is arranged, and hidden on the axis of logical time
            self._times.toggle()
            return
        self._wanted = not self._wanted
        if self._wanted:
            self._view.note("arranging the samples of memory ...")
            self._arrange(self._show)
            return
        self._made = None
        for board in self._boards.all:
            board.track = None
        self._view.note("")
        self._view.board_moved()

    def renew(self) -> None:
        """Arranges the samples anew for another board, or if a watched job has newer ones."""
        board, memory = self._boards.shown, self._boards.whole.dataset.memory
        if self._wanted and (self._made is None or self._made[0] is not board or self._made[1] is not memory):
            self._arrange(self._put)

    def _arrange(self, then: Callable[[LaneBoard, Track | None], None]) -> None:
        board, whole = self._boards.shown, self._boards.whole
        self._made = board, whole.dataset.memory
        self._view.work_out(partial(track_of, board, whole), partial(then, board))

    def _put(self, board: LaneBoard, track: Track | None) -> None:
        """Draws a track, unless it is no longer wanted."""
        if self._wanted:
            board.track = track
            self._view.board_moved()

    def _show(self, board: LaneBoard, track: Track | None) -> None:
        """Draws a track for the first time, on the axis of time."""
        if track is None:
            self._wanted = False
            self._view.note("no sample of memory has a time: rankscope.capture records them")
            return
        self._view.note("")
        self._put(board, track)
        if board is self._boards.operations and not self._boards.on_time:
            self._times.toggle()


def track_of(board: LaneBoard, model: Model) -> Track | None:
    """The samples of a model on the clocks of a board."""
    offsets = board.clock_offsets(model)
    track: Track | None = function(TRACKS[0].function)(getattr(model.dataset, TRACKS[0].table), offsets)
    return track
