"""The way to a rank, a sequence number, a step or a time that somebody typed."""

from __future__ import annotations

from datetime import UTC

from rankscope.tui.board import Board
from rankscope.tui.cell_selection import column_of
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.target import HINT, Target, parse
from rankscope.tui.traces.trace_board import TraceBoard
from rankscope.tui.traces.trace_targets import goto_on_traces


class Goto:
    """Moves the cursor to what is typed after `:`."""

    def __init__(self, view: MainView, boards: BoardSet) -> None:
        self._view, self._boards = view, boards

    def ask(self) -> None:
        """Asks where to go."""
        self._view.ask(":", HINT, self.go)

    def go(self, text: str) -> None:
        """Goes there; ValueError says why it cannot."""
        board = self._boards.shown
        if isinstance(board, TraceBoard):
            goto_on_traces(board, parse(text, board.moment))
        else:
            _goto_operation(board, text)
        self._view.board_moved()


def _goto_operation(board: Board, text: str) -> None:
    times = board.times if board.view.kind == "time" else None
    day_ns = board.unit if times else int(board.model.items.created.max(initial=0))
    target = parse(text, day_ns, UTC if board.model.dataset.from_logs else None)
    if target.rank is not None:
        if not board.go_rank(target.rank):
            raise ValueError(f"no rank {target.rank} here")
    elif target.step is not None or target.seq is not None:
        _goto_column(board, target)
    elif times is None:
        raise ValueError("times can be gone to on the time axis: t")
    else:
        board.go_unit(target.time_ns if target.time_ns is not None else board.unit + (target.span_ns or 0))


def _goto_column(board: Board, target: Target) -> None:
    if board.view.kind == "time":
        raise ValueError("sequence numbers and steps can be gone to on the sequence axis: t")
    if target.step is not None:
        board.go_unit(target.step)
        return
    selection, finding = board.selection, board.finding
    group = selection.group if selection is not None else None
    if group is None and finding is not None and (ref := board.model.analysis.findings[finding].group):
        group = ref.key
    column = None if group is None or target.seq is None else column_of(board.model, group, target.seq)
    if column is None:
        raise ValueError(f"no collective #{target.seq} in the group under the cursor")
    board.go_unit(column)
