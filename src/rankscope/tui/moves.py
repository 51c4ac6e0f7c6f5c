"""What the keys of the lanes do to the board: moving, zooming, folding."""

from __future__ import annotations

from collections.abc import Callable

from rankscope.tui.boards import AnyBoard


def _page(board: AnyBoard) -> int:
    return max(board.height - 1, 1)


def _width(board: AnyBoard) -> int:
    return max(board.view.cells(board.width) - 2, 1)


def _zoom_selection(board: AnyBoard) -> None:
    """Shows what lies between cursor and marker, or else the collective under the cursor."""
    if board.marker is not None:
        board.zoom_to(*sorted((board.marker, board.unit)))
    elif (span := board.span_of_instance()) is not None:
        board.zoom_to(*span)


def _marker(board: AnyBoard) -> None:
    board.marker = None if board.marker == board.unit else board.unit


MOVES: dict[str, Callable[[AnyBoard], object]] = {
    "up": lambda board: board.go_row(board.row - 1),
    "down": lambda board: board.go_row(board.row + 1),
    "page_up": lambda board: board.go_row(board.row - _page(board)),
    "page_down": lambda board: board.go_row(board.row + _page(board)),
    "top": lambda board: board.go_row(0),
    "bottom": lambda board: board.go_row(len(board.rows) - 1),
    "left": lambda board: board.go_cell(-1),
    "right": lambda board: board.go_cell(1),
    "page_left": lambda board: board.go_cell(-_width(board)),
    "page_right": lambda board: board.go_cell(_width(board)),
    "previous_op": lambda board: board.go_neighbour(-1),
    "next_op": lambda board: board.go_neighbour(1),
    "begin": lambda board: board.go_unit(board.low),
    "end": lambda board: board.go_unit(board.high - 1),
    "zoom_in": lambda board: board.zoom(1),
    "zoom_out": lambda board: board.zoom(-1),
    "zoom_fit": lambda board: board.zoom_fit(),
    "zoom_selection": _zoom_selection,
    "zoom_undo": lambda board: board.undo_zoom(),
    "unfold": lambda board: board.toggle_fold(),
    "unfold_all": lambda board: board.toggle_fold_all(),
    "marker": _marker,
}
"""What each action of the scope "lanes" does."""
