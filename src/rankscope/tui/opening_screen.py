"""The screen while dumps are read. It needs next to nothing, so that it is there at once."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import monotonic

from rich.text import Text
from textual.app import ComposeResult
from textual.screen import Screen

from rankscope.tui.options import ProgressLike, ViewOptions
from rankscope.tui.text_bars import TextBar, progress_line


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
        self.query_one("#progress", TextBar).put(Text(f" {text}"[: self.size.width], self.rich_style))

    def _draw(self) -> None:
        for name, progress in (("title", None), ("progress", self._progress)):
            if name == "title" or progress is not None:
                line = progress_line(self._subject, progress, self.size.width, ascii_only=self._options.ascii_only)
                self.query_one(f"#{name}", TextBar).put(line)


# When nobody presses keys: the time to search all there is for cycles, which holds up every key meanwhile.

QUIET_S = 0.25
"""So long after a key another one is not likely to come soon, ..."""
EVERY_S = 30.0
"""... which is made use of so often: what is drawn leaves cycles behind, about 10 kB for each key, ..."""
LONGEST_S = 300.0
"""... and where keys never stop, it is done all the same."""


class Quiet:
    """Knows when a key was pressed last, and when all was searched; in seconds of a clock that never goes back."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._pressed_at = self._searched_at = clock()

    def pressed(self) -> None:
        """Somebody has pressed a key or used the mouse."""
        self._pressed_at = self._clock()

    @property
    def is_due(self) -> bool:
        """Whether to search now."""
        now = self._clock()
        quiet, since = now - self._pressed_at, now - self._searched_at
        return since >= LONGEST_S or (quiet >= QUIET_S and since >= EVERY_S)

    def search(self) -> bool:
        """Takes away what only refers to itself, if it is time to; whether it was."""
        due = self.is_due
        if due:
            gc.collect()
            self._searched_at = self._clock()
        return due
