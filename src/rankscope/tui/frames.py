"""Frames around panes: a title in the upper edge, words in the lower one, heavy lines around the pane with the keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rich.text import Text
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import BLANK, Line, Role, Span, cut, line, to_segments
from rankscope.tui.text_bars import Unstyled
from rankscope.tui.themes import base_style

Pane = Literal["lanes", "detail", ""]
"""The pane with the keys; "" if it is neither."""


@dataclass(frozen=True)
class Edges:
    """The characters of a frame: corners from the upper left with the sun, horizontal and vertical line."""

    corners: str
    across: str
    down: str


EDGES = {
    (False, False): Edges("\u256d\u256e\u256f\u2570", "\u2500", "\u2502"),
    (False, True): Edges("\u250f\u2513\u251b\u2517", "\u2501", "\u2503"),
    (True, False): Edges("++++", "-", "|"),
    (True, True): Edges("####", "=", "#"),
}
"""The edges by whether only ASCII may be used, and whether the pane has the keys."""


def pane_title(name: str, *, lit: bool) -> Span:
    """The title of a pane: in capitals on a ground where the pane has the keys, so no colour is needed to see it."""
    return Span(f" {name.upper()} ", "focus") if lit else Span(f" {name} ", "bold")


def rule(left: Line, right: Line, width: int, *, ascii_only: bool, lit: bool = False) -> Line:
    """A horizontal line with words at both ends; the right ones go first where there is no room."""
    across, face = EDGES[ascii_only, lit].across, _face(lit=lit)
    start = line(Span(across, face), cut(left, max(width - 2, 0)))
    end = line(right, Span(across, face)) if right else BLANK
    if start.cell_len + end.cell_len + 1 > width:
        end = BLANK
    return line(start, Span(across * max(width - start.cell_len - end.cell_len, 0), face), end)


def _face(*, lit: bool) -> Role:
    return "edge" if lit else "rule"


class PaneFrame(Unstyled):
    """A pane with edges where the style sheet gives it a padding; elsewhere it only holds its widgets."""

    DEFAULT_CSS = "PaneFrame { width: 1fr; height: 1fr; layout: vertical; overflow: hidden hidden; padding: 0; }"
    draws_gutter = True

    def __init__(self, name: str, options: ViewOptions, *children: Widget, id: str) -> None:
        super().__init__(*children, id=id)
        self.pane, self.options = name, options
        self.lit = False
        """Whether a widget in it has the keys."""
        self._more, self._foot = Text(), Text()
        self._side: tuple[object, Strip] | None = None
        """The strip of the lines between the edges, and what it depends on."""

    @property
    def is_framed(self) -> bool:
        """Whether there is room for the edges."""
        return any(self.gutter)

    def put(self, more: Line, foot: Line) -> None:
        """Shows words behind the title, and words in the lower edge."""
        if self.is_framed and (more, foot) != (self._more, self._foot):
            self._more, self._foot = more, foot
            width, height = self.outer_size
            edges = (Region(0, at, width, 1).translate(-self.content_offset) for at in (0, height - 1))
            # regions count from the content on
            self.refresh(*edges)

    def on_descendant_focus(self) -> None:
        """Draws heavy edges."""
        self.lit = True
        self.refresh()

    def on_descendant_blur(self) -> None:
        """Draws light edges."""
        self.lit = False
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """An edge above and below, and blanks between lines, which the widgets cover."""
        width, height = self.outer_size
        between = 0 < y < height - 1
        key = (width, self.options.look, self.lit, self.is_framed)
        if between and self._side is not None and self._side[0] == key:
            return self._side[1]
        look, ascii_only = self.options.look, self.options.ascii_only
        parts = self._edge(y, height, width) if self.is_framed else BLANK
        strip = Strip(to_segments(parts, width, look, ascii_only=ascii_only))
        strip = strip.adjust_cell_length(width, base_style(look))
        if between:
            self._side = key, strip
        return strip

    def _edge(self, y: int, height: int, width: int) -> Line:
        edges, face = EDGES[self.options.ascii_only, self.lit], _face(lit=self.lit)
        if 0 < y < height - 1:
            return line(Span(edges.down, face), " " * (width - 2), Span(edges.down, face))
        left, right = (edges.corners[0], edges.corners[1]) if y == 0 else (edges.corners[3], edges.corners[2])
        title = line(pane_title(self.pane, lit=self.lit), " " if self._more else "", self._more)
        words = (title, BLANK) if y == 0 else (BLANK, self._foot)
        between = rule(*words, width - 2, ascii_only=self.options.ascii_only, lit=self.lit)
        return line(Span(left, face), between, Span(right, face))
