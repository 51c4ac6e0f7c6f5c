"""The reasons why the rank under the cursor is accused or not: rule, evidence, chain, and how nearly it was accused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import Container
from textual.widget import Widget

from rankscope.analysis.explanations import NoSuchRankError, explain_rank
from rankscope.analysis.model import Analysis, RankExplanation
from rankscope.report.words import why_sections
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.tui.actions import bound
from rankscope.tui.detail.line_widgets import Lines
from rankscope.tui.detail.operation_index import index_of
from rankscope.tui.detail.screens.page import Page
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import BLANK, Line, Span, line, wrap

_LABEL, _INDENT = 11, 2


def why_lines(why: RankExplanation, width: int) -> list[Line]:
    """An answer in lines of `width` cells."""
    head = Span(plain(why.title[:1].upper() + why.title[1:]), "bad" if why.accused else "bold")
    lines = [*wrap(line(head), width, _INDENT), BLANK]
    for label, texts in why_sections(why):
        for at, text in enumerate(texts):
            title = Span(f"{'' if at else label:<{_LABEL}}", "head")
            lines += wrap(line(title, plain(text)), width, _LABEL + _INDENT)
    return lines


class WhyScreen(Page):
    """The answer for one rank; dismisses with its finding, or with the last operation of the rank."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("open", "choose"),
        bound("chain", "chain", "rank it waits for"),
    ]
    DEFAULT_CSS = "WhyScreen #text { height: 1fr; }"
    TITLE = "why"
    TAB = 1
    ENTER = "to the finding"
    FIND_HINT = "part of a line"

    def __init__(self, dataset: Dataset, analysis: Analysis, rank: int, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset, self.analysis, self.rank = dataset, analysis, rank
        self.why = self._ask(rank)

    def _ask(self, rank: int) -> RankExplanation:
        try:
            return explain_rank(self.dataset, self.analysis, rank)
        except NoSuchRankError as error:
            return RankExplanation(rank, False, None, str(error))

    def heading(self) -> list[Line]:
        """The rank of the answer, and the verdict."""
        title = line(Span(" why", "head"), f"  rank {self.why.rank}")
        return [title, line(" ", Span(plain(self.analysis.verdict), "bold"))]

    def body(self) -> Iterable[Widget]:
        """The lines."""
        yield Container(Lines(self.options, id="text"), id="body")

    def fill(self) -> None:
        """Shows the lines that match the search."""
        text = self.query_one("#text", Lines)
        if not text.size.width:
            return
        lines = why_lines(self.why, text.size.width)
        matching = [parts for parts in lines if self.wanted.lower() in parts.plain.lower()]
        text.show_lines(matching or [line(Span(f"no line here has {plain(self.wanted)!r}; esc shows all", "warn"))])

    def on_resize(self) -> None:
        """Writes everything anew for the new width."""
        self.draw_bars()
        self.call_after_refresh(self.fill)

    def action_chain(self) -> None:
        """Shows the answer for the rank that this one waits for."""
        steps = self.analysis.waits.get(self.why.rank)
        if not steps:
            self.note(f"rank {self.why.rank} waits for nobody")
            return
        self.why = self._ask(steps[0].for_rank)
        self.fill()
        self.draw_bars()

    def action_choose(self) -> None:
        """Goes to the finding, or to the last operation of the rank."""
        ids = [finding.id for finding in self.analysis.findings]
        if self.why.finding in ids:
            self.dismiss(ids.index(self.why.finding))
        else:
            self.dismiss(index_of(self.dataset).last_operation(self.why.rank))
