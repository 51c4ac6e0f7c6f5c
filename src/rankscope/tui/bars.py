"""Lines of text made of parts, each with its style; no markup is read in them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from rankscope.tui.parts import Part


class TextBar(Widget):
    """One or more lines that are replaced as a whole."""

    DEFAULT_CSS = "TextBar { height: 1; width: 100%; }"
    ALLOW_SELECT = False

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self._strips: list[Strip] = []

    def put(self, *lines: Sequence[Part]) -> None:
        """Shows these lines; the height follows their number."""
        strips = [Strip([Segment(text, style) for text, style in line if text]) for line in lines]
        if [list(strip) for strip in strips] == [list(strip) for strip in self._strips]:
            return
        if len(strips) != len(self._strips):
            self.styles.height = max(len(strips), 1)
        self._strips = strips
        self.refresh()

    @property
    def text(self) -> str:
        """What is shown, without styles."""
        return "\n".join(strip.text for strip in self._strips)

    def render_line(self, y: int) -> Strip:
        """One line, filled up with blanks."""
        strip = self._strips[y] if y < len(self._strips) else Strip([])
        return strip.adjust_cell_length(self.size.width, Style())

    def render_lines(self, crop: Region) -> list[Strip]:
        """A part of the lines, without the styles of CSS."""
        strips = [self.render_line(y).crop(crop.x, crop.right) for y in range(crop.y, crop.bottom)]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, self.background_colors[1]) for strip in strips]
        return strips
