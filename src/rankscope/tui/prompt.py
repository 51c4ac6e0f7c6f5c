"""The line at the bottom in which something is typed: a search, a filter, where to go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static


class Prompt(Horizontal):
    """Asks for one line. It takes itself away once it is answered or given up."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", show=False)]
    DEFAULT_CSS = """
    Prompt { height: 1; width: 100%; }
    Prompt Static { width: auto; text-style: bold; }
    Prompt Input { width: 1fr; height: 1; border: none; padding: 0; background: transparent; }
    Prompt Input:focus { border: none; background: transparent; }
    """

    @dataclass
    class Answered(Message):
        """Something was typed and entered; `text` is None where it was given up."""

        kind: str
        text: str | None

    def __init__(self, kind: str, label: str, hint: str = "", text: str = "") -> None:
        super().__init__(id="prompt")
        self.kind = kind
        self._label, self._hint, self._text = label, hint, text

    def compose(self) -> ComposeResult:
        """The label and the field."""
        yield Static(f" {self._label} ", markup=False)
        yield Input(self._text, placeholder=self._hint, select_on_focus=False)

    def on_mount(self) -> None:
        """Takes the keys."""
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Answered(self.kind, event.value))
        self.remove()

    def action_give_up(self) -> None:
        """Closes without an answer."""
        self.post_message(self.Answered(self.kind, None))
        self.remove()
