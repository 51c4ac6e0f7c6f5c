"""The pane below or beside the lanes: the selection under the cursor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from textual.timer import Timer

from rankscope.analysis.model import Analysis
from rankscope.report.words import descriptions
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.tui.controllers.board_set import BoardSet
from rankscope.tui.controllers.findings_walk import FindingsWalk
from rankscope.tui.controllers.main_view import MainView
from rankscope.tui.detail.detail_text import (
    beside_card,
    column_widths,
    compact,
    expanded,
    in_columns,
    of_rank,
    side_by_side,
)
from rankscope.tui.detail.finding_text import FindingCard, card, full_text, other_titles
from rankscope.tui.detail.line_widgets import Lines
from rankscope.tui.detail.operation_index import index_of
from rankscope.tui.detail.selection_facts import Detail, look_up
from rankscope.tui.model import Model
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import BLANK, Line, Span, line, wrap

FEWEST_FACTS = 3
"""Fewest lines of the detail that are worth showing below a card."""
ROOMY = 14
"""Lines from which the pane shows all facts instead of the most important."""
COLUMNS = 110
"""Cells from which the pane has two columns."""


class DetailPane(Lines):
    """Shows one selection at a time: the most important facts if the pane is low, all if it is high."""

    def __init__(self, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.detail: Detail | None = None
        """The detail in the pane."""
        self.card: FindingCard | None = None
        """The card of the finding, above or beside the detail."""
        self.story: Callable[[int], list[Line]] | None = None
        """The finding in full for a width, where there are no lanes."""
        self._analysis: Analysis | None = None
        self._made: Callable[[int, int], list[Line]] | None = None
        self._is_alone = False
        """Whether there are no lanes: the files hold no operation."""

    def stands_alone(self, alone: bool) -> None:
        """Shows only facts that are no operation's; the focus, which is always here, needs no mark."""
        self._is_alone, self.marks_focus = alone, not alone

    def show_made(self, make: Callable[[int, int], list[Line]]) -> None:
        """Shows the lines that `make` makes for a width and a height."""
        self._made = make
        self._lay_out()

    def show(self, dataset: Dataset, analysis: Analysis, selection: Selection | None) -> None:
        """Shows `selection` from now on; without one, the pane is empty."""
        self.show_found(None if selection is None else look_up(index_of(dataset), analysis, selection), analysis)

    def show_found(self, detail: Detail | None, analysis: Analysis) -> None:
        """Shows the looked-up detail of a selection."""
        self._analysis, self._made, self.detail = analysis, None, detail
        self._lay_out()

    def on_resize(self) -> None:
        """Writes the lines anew for the new size."""
        self._lay_out()

    def _lay_out(self) -> None:
        if self.size.width and self.size.height:
            self.show_lines(self._text(self.size.width, self.size.height))

    def card_height(self, width: int) -> int:
        """Lines that the whole card takes in a pane `width` cells wide; 0 without one."""
        return len(self._card_lines(width, _ALL)) if self.card is not None else 0

    def _card_lines(self, width: int, height: int) -> list[Line]:
        assert self.card is not None
        inside = column_widths(width)[0] if width >= COLUMNS else width
        return self.card.lines(inside, height, ascii_only=self.options.ascii_only)

    def _text(self, width: int, height: int) -> list[Line]:
        if self.story is not None:
            facts = self._facts(width, height)
            return [*self.story(width), *([BLANK, *facts] if facts else [])]
        if self.card is None:
            return self._facts(width, height)
        lines = self._card_lines(width, height)
        if width >= COLUMNS and self._made is None and self.detail is not None:
            left, right = column_widths(width)
            facts = compact(self.detail, left, max(height - len(lines) - 1, 0))
            return side_by_side([*lines, BLANK, *facts], beside_card(self.detail, right), width)
        room = height - len(lines) - 1
        facts = self._facts(width, room) if room >= FEWEST_FACTS else []
        return [*lines, *([BLANK, *facts] if facts else [])]

    def _facts(self, width: int, height: int) -> list[Line]:
        if self._made is not None:
            return self._made(width, height)
        if self._analysis is None:
            return []
        if self.detail is None:
            alone = self.card is None and self.story is None
            return [line(Span("nothing is selected", "dim"))] if alone else []
        if self._is_alone:
            return of_rank(self.detail, width)
        if height < ROOMY:
            return compact(self.detail, width, height)
        if width >= COLUMNS and self.card is None:
            return in_columns(self.detail, self._analysis, width)
        return expanded(self.detail, self._analysis, width, below_card=self.card is not None)


