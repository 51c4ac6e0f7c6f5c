"""The data of the comparison screen, the common parts of its pages, and the page of one part."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from textual.binding import BindingType

from rankscope.features.comparison.page.aligned_lanes import PairedLanes
from rankscope.features.comparison.rules.model import ComparedPart, PartState, RunComparison, RunFacts
from rankscope.features.comparison.rules.part_words import parting_title
from rankscope.features.comparison.rules.run_sides import WholeComparison
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide
from rankscope.tui.actions import HELP, Hint, bound
from rankscope.tui.detail.screens.page import ListPage, Page
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import Line, Span, cut, line, wrap
from rankscope.tui.text_bars import end_of

Saving = Callable[[RunComparison, Path], Path]
"""Writes the Markdown report of a comparison below a directory, and returns the new file."""


VIEW_NAMES = ("answer", "lanes", "series", "map", "scatter")
"""The pages in the order of their keys, from 1."""


@dataclass(frozen=True)
class ComparedView:
    """All that the screen shows, made before it opens."""

    whole: WholeComparison
    lanes: PairedLanes | None
    save: Saving | None = None
    pages: tuple[str, ...] = VIEW_NAMES
    """Those of `VIEW_NAMES` for which the runs have data."""

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
        return next((one for one in self.found.parts if one.name == name), _no_part(name))


def _no_part(name: str) -> ComparedPart:
    return ComparedPart(name, PartState.NOT_COMPARED, "it is no part of this comparison")


def diff_command(found: RunComparison, options: str) -> str:
    """The command that compares the same runs with these options."""
    titles = [run.title for run in found.runs]
    groups = found.groups
    if groups is None or not groups.pooled:
        return f"rankscope diff {options} {shlex.join(titles)}"
    count = len(groups.baselines)
    sides = shlex.join(titles[:count]), shlex.join(titles[count:])
    return f"rankscope diff {options} --baseline {sides[0]} --candidate {sides[1]}"


def shown(text: str) -> str:
    """A text of a file as the screen may show it."""
    return plain(hide(text))


class ComparedPage(Page):
    """A page of the comparison. Digits open its neighbours, and escape goes back to the answer."""

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
        runs = [line(Span(f"  {run.label} ", "bold"), end_of(plain(run.title), width)) for run in self.view.pair_facts]
        return line(Span(f" {name}", "head"), *runs, *more)

    def hints(self, *, every: bool = False) -> list[Hint]:
        """The keys of the page, then those of the views; `every` adds what only the help tells."""
        pages = [name for name in self.view.pages if name != self.title_text]
        views = [Hint(str(key), str(key), name) for key, name in enumerate(VIEW_NAMES, 1) if name in pages]
        common = [HELP, Hint("q", "q", "quit")]
        if not every:
            # escape leads to the answer, too
            back = any(hint.key == "escape" for hint in self.OWN)
            return [*self.OWN, *(views[1:] if back else views), *common]
        mine = {hint.key for hint in common} | {hint.key for hint in self.OWN if hint.key == "enter"}
        first = [hint for hint in self.OWN if hint.key == "enter"]
        rest = [hint for hint in super().hints(every=True) if hint.key not in mine and hint.what]
        return [*first, *rest, *views, *common]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether an action is possible here."""
        return False if action in self.CANNOT else super().check_action(action, parameters)

    def copied(self) -> str:
        """The text that y copies."""
        return f"{shown(self.view.found.headline)}\n{self.view.text_command}"

    def action_tab(self, number: int) -> None:
        """Opens another page by its number."""
        if number <= len(VIEW_NAMES):
            self.app.call_later(self.app.run_action, f"open_page('{VIEW_NAMES[number - 1]}')")


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


class PartRow(NamedTuple):
    """A line of a part."""

    text: str
    """Already fit for the screen."""
    rank: int | None = None
    """The rank that the lanes go to."""
    series: str = ""
    """The name of the series that it opens."""


def part_rows(view: ComparedView, name: str) -> list[PartRow]:
    """The lines of a part; of schedules also each rank that parts, of values also the equal series."""
    rows = [PartRow(shown(text)) for text in view.part(name).lines]
    grounds = view.whole.grounds
    if name == "schedule" and grounds.schedule is not None:
        partings = grounds.schedule.partings
        schedule = grounds.schedule
        return [
            *(PartRow(shown(parting_title(schedule, parting, (parting.rank,))), parting.rank) for parting in partings),
            *rows,
        ]
    if name == "values":
        differing = [difference.name for difference in grounds.series.differences]
        named = [row._replace(series=series) for row, series in zip(rows, differing, strict=False)]
        equal = [
            PartRow(f"{series}: equal in {count:,} values", None, series) for series, count, _ in grounds.series.equal
        ]
        return [*named, *equal, *rows[len(named) :]]
    return rows


class PartPage(ComparedPage, ListPage):
    """The lines of a part, and the one under the cursor in full."""

    DEFAULT_CSS = "PartPage #text { height: 40%; }"
    CANNOT = frozenset()
    FIND_HINT = "a rank, a setting, a series"
    BINDINGS: ClassVar[list[BindingType]] = [bound("left", "back")]
    OWN = (Hint("slash", "/", "find"), Hint("escape", "esc", "back"))

    def __init__(self, view: ComparedView, options: ViewOptions, part: str) -> None:
        super().__init__(view, options)
        self.part = view.part(part)
        self._rows = part_rows(view, part)
        self._found = self._rows
        target = {"schedule": "lanes", "values": "series"}.get(part, "")
        self._target = target if target in view.pages else ""

    @property
    def title_text(self) -> str:
        """The name of the part."""
        return self.part.name

    def heading(self) -> list[Line]:
        """The part, both runs, and its answer."""
        return [self.title_line(), line(" ", Span(shown(self.part.answer), "bold"))]

    def hints(self, *, every: bool = False) -> list[Hint]:
        """The way to the lanes or the series first."""
        mine = [Hint("enter", "enter", self._target)] if self._target else []
        return [*mine, *super().hints(every=every)]

    def how_to_fill(self) -> list[Line]:
        """The text for a part without lines."""
        return wrap(line(Span(shown(self.part.answer), "warn")), self.size.width - 1)

    def search(self, text: str) -> int:
        """Lists the lines with `text`."""
        self._found = [row for row in self._rows if text in row.text.lower()]
        return len(self._found)

    def entry_line(self, at: int, width: int) -> Line:
        """A line."""
        return cut(line(self._found[at].text), width)

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The whole line."""
        return wrap(line(self._found[at].text), width, 2)

    def choose(self, at: int) -> None:
        """Opens the lanes at the rank, or the series."""
        row = self._found[at]
        if self._target:
            target = str(row.rank) if row.rank is not None else row.series
            self.app.call_later(self.app.run_action, f"app.open_page({self._target!r}, {target!r})")
