"""The detail beside or below the lanes: a thread looks it up when the cursor rests."""

from __future__ import annotations

from functools import partial

from textual.timer import Timer

from rankscope.analysis.model import Analysis
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.detail.operation_index import index_of
from rankscope.tui.detail.pane import DetailPane
from rankscope.tui.detail.selection_facts import Detail, look_up
from rankscope.tui.traces.span_detail import sight_lines
from rankscope.tui.traces.span_facts import look
from rankscope.tui.traces.trace_board import TraceBoard

DETAIL_AFTER = 0.03
"""Seconds without a move before the detail follows: a held key moves only the lanes."""


class DetailLookup:
    """Shows the selection under the cursor in the pane; one look-up runs at a time."""

    def __init__(self, view: MainView, boards: BoardSet, pane: DetailPane) -> None:
        self._view, self._boards, self._pane = view, boards, pane
        self._timer: Timer | None = None
        self._looks_up, self._looks_again = False, False
        """Whether a thread looks up the detail, and whether the cursor has moved since."""

    @property
    def is_due(self) -> bool:
        """Whether the detail has not yet followed the last move."""
        return self._timer is not None or self._looks_up

    def moved(self) -> None:
        """Notes that the cursor or the window of the lanes has moved."""
        if self._timer is None:
            self._timer = self._view.set_timer(DETAIL_AFTER, self._draw)
        else:
            self._timer.reset()

    def _draw(self) -> None:
        self._timer = None
        board, whole = self._boards.shown, self._boards.whole
        if self._looks_up:
            # one at a time: on a big job, look-ups would pile up while a key is held
            self._looks_again = True
        elif isinstance(board, TraceBoard):
            sight = look(board)
            self._pane.show_made(lambda width, height: sight_lines(sight, width, height))
        elif (selection := board.selection) is not None:
            self._looks_up = True
            found = partial(look_up, index_of(whole.dataset), whole.analysis, selection)
            self._view.work_out(found, partial(self._looked_up, whole.analysis))
        else:
            self._pane.show_found(None, whole.analysis)

    def _looked_up(self, analysis: Analysis, detail: Detail) -> None:
        again, self._looks_up, self._looks_again = self._looks_again, False, False
        if self._timer is not None:
            return
        if again:
            self._draw()
        else:
            self._pane.show_found(detail, analysis)
