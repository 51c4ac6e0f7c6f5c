"""Screens that pop up: a list to choose from, and the help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from rankscope.tui.actions import ACTIONS
from rankscope.tui.letters import LETTERS
from rankscope.tui.options import THEME
from rankscope.tui.traces.activity import letters as trace_letters

MOST_CHOICES = 500
"""Most choices in the list; typing narrows it down."""
_MARKS = (
    ("A", "completed"), ("a", "pending: scheduled or started"), ("!", "proven never issued, while others wait in it"),
    ("?", "not known: overwritten, filtered, no dump"), ("*", "something else than the other members issued"),
    (".", "several completed operations in one cell"), ("-", "an operation goes on (time axis)"),
    ("~", "a pending operation goes on (time axis)"),
)  # fmt: skip


_RANK_MARKS = (
    (">", "the cursor"), ("!", "to blame for what is shown, or for all of it"),
    ("E", "not to blame, but a log of one of them tells of a root cause"),
)  # fmt: skip


class ChoiceScreen(ModalScreen[int | None]):
    """Choices with a field that narrows them down; dismisses with the index of the chosen one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("down", "step(1)", show=False, priority=True),
        Binding("up", "step(-1)", show=False, priority=True),
    ]
    DEFAULT_CSS = """
    ChoiceScreen { align: center middle; }
    ChoiceScreen > Vertical { width: 70; max-width: 90%; height: auto; max-height: 80%; border: solid $primary; }
    ChoiceScreen Input { height: 1; border: none; padding: 0 1; }
    ChoiceScreen Input:focus { border: none; }
    ChoiceScreen OptionList { height: auto; max-height: 20; border: none; padding: 0; }
    ChoiceScreen OptionList:focus { border: none; }
    ChoiceScreen.-ascii > Vertical { border: ascii $primary; }
    ChoiceScreen.-ascii OptionList { scrollbar-size: 0 0; }
    """

    def __init__(self, title: str, choices: Sequence[str], *, ascii_only: bool = False) -> None:
        super().__init__(classes="-ascii" if ascii_only else None)
        self._heading = title
        self._choices = choices

    def compose(self) -> ComposeResult:
        """A heading, the field, the list."""
        with Vertical():
            yield Static(f" {self._heading}", markup=False)
            yield Input(placeholder="type to narrow down", select_on_focus=False)
            yield OptionList(markup=False)

    def on_mount(self) -> None:
        """Lists everything."""
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()
        self._list("")

    def _list(self, text: str) -> None:
        words = text.lower().split()
        options = self.query_one(OptionList)
        options.clear_options()
        fits = [i for i, choice in enumerate(self._choices) if all(word in choice.lower() for word in words)]
        options.add_options([Option(Text(self._choices[i]), id=str(i)) for i in fits[:MOST_CHOICES]])
        options.highlighted = 0 if fits else None

    @on(Input.Changed)
    def _narrow(self, event: Input.Changed) -> None:
        self._list(event.value)

    def action_step(self, count: int) -> None:
        """Moves in the list while the field has the focus."""
        options = self.query_one(OptionList)
        if options.option_count:
            options.highlighted = ((options.highlighted or 0) + count) % options.option_count

    @on(Input.Submitted)
    def _entered(self) -> None:
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            self._choose(options.get_option_at_index(options.highlighted))

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self._choose(event.option)

    def _choose(self, option: Option) -> None:
        self.dismiss(int(option.id or 0))


class HelpScreen(ModalScreen[None]):
    """All keys, and the meaning of letters and marks."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q", "dismiss(None)", show=False),
        Binding("j", "scroll('down')", show=False),
        Binding("k", "scroll('up')", show=False),
    ]
    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen > VerticalScroll { width: 78; max-width: 100%; height: 100%; border: solid $primary; padding: 0 1; }
    HelpScreen.-ascii > VerticalScroll { border: ascii $primary; scrollbar-size: 0 0; }
    """

    def __init__(self, *, ascii_only: bool = False) -> None:
        super().__init__(classes="-ascii" if ascii_only else None)

    def compose(self) -> ComposeResult:
        """One long page."""
        with VerticalScroll():
            yield Static(Text(help_text()), markup=False)

    def action_scroll(self, way: str) -> None:
        """Scrolls by a line."""
        page = self.query_one(VerticalScroll)
        (page.scroll_down if way == "down" else page.scroll_up)(animate=False)


def help_text() -> str:
    """The help, made from the actions."""
    lines = ["Keys  (esc closes)"]
    section = ""
    for action in ACTIONS:
        if action.section != section:
            section = action.section
            lines += ["", section]
        lines.append(f"  {action.display:<15} {action.help}")
    lines += ["", "Cells"]
    lines += [f"  {mark:<3} {meaning}" for mark, meaning in _MARKS]
    lines += ["", "Left of the ranks"]
    lines += [f"  {mark:<3} {meaning}" for mark, meaning in _RANK_MARKS]
    lines += ["", "Letters"]
    names = [f"{letter} {name}" for letter, name, _ in LETTERS]
    lines += ["  " + "".join(f"{name:<19}" for name in names[at : at + 3]).rstrip() for at in range(0, len(names), 3)]
    lines += ["", "Lanes of profiler traces"]
    lines += [f"  {mark:<3} {meaning}" for mark, meaning in trace_letters()]
    return "\n".join(lines)


class ThemeScreen(ChoiceScreen):
    """The themes; the screen below shows the one under the cursor. Escape brings the old one back."""

    def __init__(self, present: str, *, ascii_only: bool = False) -> None:
        super().__init__(f"theme ({THEME}=NAME or --theme keeps it)", list(_THEMES.values()), ascii_only=ascii_only)
        self._present = present

    def _list(self, text: str) -> None:
        super()._list(text)
        if not text:
            self.query_one(OptionList).highlighted = list(_THEMES).index(self._present)

    @on(OptionList.OptionHighlighted)
    def _preview(self, event: OptionList.OptionHighlighted) -> None:
        self.app.theme = list(_THEMES)[int(event.option.id or 0)]

    async def action_dismiss(self, result: int | None = None) -> None:
        """Closes, with the theme that was there before."""
        self.app.theme = self._present
        await super().action_dismiss(result)


_THEMES: dict[str, str] = {
    "dark": "dark: bright on dark", "light": "light: dark on light", "contrast": "contrast: black, white, strong hues",
    "ansi": "ansi: the terminal's own colours",
}  # fmt: skip


# The line at the bottom for typed text: a search, a filter, a place.


class Prompt(Horizontal):
    """Asks for one line. It removes itself after the answer."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", show=False)]
    DEFAULT_CSS = """
    Prompt { height: 1; width: 100%; }
    Prompt Static { width: auto; text-style: bold; }
    Prompt Input { width: 1fr; height: 1; border: none; padding: 0; background: transparent; }
    Prompt Input:focus { border: none; background: transparent; }
    """

    @dataclass
    class Answered(Message):
        """The typed text; `text` is None if the user gave up."""

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
        """Takes the focus."""
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
