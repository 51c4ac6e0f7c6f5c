"""The screen during loading. It needs few modules, so it appears at once."""

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
    """Shows the input and the progress of loading."""

    def __init__(self, title: str, options: ViewOptions) -> None:
        super().__init__()
        self._subject, self._options = title, options
        self._progress: ProgressLike | None = None

    def compose(self) -> ComposeResult:
        """Two lines."""
        yield TextBar("title")
        yield TextBar("progress")

    def on_resize(self) -> None:
        """Writes the lines for the present width."""
        self._draw()

    def show_progress(self, progress: ProgressLike) -> None:
        """Shows the progress of loading."""
        self._progress = progress
        self._draw()

    def say(self, text: str) -> None:
        """Shows a text instead of the progress."""
        self._progress = None
        self.query_one("#progress", TextBar).put(Text(f" {text}"[: self.size.width], self.rich_style))

    def _draw(self) -> None:
        for name, progress in (("title", None), ("progress", self._progress)):
            if name == "title" or progress is not None:
                line = progress_line(self._subject, progress, self.size.width, ascii_only=self._options.ascii_only)
                self.query_one(f"#{name}", TextBar).put(line)


# The time without keys in which to search all objects for cycles; that search holds up every key.

QUIET_S = 0.25
"""Seconds without a key after which another key is not likely soon."""
EVERY_S = 30.0
"""Seconds between two searches in quiet times: drawing leaves cycles, about 10 kB for each key."""
LONGEST_S = 300.0
"""Seconds after which a search runs even if keys never stop."""


class Quiet:
    """Times of the last key and of the last search, in seconds of a monotonic clock."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._pressed_at = self._searched_at = clock()

    def pressed(self) -> None:
        """Notes that a key or the mouse was used."""
        self._pressed_at = self._clock()

    @property
    def is_due(self) -> bool:
        """Whether to search now."""
        now = self._clock()
        quiet, since = now - self._pressed_at, now - self._searched_at
        return since >= LONGEST_S or (quiet >= QUIET_S and since >= EVERY_S)

    def search(self) -> bool:
        """Frees objects in cycles if a search is due; returns whether it was."""
        due = self.is_due
        if due:
            gc.collect()
            self._searched_at = self._clock()
        return due
