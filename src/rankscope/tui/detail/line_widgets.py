"""Widgets of lines: one to read, one to choose from. They make only the lines in view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip

from rankscope.tui.actions import bound
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import BLANK, Line, Span, cut, line, to_segments
from rankscope.tui.text_bars import Unstyled
from rankscope.tui.themes import base_style

WHEEL = 2
"""Lines that the mouse scrolls by."""
LineOf = Callable[[int, int], Line]
"""The line at an index, for a width in cells."""


def with_rest(parts: Line, more: int, width: int) -> Line:
    """The last line in view, with the number of lines that follow below it."""
    if more <= 0:
        return parts
    tag = f" +{more}"
    shown = cut(parts, width - len(tag) - 1)
    return line(shown, " " * (width - len(tag) - 1 - shown.cell_len), Span(tag, "dim"))


class Lines(Unstyled, can_focus=True):
    """Lines to read, scrolled by keys and by the mouse.

    It has its own window over the lines: with a virtual size, each new text would lay out the whole screen.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("up", "step(-1)"), bound("down", "step(1)"),
        bound("page_up", "page(-1)"), bound("page_down", "page(1)"), bound("begin", "edge(False)"),
        bound("end", "edge(True)"),
    ]  # fmt: skip
    DEFAULT_CSS = "Lines { height: 1fr; width: 1fr; }"
    marks_focus = True
    """Whether the first words are reversed while the widget has the focus."""

    def __init__(self, options: ViewOptions, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.options = options
        self.count = 0
        self.top = 0
        """The first line in view."""
        self._asked = 0
        """The line that was brought to the top: with another height there may be more lines below it, or fewer."""
        self._line_of: LineOf = lambda _index, _width: BLANK
        self._drawn: dict[tuple[int, Size], Strip] = {}

    def show_lines(self, lines: Sequence[Line]) -> None:
        """Shows these lines from the first."""
        self.show_rows(len(lines), lambda index, _width: lines[index])

    def show_rows(self, count: int, line_of: LineOf, *, keep: bool = False) -> None:
        """Shows `count` lines that `line_of` makes when they come into view; `keep` keeps the view in place."""
        self.count, self._line_of = count, line_of
        self.scroll_to_line(self._asked if keep else 0)

    def lines(self) -> list[Line]:
        """All lines, for the width there is."""
        return [self._line_of(index, self.size.width) for index in range(self.count)]

    def scroll_to_line(self, top: int) -> None:
        """Brings a line to the top, as far as there are lines below it."""
        self._asked = top
        self.top = max(0, min(top, self.count - max(self.size.height, 1)))
        self.refresh()

    def action_step(self, by: int) -> None:
        """Scrolls by lines."""
        self.scroll_to_line(self.top + by)

    def action_page(self, by: int) -> None:
        """Scrolls by pages."""
        self.action_step(by * max(self.size.height - 1, 1))

    def action_edge(self, last: bool) -> None:
        """Scrolls to the first or the last line."""
        self.scroll_to_line(self.count if last else 0)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scrolls down."""
        event.stop()
        self.scroll_to_line(self.top + WHEEL)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scrolls up."""
        event.stop()
        self.scroll_to_line(self.top - WHEEL)

    def on_resize(self) -> None:
        """Scrolls so that no room is empty below the last line while lines are above the first."""
        self.scroll_to_line(self._asked)

    def on_focus(self) -> None:
        """Shows that the widget has the focus."""
        self.refresh()

    def on_blur(self) -> None:
        """Shows that the widget has lost the focus."""
        self.refresh()

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        """Draws all lines in view anew."""
        self._drawn.clear()
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def render_line(self, y: int) -> Strip:
        """The strip of one line of the widget."""
        # a frame may come between a new size and the message that tells of it
        key = y, self.size
        if key not in self._drawn:
            self._drawn[key] = self._draw(y)
        return self._drawn[key]

    def _draw(self, y: int) -> Strip:
        width, index = self.size.width, y + self.top
        if index >= self.count:
            return Strip.blank(width, base_style(self.options.look))
        more = self.count - 1 - index if y == self.size.height - 1 else 0
        return self._strip(index, with_rest(self._line_of(index, width), more, width), width)

    def _strip(self, index: int, parts: Line, width: int, over: Style | None = None) -> Strip:
        options = self.options
        if self.has_focus and over is None and index == self.top and parts and self.marks_focus:
            end = min((edge for span in parts.spans for edge in (span.start, span.end) if edge), default=len(parts))
            parts = line(Span(parts.plain[:end], "mark"), parts[end:])
        segments = to_segments(parts, width, options.look, ascii_only=options.ascii_only, over=over)
        base = base_style(options.look)
        return Strip(segments).adjust_cell_length(width, base + over if over else base)


class LineList(Lines):
    """Lines to choose from, with a cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [bound("open", "choose")]
    DEFAULT_CSS = "LineList { height: 1fr; width: 1fr; }"
    marks_focus = False
    whole_row = True
    """Whether the line under the cursor is reversed as a whole."""

    class Moved(Message):
        """The cursor is on another line."""

        def __init__(self, sender: LineList) -> None:
            super().__init__()
            self.sender = sender

        @property
        def control(self) -> LineList:
            """The list of this message."""
            return self.sender

    class Chosen(Moved):
        """Enter was pressed on the line under the cursor."""

    def __init__(self, options: ViewOptions, *, id: str | None = None) -> None:
        super().__init__(options, id=id)
        self.cursor = 0

    def show_rows(self, count: int, line_of: LineOf, *, keep: bool = False) -> None:
        """Shows `count` lines; the cursor is on the first line, or with `keep` stays in place."""
        super().show_rows(count, line_of, keep=keep)
        self.move_to(self.cursor if keep else 0)

    def move_to(self, index: int) -> None:
        """Puts the cursor on a line and brings it into view."""
        self.cursor = max(0, min(index, self.count - 1))
        self._into_view()
        self.post_message(self.Moved(self))

    def lines(self) -> list[Line]:
        """The line under the cursor."""
        return [self._line_of(self.cursor, self.size.width)] if self.count else []

    def _into_view(self) -> None:
        lowest = max(self.top, self.cursor + 1 - self.size.height) if self.size.height else self.top
        if min(lowest, self.cursor) != self.top:
            self.scroll_to_line(min(lowest, self.cursor))
        self.refresh()

    def on_resize(self) -> None:
        """Keeps the line at the top, and the cursor in view."""
        self.scroll_to_line(self._asked)
        self._into_view()

    def action_step(self, by: int) -> None:
        """Moves the cursor by lines."""
        self.move_to(self.cursor + by)

    def action_edge(self, last: bool) -> None:
        """Moves the cursor to the first or the last line."""
        self.move_to(self.count - 1 if last else 0)

    def action_choose(self) -> None:
        """Reports that the line under the cursor is chosen."""
        if self.count:
            self.post_message(self.Chosen(self))

    def _strip(self, index: int, parts: Line, width: int, over: Style | None = None) -> Strip:
        at = index == self.cursor
        over = Style(reverse=True) if at and self.has_focus and self.whole_row else None
        return super()._strip(index, line(">" if at else " ", parts), width, over)

    def on_click(self, event: events.Click) -> None:
        """Puts the cursor under the mouse; a second click chooses."""
        index = event.y + self.top
        if index == self.cursor:
            self.action_choose()
        elif index < self.count:
            self.move_to(index)


class CellList(LineList):
    """Rows of cells, or of frames, with a cursor on one of those of the row it is in."""

    whole_row = False
