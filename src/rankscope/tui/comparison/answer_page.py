"""The first page of a comparison: the headline, the card and the parts; and a page for each part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from rankscope.analysis.comparison.part_words import parting_title
from rankscope.tui.comparison.answer_card import (
    LEAST_PARTS,
    AnswerEntry,
    Place,
    card_lines,
    command,
    entries,
    headline_lines,
)
from rankscope.tui.comparison.compared_view import ComparedPage, ComparedView, shown
from rankscope.tui.detail.line_widgets import LineList
from rankscope.tui.detail.screens.page import ListPage
from rankscope.tui.frames import rule
from rankscope.tui.key_hints import Hint
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import BLANK, Line, Span, cut, line, wrap
from rankscope.tui.text_bars import TextBar


class AnswerPage(ComparedPage):
    """The answer. It is the lowest page: the others lie over it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "difference(1)", "next difference"),
        Binding("N", "difference(-1)", "previous difference"),
        Binding("c", "cause", "next cause"),
        Binding("right,l", "open", "open the part", show=False),
        Binding("tab", "step(1)", "next part"),
        Binding("shift+tab", "step(-1)", "previous part", show=False),
        Binding("Y", "copy_command", "copy the command"),
        Binding("e", "save", "write the Markdown report"),
    ]
    DEFAULT_CSS = "AnswerPage #list { height: 1fr; min-height: 1; }"
    TITLE = "answer"
    FINDS = True
    ENTER = "open"
    OWN = (Hint("enter", "enter", "open"), Hint("n", "n", "next"))

    def __init__(self, view: ComparedView, options: ViewOptions) -> None:
        super().__init__(view, options)
        self.place = Place()
        self._entries: list[AnswerEntry] = entries(view)

    def body(self) -> Iterable[Widget]:
        """Headline, card, a rule, and the parts."""
        yield TextBar("headline", self.options, "tint")
        yield TextBar("card", self.options)
        yield TextBar("rule", self.options)
        yield LineList(self.options, id="list")

    def heading(self) -> list[Line]:
        """The runs and their sizes."""
        sizes = sorted({run.world_size for run in self.view.found.runs})
        ranks = f"  {' and '.join(map(str, sizes))} ranks" if any(sizes) else ""
        return [self.title_line("rankscope diff", Span(ranks, "dim"))]

    def fill(self) -> None:
        """Lists the parts with the wanted text."""
        wanted = self.wanted.lower()
        self._entries = [one for one in entries(self.view) if wanted in one.text.plain.lower()]
        self.listing.show_rows(len(self._entries), lambda at, _width: self._entries[at].text)

    @property
    def listing(self) -> LineList:
        """The parts."""
        return self.query_one("#list", LineList)

    def draw_bars(self) -> None:
        """Writes everything above the parts for the present size."""
        super().draw_bars()
        width, height = self.size
        head = headline_lines(self.view, self.place, width)
        room = height - len(head) - 3 - min(LEAST_PARTS, len(self._entries))
        card = [line(" ", one) for one in card_lines(self.view, self.place, width - 2, room)]
        self.query_one("#headline", TextBar).put(*head)
        self.query_one("#card", TextBar).put(*card)
        words = line(Span(" compared ", "bold"))
        self.query_one("#rule", TextBar).put(rule(words, BLANK, width, ascii_only=self.options.ascii_only))

    def action_difference(self, by: int) -> None:
        """Shows the next difference on the card."""
        count = len(self.view.found.differences)
        if count:
            self._show(self.place._replace(difference=(self.place.difference + by) % count))

    def action_cause(self) -> None:
        """Shows the next possible cause on the card."""
        count = len(self.view.found.hypotheses)
        if count:
            self._show(Place(0, (self.place.cause + 1) % count if not self.place.difference else self.place.cause))

    def _show(self, place: Place) -> None:
        self.place = place
        self.draw_bars()

    def action_step(self, by: int) -> None:
        """Moves to the next part."""
        if self.listing.count:
            self.listing.move_to((self.listing.cursor + by) % self.listing.count)

    def action_open(self) -> None:
        """Opens the part under the cursor, or shows the difference on the card."""
        entry = self._entries[self.listing.cursor] if self._entries else None
        if entry is None:
            return
        if entry.part:
            self.app.push_screen(PartPage(self.view, self.options, entry.part))
        else:
            self._show(entry.place)

    @on(LineList.Chosen)
    def _chosen(self) -> None:
        self.action_open()

    def action_back(self) -> None:
        """Ends finding; the answer itself stays."""
        if self.wanted:
            self.find("")

    def action_copy_command(self) -> None:
        """Copies the command on the card."""
        self.copy_text(command(self.view, self.place))

    def action_save(self) -> None:
        """Writes the Markdown report."""
        if self.view.save is None:
            return
        try:
            self.note(f"written: {self.view.save(self.view.found, self.options.export_dir)}")
        except OSError as error:
            self.note(f"not written: {error.strerror or error}")


# One part: its lines in full.


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
        found = grounds.schedule
        return [*(PartRow(shown(parting_title(found, one, (one.rank,))), one.rank) for one in partings), *rows]
    if name == "values":
        differing = [one.name for one in grounds.series.differences]
        named = [row._replace(series=series) for row, series in zip(rows, differing, strict=False)]
        equal = [
            PartRow(f"{series}: equal in {count:,} values", None, series) for series, count, _ in grounds.series.equal
        ]
        return [*named, *equal, *rows[len(named) :]]
    return rows


class PartPage(ComparedPage, ListPage):
    """The lines of a part, and the one under the cursor in full."""

    DEFAULT_CSS = "PartPage #text { height: 40%; }"
    FINDS = True
    FIND_HINT = "a rank, a setting, a series"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("left,h", "back", "back", show=False)]
    OWN = (Hint("slash", "/", "find"), Hint("escape", "esc", "back"))

    def __init__(self, view: ComparedView, options: ViewOptions, part: str) -> None:
        super().__init__(view, options)
        self.part = view.part(part)
        self._rows = part_rows(view, part)
        self._found = self._rows
        self._target = {"schedule": "lanes", "values": "series"}.get(part, "")

    @property
    def title_text(self) -> str:
        """The name of the part."""
        return self.part.name

    def heading(self) -> list[Line]:
        """The part, both runs, and its answer."""
        return [self.title_line(), line(" ", Span(shown(self.part.summary), "bold"))]

    def hints(self, *, every: bool = False) -> list[Hint]:
        """The way to the lanes or the series first."""
        own = [Hint("enter", "enter", self._target)] if self._target else []
        return [*own, *super().hints(every=every)]

    def how_to_fill(self) -> list[Line]:
        """The text for a part without lines."""
        return wrap(line(Span(shown(self.part.summary), "warn")), self.size.width - 1)

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
