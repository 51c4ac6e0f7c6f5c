"""The screen while dumps are read. It needs next to nothing, so that it is there at once."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen

from rankscope.tui.bars import TextBar
from rankscope.tui.options import ProgressLike, ViewOptions
from rankscope.tui.parts import progress_parts


class OpeningScreen(Screen[None]):
    """Says what is opened and how far that is."""

    def __init__(self, title: str, options: ViewOptions) -> None:
        super().__init__()
        self._subject, self._options = title, options
        self._progress: ProgressLike | None = None

    def compose(self) -> ComposeResult:
        """Two lines."""
        yield TextBar("title")
        yield TextBar("progress")

    def on_resize(self) -> None:
        """Writes the lines for the width there is."""
        self._draw()

    def show_progress(self, progress: ProgressLike) -> None:
        """Says how far loading has come."""
        self._progress = progress
        self._draw()

    def say(self, text: str) -> None:
        """Says something instead of how far loading has come."""
        self._progress = None
        self.query_one("#progress", TextBar).put([(f" {text}"[: self.size.width], self.rich_style)])

    def _draw(self) -> None:
        for name, progress in (("title", None), ("progress", self._progress)):
            if name == "title" or progress is not None:
                parts = progress_parts(self._subject, progress, self.size.width, ascii_only=self._options.ascii_only)
                self.query_one(f"#{name}", TextBar).put(parts)
