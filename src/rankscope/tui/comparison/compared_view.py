"""The data of the comparison screen, and the common parts of its pages: title, view keys, keys for differences."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType

from rankscope.analysis.comparison.model import ComparedPart, RunComparison, RunFacts
from rankscope.analysis.comparison.run_comparison import WholeComparison
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide
from rankscope.tui.comparison.aligned_lanes import PairedLanes
from rankscope.tui.controllers.exports import add_to_file
from rankscope.tui.detail.screens.page import Page
from rankscope.tui.key_hints import HELP, Hint
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import Line, Span, line
from rankscope.tui.text_bars import end_of

Saving = Callable[[RunComparison, Path], Path]
"""Writes the Markdown report of a comparison below a directory, and returns the new file."""


@dataclass(frozen=True)
class ComparedView:
    """All that the screen shows, made before it opens."""

    whole: WholeComparison
    lanes: PairedLanes | None
    save: Saving | None = None

    @property
    def found(self) -> RunComparison:
        """The comparison."""
        return self.whole.found

    @property
    def pair_facts(self) -> tuple[RunFacts, RunFacts]:
        """The facts of the first baseline and of the first candidate."""
        return self.found.runs[0], self.found.runs[self.whole.baselines]

    @property
    def text_command(self) -> str:
        """The command that prints the same as text."""
        return diff_command(self.found, "-f text")

    def part(self, name: str) -> ComparedPart:
        """One of the compared parts."""
        return next((one for one in self.found.parts if one.name == name), ComparedPart(name, "not compared"))


def diff_command(found: RunComparison, options: str) -> str:
    """The command that compares the same runs with these options."""
    return f"rankscope diff {options} {shlex.join(run.title for run in found.runs)}"


def shown(text: str) -> str:
    """A text of a file as the screen may show it."""
    return hide(plain(text))


VIEW_NAMES = ("answer", "lanes", "series", "map", "scatter")
"""The pages in the order of their keys, from 1."""


class ComparedPage(Page):
    """A page of the comparison. Digits open its neighbours, and escape goes back to the answer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(key), f"app.open_page('{name}')", f"view: {name}", show=False)
            for key, name in enumerate(VIEW_NAMES, 1)
        ),
        Binding("y", "copy", "copy"),
        Binding("q", "app.quit", "quit"),
    ]
    ENTER = ""
    CANNOT: ClassVar[frozenset[str]] = frozenset({"find", "other_pane"})
    """Actions of all pages that this one lacks: it may have no lines to find text in, and no second pane."""
    OWN: ClassVar[tuple[Hint, ...]] = ()
    """The keys of the page that stand first."""

    def __init__(self, view: ComparedView, options: ViewOptions) -> None:
        super().__init__(options)
        self.view = view

    def title_line(self, name: str = "", *more: Line | Span | str) -> Line:
        """The first line: the page, both runs, and more words."""
        name = name or self.title_text
        width = max((self.size.width - len(name) - sum(len(line(one)) for one in more) - 10) // 2, 8)
        a, b = (end_of(plain(run.title), width) for run in self.view.pair_facts)
        return line(Span(f" {name}", "head"), Span("  A ", "bold"), a, Span("  B ", "bold"), b, *more)

    def hints(self, *, every: bool = False) -> list[Hint]:
        """The keys of the page, then those of the views; `every` adds what only the help tells."""
        views = [Hint(str(key), str(key), name) for key, name in enumerate(VIEW_NAMES, 1) if name != self.title_text]
        common = [HELP, Hint("q", "q", "quit")]
        if not every:
            # escape leads to the answer, too
            back = any(hint.key == "escape" for hint in self.OWN)
            return [*self.OWN, *(views[1:] if back else views), *common]
        own = {hint.key for hint in common} | {hint.key for hint in self.OWN if hint.key == "enter"}
        first = [hint for hint in self.OWN if hint.key == "enter"]
        rest = [hint for hint in super().hints(every=True) if hint.key not in own and hint.what]
        return [*first, *rest, *views, *common]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether an action is possible here."""
        return False if action in self.CANNOT else super().check_action(action, parameters)

    def copied(self) -> str:
        """The text that y copies."""
        return f"{shown(self.view.found.headline)}\n{self.view.text_command}"

    def action_copy(self) -> None:
        """Copies what is on the page."""
        self.copy_text(self.copied())

    def copy_text(self, text: str) -> None:
        """Copies a text to the clipboard, and to a file: clipboards often do not work through tmux and SSH."""
        self.app.copy_to_clipboard(text)
        said = plain(text.partition("\n")[0], 60)
        try:
            self.note(f"copied: {said}; also in {add_to_file(self.options.export_dir, text)}")
        except OSError as error:
            self.note(f"copied: {said}; no file was written: {error.strerror or error}")


class TargetPage(ComparedPage):
    """A page that a digit opens, at a rank or a series."""

    def __init__(self, view: ComparedView, options: ViewOptions, target: str = "") -> None:
        super().__init__(view, options)
        self.target = target
        """A rank, or the name of a series; "" for the most telling place."""

    @classmethod
    def missing(cls, view: ComparedView) -> str:
        """Why there is nothing to show; "" if there is something."""
        raise NotImplementedError
