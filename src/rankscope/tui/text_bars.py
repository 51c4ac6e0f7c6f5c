"""Lines of text with their own styles, and rules between panes; markup has no meaning in them."""

from __future__ import annotations

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
    def count(self) -> int:
        """Its lines, of which the next layout makes its height."""
        return max(len(self._lines), 1)

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


ACROSS = {(False, False): "\u2500", (False, True): "\u2501", (True, False): "-", (True, True): "="}
"""The character of a rule, by whether only ASCII may be used, and whether the pane below it has the keys."""


def pane_title(name: str, *, lit: bool) -> Span:
    """The title of a pane: in capitals on a ground where the pane has the keys, so no colour is needed to see it."""
    return Span(f" {name.upper()} ", "focus") if lit else Span(f" {name} ", "bold")


def rule(left: Line, right: Line, width: int, *, ascii_only: bool, lit: bool = False) -> Line:
    """A horizontal line with words at both ends; the right ones go first where there is no room."""
    across, face = ACROSS[ascii_only, lit], _face(lit=lit)
    start = line(Span(across, face), cut(left, max(width - 2, 0)))
    end = line(right, Span(across, face)) if right else BLANK
    if start.cell_len + end.cell_len + 1 > width:
        end = BLANK
    return line(start, Span(across * max(width - start.cell_len - end.cell_len, 0), face), end)


def _face(*, lit: bool) -> Role:
    return "edge" if lit else "rule"