_ALL = 1 << 16
"""More lines than any card has."""


def story_of(model: Model, index: int | None) -> Callable[[int], list[Line]]:
    """The finding in full, where no lanes can show it; without one, the verdict."""
    if index is not None:
        finding, groups = model.analysis.findings[index], descriptions(model.dataset)
        return lambda width: [
            *full_text(model.analysis, finding, groups, width), *other_titles(model.analysis, finding, width)
        ]  # fmt: skip
    verdict = line(Span(plain(model.analysis.verdict), "bold"))
    return lambda width: wrap(verdict, width)


# The detail beside or below the lanes: a thread looks it up when the cursor rests.

DETAIL_AFTER = 0.03
"""Seconds without a move before the detail follows: a held key moves only the lanes."""


class DetailLookup:
    """Shows the selection under the cursor in the pane; one look-up runs at a time."""

    def __init__(self, view: MainView, boards: BoardSet, findings: FindingsWalk, pane: DetailPane) -> None:
        self._view, self._boards, self._findings, self._pane = view, boards, findings, pane
        self._timer: Timer | None = None
        self._made: tuple[Model, int, FindingCard] | None = None
        """The last card, with the state of the job and the finding that it is of."""
        self._looks_up, self._looks_again = False, False
        """Whether a thread looks up the detail, and whether the cursor has moved since."""

    @property
    def is_due(self) -> bool:
        """Whether the detail has not yet followed the last move."""
        return self._timer is not None or self._looks_up

    def moved(self) -> None:
        """Notes that the cursor or the window of the lanes has moved."""
        if self._timer is None:
            self._timer = self._view.set_timer(DETAIL_AFTER, self._draw)
        else:
            self._timer.reset()

    def _draw(self) -> None:
        self._timer = None
        board, whole = self._boards.shown, self._boards.whole
        self.set_heads()
        if self._looks_up:
            # one at a time: on a big job, look-ups would pile up while a key is held
            self._looks_again = True
        elif (facts := board.facts()) is not None:
            self._pane.show_made(facts)
        elif (selection := board.selection) is not None:
            self._looks_up = True
            found = partial(look_up, index_of(whole.dataset), whole.analysis, selection)
            self._view.work_out(found, partial(self._looked_up, whole.analysis))
        else:
            self._pane.show_found(None, whole.analysis)

    def set_heads(self) -> None:
        """Gives the pane the card of the finding under the cursor, or where there are no lanes the whole finding."""
        whole, at, pane = self._boards.whole, self._boards.shown.finding, self._pane
        pane.story = None if self._boards.has_lanes else story_of(whole, at)
        shows = self._boards.has_lanes and self._boards.shown.CARD and self._findings.at_finding
        pane.card = self._card_of(whole, at) if shows and at is not None else None

    def _card_of(self, whole: Model, at: int) -> FindingCard:
        """The card of a finding, made once: each move asks for it."""
        if self._made is None or self._made[0] is not whole or self._made[1] != at:
            self._made = whole, at, card(whole.dataset, whole.analysis, whole.analysis.findings[at])
        return self._made[2]

    def _looked_up(self, analysis: Analysis, detail: Detail) -> None:
        again, self._looks_up, self._looks_again = self._looks_again, False, False
        if self._timer is not None:
            return
        if again:
            self._draw()
        else:
            self._pane.show_found(detail, analysis)
