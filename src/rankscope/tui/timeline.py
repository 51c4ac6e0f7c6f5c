"""The lanes on the screen, with the ruler over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from rich.segment import Segment
from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.reactive import var
from textual.strip import Strip

from rankscope.tui.actions import bindings_for
from rankscope.tui.boards import LaneBoard
from rankscope.tui.lane_paint import Gutter, Line, Painter, gutter_for
from rankscope.tui.letters import Codes
from rankscope.tui.options import ViewOptions
from rankscope.tui.text_bars import Unstyled
from rankscope.tui.themes import base_style, face_style


class Timeline(Unstyled, can_focus=True):
    """Draws a Board line by line, and moves its cursor.

    It has its own window over the lanes instead of a virtual size, so its cost does not grow with the job.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings_for("lanes")
    DEFAULT_CSS = "Timeline { height: 1fr; width: 1fr; }"

    class Spanned(Message):
        """The mouse has spanned a window from the marker to the cursor."""

    moves: var[int] = var(0, init=False)
    """Number of moves of the cursor or the window; watchers of it draw in the same frame."""

    def __init__(self, options: ViewOptions, name: str = "lanes") -> None:
        super().__init__(id=name)
        self.options = options
        self.board: LaneBoard | None = None
        self._painter = Painter()
        self._lines: list[Strip] = []
        self.present: Codes = np.zeros(0, np.uint8)
        """The codes of the cells in view, each once."""
        self._rows: list[int] = []
        """The row of the board on each line below the ruler."""
        self._drag_from: int | None = None
        """The unit at which the button of the mouse went down."""

    @property
    def head(self) -> Gutter:
        """The widths of the parts left of the cells."""
        return self.board.gutter(self.size.width) if self.board is not None else gutter_for(self.size.width, 0)

    @property
    def ruled(self) -> int:
        """Lines above the lanes."""
        return self.board.RULED if self.board is not None else 1

    def show(self, board: LaneBoard) -> None:
        """Shows a board from now on."""
        self.board = board
        self._fit()
        self.changed()

    def changed(self) -> None:
        """Draws the board anew, and counts a move."""
        # without a size, drawing has no use: the board is drawn when there is one
        if self.board is not None and self.size and self.board.height != self._height:
            self._fit()
        self._lines = self._draw() if self.size else []
        self.refresh()
        self.moves += 1

    def action_move(self, name: str) -> None:
        """Does the action `name` of the scope "lanes"."""
        if self.board is not None:
            MOVES[name](self.board)
            self.changed()

    def on_resize(self) -> None:
        """Fits the window of the board into the new size."""
        if self.board is not None:
            self._fit()
            self.changed()

    def _fit(self) -> None:
        if self.board is not None and self.size.width and self.size.height:
            self.board.resize(self.size.width - self.head.width, self._height)

    @property
    def _height(self) -> int:
        """The rows of the board that have room, with a line of memory below each where memory is drawn."""
        return max((self.size.height - self.ruled) // self.lines_of_row, 1)

    @property
    def lines_of_row(self) -> int:
        """The most lines that a row takes."""
        return 2 if self.board is not None and self.board.has_memory else 1

    def _draw(self) -> list[Strip]:
        board = self.board
        if board is None:
            return []
        width, head = self.size.width, self.head
        rulers = [self._ruler(board, label, text, width) for label, text in board.rulers(head)]
        lines, codes = board.compose(head, self.size.height - self.ruled)
        return [*rulers, *self._paint(self._with_memory(board, lines), codes)]

    def _with_memory(self, board: LaneBoard, lines: list[Line]) -> list[Line]:
        """The lines of the board, with memory below the last row of each rank, and the row of each line."""
        rows = range(board.top, board.top + len(lines))
        shown = [(row, line) for row, line in zip(rows, lines, strict=True)]
        if board.has_memory:
            below = dict(zip(board.last_rows(rows), board.memory_lines(rows, self.head.width), strict=True))
            shown = [(row, one) for row, line in shown for one in (line, below.get(row)) if one is not None]
        shown = shown[: self.size.height - self.ruled]
        self._rows = [row for row, _ in shown]
        return [line for _, line in shown]

    def _paint(self, lines: list[Line], codes: Codes) -> list[Strip]:
        self.present = np.flatnonzero(np.bincount(codes.reshape(-1), minlength=1)).astype(np.uint8)
        return self._painter.rows(lines, self.size.width, self.options.look, lit=self.has_focus)

    def repaint(self) -> None:
        """Draws the same board in other colours, or with another focus."""
        self._lines = self._draw() if self.size else []
        self.refresh()

    def watch_has_focus(self, _has_focus: bool) -> None:
        """Shows whether the lanes have the keys."""
        super().watch_has_focus(_has_focus)
        self.repaint()

    def _ruler(self, board: LaneBoard, label: str, text: str, width: int) -> Strip:
        at = board.view.cell_of(board.unit) * board.view.chars
        head = f"{label[: self.head.width - 1]:<{self.head.width}}"
        text = _without_number_at(text, at)
        base = base_style(self.options.look)
        dim, bold = (base + face_style(name, self.options.look) for name in ("dim", "bold"))
        segments = [Segment(head, dim), Segment(text[:at], dim)]
        if 0 <= at < len(text):
            segments += [Segment("v", bold), Segment(text[at + 1 :], dim)]
        return Strip(segments).adjust_cell_length(width, base)

    def render_line(self, y: int) -> Strip:
        """The strip of one line of the widget."""
        return self._lines[y] if y < len(self._lines) else Strip.blank(self.size.width, base_style(self.options.look))

    def on_click(self, event: events.Click) -> None:
        """Puts the cursor under the mouse."""
        if self.board is not None and event.y >= self.ruled:
            line = event.y - self.ruled
            self.board.go_row(self._rows[line] if line < len(self._rows) else self.board.count - 1)
            if event.x >= self.head.width:
                self.board.go_unit(self._unit_at(event.x))
            self.changed()

    def _unit_at(self, x: int) -> int:
        """The column, or the time, at a character of the widget."""
        assert self.board is not None
        inside = min(max(x, self.head.width), self.size.width - 1) - self.head.width
        return self.board.view.unit_of(inside // self.board.view.chars)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        """Begins a window, which the mouse spans until its button is let go."""
        if self.board is not None and event.button == 1 and event.x >= self.head.width and event.y >= self.ruled:
            self._drag_from = self._unit_at(event.x)
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Spans a window between the marker and the cursor while the button is down."""
        if self.board is None or self._drag_from is None:
            return
        unit = self._unit_at(event.x)
        if unit != self.board.unit and (self.board.marker is not None or unit != self._drag_from):
            self.board.marker = None if unit == self._drag_from else self._drag_from
            self.board.go_unit(unit)
            self.changed()

    def on_mouse_up(self) -> None:
        """Ends the window."""
        if self._drag_from is None:
            return
        self.release_mouse()
        dragged, self._drag_from = self._drag_from, None
        if self.board is not None and self.board.marker == dragged:
            self.post_message(self.Spanned())

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scrolls the lanes, or zooms out with ctrl."""
        self._wheel(1, zoom=event.ctrl)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scrolls the lanes, or zooms in with ctrl."""
        self._wheel(-1, zoom=event.ctrl)

    def _wheel(self, direction: int, *, zoom: bool) -> None:
        if self.board is None:
            return
        if zoom:
            self.board.zoom(-direction)
        else:
            self.board.scroll_rows(3 * direction)
        self.changed()


def _without_number_at(text: str, at: int) -> str:
    """A ruler without the number whose digits stand under the mark of the cursor: "|1v2" reads as another number."""
    if not 0 <= at < len(text) or not text[at].isdigit():
        return text
    begin = text.rfind("|", 0, at)
    end = next((place for place in range(at, len(text)) if text[place] == " "), len(text))
    return text if begin < 0 or " " in text[begin:at] else f"{text[:begin]}{' ' * (end - begin)}{text[end:]}"


# Effects of the keys of the lanes on the board: moving, zooming, folding.


def _page(board: LaneBoard) -> int:
    return max(board.height - 1, 1)


def _width(board: LaneBoard) -> int:
    return max(board.view.cells(board.width) - 2, 1)


def _zoom_selection(board: LaneBoard) -> None:
    """Shows the stretch between cursor and marker, or else the collective under the cursor."""
    if board.marker is not None:
        board.zoom_to(*sorted((board.marker, board.unit)))
    elif (span := board.span_of_instance()) is not None:
        board.zoom_to(*span)


def _marker(board: LaneBoard) -> None:
    board.marker = None if board.marker == board.unit else board.unit


MOVES: dict[str, Callable[[LaneBoard], object]] = {
    "up": lambda board: board.go_row(board.row - 1),
    "down": lambda board: board.go_row(board.row + 1),
    "page_up": lambda board: board.go_row(board.row - _page(board)),
    "page_down": lambda board: board.go_row(board.row + _page(board)),
    "top": lambda board: board.go_row(0),
    "bottom": lambda board: board.go_row(board.count - 1),
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
"""Effects of the actions of the scope "lanes"."""
