"""Lines of text with their own styles, and frames around panes; markup has no meaning in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rich.text import Text
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from rankscope.text.escaping import plain
from rankscope.tui.options import ProgressLike, ViewOptions
from rankscope.tui.styled_text import BLANK, Line, Role, Span, cut, line, to_segments
from rankscope.tui.themes import Ground, base_style


class Unstyled(Widget):
    """Shows the result of `render_line` unchanged, unless CSS puts a border around it.

    It leaves out CSS styles, which take most of the time of a frame.
    """

    ALLOW_SELECT = False
    draws_gutter = False
    """Whether `render_line` draws the room around the content, too."""

    def repaint(self) -> None:
        """Draws the same content in other colours."""
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The strips of a part of the widget."""
        if any(self.gutter) and not self.draws_gutter:
            return super().render_lines(crop)
        strips = [self.render_line(y).crop(crop.x, crop.right) for y in range(crop.y, crop.bottom)]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, self.background_colors[1]) for strip in strips]
        return strips


class TextBar(Unstyled):
    """One or more lines that are replaced as a whole."""

    DEFAULT_CSS = "TextBar { height: 1; width: 100%; }"

    def __init__(self, name: str, options: ViewOptions, ground: Ground = "ground") -> None:
        super().__init__(id=name)
        self.options = options
        self.ground: Ground = ground
        self._lines: tuple[Text, ...] = ()

    def put(self, *lines: Text, ground: Ground | None = None) -> None:
        """Shows these lines; the height is their number."""
        if lines == self._lines and ground in (None, self.ground):
            return
        if len(lines) != len(self._lines):
            self.styles.height = max(len(lines), 1)
        self._lines, self.ground = lines, ground or self.ground
        self.refresh()

    @property
    def text(self) -> str:
        """The text of the lines, without styles."""
        return "\n".join(line.plain for line in self._lines)

    def render_line(self, y: int) -> Strip:
        """One line, filled up with blanks."""
        width, options = self.size.width, self.options
        parts = self._lines[y] if y < len(self._lines) else BLANK
        segments = to_segments(parts, width, options.look, ascii_only=options.ascii_only, ground=self.ground)
        return Strip(segments).adjust_cell_length(width, base_style(options.look, self.ground))


def end_of(text: str, width: int) -> str:
    """The end of a text that is too long: paths differ at their ends."""
    return text if len(text) <= width else ".." + text[len(text) - width + 2 :]


def shortened(name: str, width: int) -> str:
    """A name of a group in at most `width` characters; it keeps a number at its end."""
    if len(name) <= width:
        return name
    number = name[len(name.rstrip("0123456789")) :][-4:]
    return name[: max(width - 2 - len(number), 1)] + ".." + number


def progress_line(title: str, progress: ProgressLike | None, width: int, *, ascii_only: bool) -> Text:
    """One line with the progress of loading."""
    if progress is None:
        return Text.assemble((f" rankscope {end_of(plain(title), max(width - 24, 10))}  opening ...", "bold"))
    count = f" {progress.done}/{progress.total}" if progress.total else f" {progress.done}" if progress.done else ""
    what = f" {plain(progress.what, 30)}{count}"
    size = max(min(40, width - len(what) - 3), 0)
    done = round(size * min(progress.done / progress.total, 1)) if progress.total > 0 else 0
    full, empty = ("#", ".") if ascii_only else ("\u2588", "\u2591")
    return Text.assemble((what, "bold"), f" {full * done}{empty * (size - done)}" if progress.total else "")


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
