"""The interface of the main screen for its controllers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from textual.app import App
from textual.geometry import Size
from textual.timer import Timer

from rankscope.tui.letters import Codes
from rankscope.tui.options import ViewOptions
from rankscope.tui.popups import Choice
from rankscope.tui.text_bars import TextBar

if TYPE_CHECKING:
    from rankscope.tui.detail.screens.page import Surroundings

T = TypeVar("T")


class MainView(Protocol):
    """Draws for controllers, asks the user for them, and runs their work in threads."""

    options: ViewOptions

    @property
    def app(self) -> App[object]:
        """The app."""

    @property
    def size(self) -> Size:
        """Columns and lines."""

    @property
    def in_detail(self) -> bool:
        """Whether the pane of the detail has the focus."""

    @property
    def is_covered(self) -> bool:
        """Whether another screen lies over the lanes."""

    @property
    def has_view(self) -> bool:
        """Whether a view lies over the lanes, and nothing over it."""

    def renew_view(self) -> None:
        """Opens the view over the lanes anew, on the data that is there now."""

    def bar(self, name: str) -> TextBar:
        """One of the lines of text."""

    @property
    def is_beside(self) -> bool:
        """Whether the detail stands beside the lanes."""

    @property
    def room_of_lanes(self) -> int:
        """Columns of the lanes and of the lines below them."""

    @property
    def present(self) -> Codes:
        """The codes of the cells in view, each once."""

    def surroundings(self) -> Surroundings:
        """The main screen as its pages see it."""

    def show_board(self) -> None:
        """Draws the board, after a change to another one."""

    def board_moved(self) -> None:
        """Draws the same board again, and the parts that follow its cursor."""

    def draw_head(self) -> None:
        """Writes title and verdict anew."""

    def draw_lines(self) -> None:
        """Writes overview and status anew."""

    def note(self, text: str) -> None:
        """Shows a message in the bottom line; without text, shows the keys again."""

    def ask(self, label: str, hint: str, then: Callable[[str], None]) -> None:
        """Asks for a line of text for `then`; the bottom line shows a ValueError of `then`."""

    def choose(self, title: str, choices: Sequence[Choice | str], then: Callable[[int], object]) -> None:
        """Asks the user to choose one of these for `then`."""

    def work_out(self, make: Callable[[], T], then: Callable[[T], None]) -> None:
        """Calls `make` in a thread; `then` gets the result in the thread of the screen."""

    def set_timer(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Calls back once after `delay` seconds."""

    def set_interval(self, interval: float, callback: Callable[[], None]) -> Timer:
        """Calls back every `interval` seconds."""

    def call_after_refresh(self, callback: Callable[[], object]) -> bool:
        """Calls back once after everything is drawn."""
