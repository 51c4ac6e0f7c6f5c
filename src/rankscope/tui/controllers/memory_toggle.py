"""The key that draws memory below the lanes, and takes it away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import polars as pl

from rankscope.tui.board import AnyBoard
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.filter_menu import TimeAxis
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.memory_track import MemoryTrack, build_track
from rankscope.tui.model import Model
from rankscope.tui.times import align_clocks
from rankscope.tui.traces.trace_board import TraceBoard


class MemoryToggle:
    """Shows the samples of memory on the clocks of the lanes; a thread arranges them."""

    def __init__(self, view: MainView, boards: BoardSet, times: TimeAxis) -> None:
        self._view, self._boards, self._times = view, boards, times
        self._wanted = False
        self._made: tuple[AnyBoard, pl.DataFrame] | None = None
        """The board and the samples of the newest track, from when it is begun."""

    def toggle(self) -> None:
        """Draws the memory of each rank below its lane, or takes it away."""
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

    def _arrange(self, then: Callable[[AnyBoard, MemoryTrack | None], None]) -> None:
        board, whole = self._boards.shown, self._boards.whole
        self._made = board, whole.dataset.memory
        self._view.work_out(partial(track_of, board, whole), partial(then, board))

    def _put(self, board: AnyBoard, track: MemoryTrack | None) -> None:
        """Draws a track, unless it is no longer wanted."""
        if self._wanted:
            board.track = track
            self._view.board_moved()

    def _show(self, board: AnyBoard, track: MemoryTrack | None) -> None:
        """Draws a track for the first time, on the axis of time."""
        if track is None:
            self._wanted = False
            self._view.note("no sample of memory has a time: rankscope.capture records them")
            return
        self._view.note("")
        self._put(board, track)
        if board is self._boards.operations and not self._boards.on_time:
            self._times.toggle()


def track_of(board: AnyBoard, model: Model) -> MemoryTrack | None:
    """The samples of a model on the clocks of a board."""
    if isinstance(board, TraceBoard):
        return build_track(model.dataset.memory, _trace_offsets(board))
    return build_track(model.dataset.memory, align_clocks(model.dataset).offsets)


def _trace_offsets(board: TraceBoard) -> Mapping[int, int]:
    """Nanoseconds to subtract from times of each rank that was traced."""
    rows = board.lanes.dataset.traces.select("rank", "file").drop_nulls().rows()
    return {rank: -board.lanes.traces.offsets.get(file, 0) for rank, file in rows}
