"""Lines of text made of parts, each with its style; no markup is read in them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from rankscope.tui.parts import Part
from rankscope.tui.unstyled import Unstyled


class TextBar(Unstyled):
    """One or more lines that are replaced as a whole."""

    DEFAULT_CSS = "TextBar { height: 1; width: 100%; }"

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
