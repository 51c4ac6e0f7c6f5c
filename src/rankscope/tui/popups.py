"""Pop-ups over the screen: a list to choose from, and the line for typed text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.fuzzy import Matcher
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from rankscope.text.escaping import plain
from rankscope.tui.actions import Hint, hint_line
from rankscope.tui.options import THEME, ViewOptions
from rankscope.tui.text_bars import TextBar

MOST_CHOICES = 500
"""Most choices in the list; typing narrows it down."""


@dataclass(frozen=True)
class Choice:
    """An entry of a list to choose from."""

    text: str
    key: str = ""
    """The letter that chooses it at once; a list with letters has no field to type in."""
    also: str = ""
    """Further words that find it."""
    dim: bool = False
    """Whether it leads to nothing that is loaded."""


def found_choices(choices: Sequence[Choice], typed: str) -> list[int]:
    """Indices of the choices with all typed words, those with whole words first, then those that begin with them.

    If no choice has them, those with all typed letters in the same order, the nearest first.
    """
    words = typed.lower().split()
    texts = [f"{choice.text} {choice.also}".lower() for choice in choices]
    fits = [at for at, text in enumerate(texts) if all(word in text for word in words)]
    if fits or not words:
        whole = {at: set(words) <= set(re.findall(r"[\w+-]+", texts[at])) for at in fits}
        return sorted(fits, key=lambda at: (not whole[at], texts[at].find(words[0]) if words else 0))
    matcher = Matcher(typed)
    scores = {at: matcher.match(text) for at, text in enumerate(texts)}
    return sorted((at for at, score in scores.items() if score > 0), key=lambda at: -scores[at])


class ChoiceScreen(ModalScreen[int | None]):
    """Choices with a field that narrows them down, or with letters; dismisses with the index of the chosen one."""

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
    ChoiceScreen #hints { height: 1; dock: bottom; }
    ChoiceScreen OptionList { margin-bottom: 1; }
    ChoiceScreen.-ascii > Vertical { border: ascii $primary; }
    ChoiceScreen.-ascii OptionList { scrollbar-size: 0 0; }
    """

    def __init__(self, title: str, choices: Sequence[Choice | str], options: ViewOptions) -> None:
        super().__init__(classes="-ascii" if options.ascii_only else None)
        self._options = options
        self._heading = title
        self._choices = [Choice(choice) if isinstance(choice, str) else choice for choice in choices]
        self._letters = {choice.key: at for at, choice in enumerate(self._choices) if choice.key}

    def compose(self) -> ComposeResult:
        """A heading, the field if there are no letters, the list, the keys."""
        with Vertical():
            yield Static(f" {self._heading}", markup=False)
            if not self._letters:
                yield Input(placeholder="type to narrow down", select_on_focus=False)
            yield OptionList(markup=False)
            yield TextBar("hints", self._options)

    def on_mount(self) -> None:
        """Lists everything."""
        for field in self.query(Input):
            field.cursor_blink = False
            field.focus()
        self._list("")

    def on_resize(self) -> None:
        """Writes the keys for the new width."""
        letter = [Hint("", "a letter", "opens")] if self._letters else []
        hints = [*letter, Hint("enter", "enter", "choose"), Hint("escape", "esc", "close")]
        self.query_one("#hints", TextBar).put(hint_line(hints, max(self.size.width * 9 // 10 - 2, 10)))

    def on_key(self, event: events.Key) -> None:
        """Chooses by letter."""
        at = self._letters.get(event.key)
        if at is not None:
            event.stop()
            self.dismiss(at)

    def _list(self, text: str) -> None:
        options = self.query_one(OptionList)
        options.clear_options()
        fits = found_choices(self._choices, text)
        options.add_options([Option(self._line(self._choices[at]), id=str(at)) for at in fits[:MOST_CHOICES]])
        if not fits:
            options.add_option(Option(Text(f" nothing is called {plain(text)!r}: try another word"), disabled=True))
        options.highlighted = 0 if fits else None

    def _line(self, choice: Choice) -> Text:
        letter = Text.assemble(" ", (choice.key, "bold"), "  ") if self._letters else Text()
        return letter.append(choice.text, "dim" if choice.dim else "")

    @on(Input.Changed)
    def _narrow(self, event: Input.Changed) -> None:
        self._list(event.value)

    def action_step(self, count: int) -> None:
        """Moves in the list while the field has the focus."""
        options = self.query_one(OptionList)
        if options.highlighted is not None:
            options.highlighted = (options.highlighted + count) % options.option_count

    @on(Input.Submitted)
    def _submitted(self) -> None:
        option = self.query_one(OptionList).highlighted_option
        if option is not None:
            self._choose(option)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        self._choose(event.option)

    def _choose(self, option: Option) -> None:
        self.dismiss(int(option.id or 0))


class ThemeScreen(ChoiceScreen):
    """The themes; the screen below shows the one under the cursor. Escape brings the old one back."""

    def __init__(self, options: ViewOptions, present: str) -> None:
        choices = [Choice(text) for text in _THEMES.values()]
        super().__init__(f"theme ({THEME}=NAME or --theme keeps it)", choices, options)
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


class Prompt(Horizontal):
    """Asks for one line. The screen removes it after the answer, when the focus is elsewhere."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", show=False)]
    DEFAULT_CSS = """
    Prompt { height: 1; width: 100%; }
    Prompt Static { width: auto; text-style: bold; }
    Prompt #cancel { text-style: none; margin-left: 1; }
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
        yield Static("esc cancels", markup=False, id="cancel")

    def on_mount(self) -> None:
        """Takes the focus."""
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Answered(self.kind, event.value))

    def action_give_up(self) -> None:
        """Closes without an answer."""
        self.post_message(self.Answered(self.kind, None))
