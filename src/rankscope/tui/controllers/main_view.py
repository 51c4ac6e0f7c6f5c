"""The main screen as its controllers know it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from rich.style import Style
from textual.app import App
from textual.geometry import Size
from textual.timer import Timer

from rankscope.tui.options import ViewOptions
from rankscope.tui.text_bars import TextBar

T = TypeVar("T")


class MainView(Protocol):
    """Draws what controllers tell it to draw, asks what they want to know, and works for them in threads."""

    options: ViewOptions

    @property
    def app(self) -> App[object]:
        """The app."""

    @property
    def size(self) -> Size:
        """Columns and lines."""

    @property
    def rich_style(self) -> Style:
        """The style of the background."""

    @property
    def is_covered(self) -> bool:
        """Whether another screen lies over the lanes."""

    def bar(self, name: str) -> TextBar:
        """One of the lines of text."""

    def show_board(self) -> None:
        """Draws the board that is shown, which is another one now."""

    def board_moved(self) -> None:
        """Draws the board that is shown anew, and what follows its cursor."""

    def draw_head(self) -> None:
        """Writes title and verdict anew."""

    def draw_lines(self) -> None:
        """Writes overview and status anew."""

    def note(self, text: str) -> None:
        """Says something in the bottom line; without text the keys are there again."""

    def ask(self, label: str, hint: str, then: Callable[[str], None]) -> None:
        """Asks for a line of text for `then`, whose ValueError is said in the bottom line."""

    def choose(self, title: str, choices: Sequence[str], then: Callable[[int], None]) -> None:
        """Lets one of these be chosen for `then`."""

    def work_out(self, make: Callable[[], T], then: Callable[[T], None]) -> None:
        """Makes something in a thread; `then` gets it in the thread of the screen."""

    def set_timer(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Calls back once, after so many seconds."""

    def set_interval(self, interval: float, callback: Callable[[], None]) -> Timer:
        """Calls back again and again."""

    def call_after_refresh(self, callback: Callable[[], object]) -> bool:
        """Calls back once everything is drawn."""
