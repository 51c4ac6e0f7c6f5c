"""The first page of a comparison: the headline, the card and the parts.

The card is the answer in a few lines: who, where, why it may be, what decides, and a command to copy.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, NamedTuple

import polars as pl
from textual import on
from textual.binding import Binding, BindingType
from textual.widget import Widget

from rankscope.features.comparison.page.compared_view import ComparedPage, ComparedView, PartPage, diff_command, shown
from rankscope.features.comparison.rules.model import ComparedRun, Hypothesis, PartState, RunDifference
from rankscope.text.wording import plural, ranks_text
from rankscope.tui.actions import Hint, bound
from rankscope.tui.detail.finding_text import fitted
from rankscope.tui.detail.line_widgets import LineList
from rankscope.tui.detail.stack_tree import one_line
from rankscope.tui.options import ViewOptions
from rankscope.tui.styled_text import BLANK, Line, Role, Span, line
from rankscope.tui.text_bars import TextBar, rule

HEADLINE_LINES = 3
"""Most lines of the headline."""
LEAST_PARTS = 4
"""Lines below the card that stay free: one for each part."""
_CARD = {
    "means": 0, "who": 4, "where": 5, "in A": 6, "in B": 7, "why": 1, "for": 9, "against": 10, "decide": 2, "runs": 8,
    "copy Y": 3, "run A": 11, "run B": 12,
}  # fmt: skip
"""Lines of the card in their order, each with its rank: low terminals leave out those of the highest number."""
_IMPORTANT = sorted(_CARD, key=_CARD.__getitem__)
_LABEL = 8
_MOST_HOSTS = 2
_LONGEST_RANKS = 40
_MARKS: Mapping[PartState, tuple[str, Role]] = {
    PartState.NOT_COMPARED: ("- ", "dim"),
    PartState.DIFFERS: ("! ", "warn"),
    PartState.UNCOUNTED: ("~ ", "text"),
    PartState.EQUAL: ("= ", "good"),
}


class CardPlace(NamedTuple):
    """The difference and the cause on the card, by their numbers from 0."""

    difference: int = 0
    cause: int = 0


def headline_lines(view: ComparedView, at: CardPlace, width: int) -> list[Line]:
    """The sentence over the card: the headline, or another difference with its number."""
    found = view.found
    text = found.headline if not at.difference else f"{found.differences[at.difference].title}"
    # SAME only where every part was compared
    if not found.is_same:
        badge: tuple[str, Role] = " DIFFERS ", "critical"
    else:
        whole = all(part.state is PartState.EQUAL and not part.left for part in found.parts)
        badge = (" SAME ", "fine") if whole else (" NONE SEEN ", "fine")
    count = len(found.differences)
    number = f" {at.difference + 1}/{count}" if count > 1 else ""
    room = max(width - len(badge[0]) - 2, 10)
    pieces = textwrap.wrap(shown(text), room - len(number), break_on_hyphens=False) or [""]
    if len(pieces) > HEADLINE_LINES:
        pieces = [*pieces[: HEADLINE_LINES - 1], f"{pieces[HEADLINE_LINES - 1][: room - len(number) - 3]}..."]
    lines = [line(" ", Span(*badge), " ", Span(pieces[0], "bold"))]
    lines += [line(" " * (len(badge[0]) + 2), Span(piece, "bold")) for piece in pieces[1:]]
    gap = " " * max(width - lines[0].cell_len - len(number) - 1, 0)
    return [line(lines[0], gap, Span(number, "dim")), *lines[1:]]


def card_lines(view: ComparedView, at: CardPlace, width: int, height: int) -> list[Line]:
    """The card in at most `height` lines of `width` cells."""
    texts = {label: text for label, text in _texts(view, at, width) if text}
    kept = [label for label in _IMPORTANT if label in texts][: max(height, 0)]
    wanted = [(label, texts[label]) for label in _CARD if label in kept]
    return fitted(wanted, width, max(height, len(kept)), _IMPORTANT[::-1])


def _texts(view: ComparedView, at: CardPlace, width: int) -> Iterator[tuple[str, str]]:
    """The lines of the card with their labels; those of the cause belong to the earliest difference."""
    comparison = view.found
    if comparison.differences:
        difference = comparison.differences[at.difference]
        yield "who", _who(difference, view.whole.pair[1])
        step = f"step {difference.step}" if difference.step is not None else ""
        yield "where", shown("; ".join(filter(None, (step, *difference.details))))
        yield "in A", one_line(difference.stacks.in_a, width - _LABEL)
        yield "in B", one_line(difference.stacks.in_b, width - _LABEL)
    if comparison.hypotheses and not at.difference:
        cause, count = comparison.hypotheses[at.cause], len(comparison.hypotheses)
        number = f" ({at.cause + 1} of {count}, c shows the next)" if count > 1 else ""
        yield "why", shown(cause.cause) + number
        yield "for", shown("; ".join(cause.speaks_for))
        yield "against", shown("; ".join(cause.speaks_against))
        yield "decide", shown(cause.experiment)
    if comparison.is_same:
        yield "means", "equal as far as both runs record it; equal printed values do not prove equal bits"
    if comparison.groups is not None:
        yield "runs", shown(comparison.groups.power)
    yield "copy Y", shown(command(view, at))
    for side, run in zip("AB", view.pair_facts, strict=True):
        yield f"run {side}", shown(f"{run.title}: {run.verdict}")


def _who(one: RunDifference, run: ComparedRun) -> str:
    """The ranks of a difference, and their hosts in B if these are few."""
    if not one.ranks:
        return "both runs as a whole" if one.kind != "values-differ" else "the job: one rank prints for all"
    ops = run.dataset.ops
    hosts = ops.filter(pl.col("rank").is_in(one.ranks))["host"].cast(pl.String).drop_nulls().unique().sort().to_list()
    known = [host for host in hosts if host]
    where = f" on {' and '.join(known)}" if 0 < len(known) <= _MOST_HOSTS else ""
    many = f", {plural(len(one.ranks), 'rank')}" if len(one.ranks) > 1 else ""
    return shown(f"{ranks_text(one.ranks, _LONGEST_RANKS)}{many}{where}")


def command(view: ComparedView, at: CardPlace) -> str:
    """A command for the next step: of the cause on the card, of a run that failed, or for a report to share."""
    comparison = view.found
    cause = comparison.hypotheses[at.cause] if comparison.hypotheses and not at.difference else None
    if cause is not None and (command := _command_of(view, cause)):
        return command
    accused = set(comparison.differences[at.difference].ranks) if comparison.differences else set()
    failed = [
        (not accused & set(run.analysis.culprits), facts.title, min(run.analysis.culprits))
        for run, facts in zip(view.whole.pair[::-1], view.pair_facts[::-1], strict=True)
        if run.analysis.is_critical and run.analysis.culprits
    ]
    if failed:
        _, title, rank = min(failed, key=lambda one: one[0])
        return f"rankscope report {shlex.quote(title)} --why {rank}"
    return diff_command(comparison, "-o diff.md")


def _command_of(view: ComparedView, cause: Hypothesis) -> str:
    """The command in an experiment, or the one that gives a setting of A its value in B."""
    action = cause.action
    if action is None:
        return ""
    if action.kind == "determinism":
        return f"rankscope repro {shlex.quote(view.pair_facts[0].title)} --determinism"
    return f"unset {action.name}" if action.value is None else f"export {action.name}={shlex.quote(action.value)}"


class AnswerEntry(NamedTuple):
    """A line below the card: a part to open, or a difference or a cause for the card."""

    text: Line
    part: str = ""
    """Name of the part that it opens."""
    place: CardPlace = CardPlace()
    """What it shows on the card, unless it opens a part."""


def entries(view: ComparedView) -> list[AnswerEntry]:
    """The parts, then differences and causes if there are several. Without colours their marks tell the same."""
    comparison = view.found
    rows = []
    for part in comparison.parts:
        answer = Span(shown(part.answer), "text" if part.is_compared else "dim")
        rows.append(AnswerEntry(line(Span(*_MARKS[part.state]), Span(f"{part.name:<11}", "bold"), answer), part.name))
    for number, difference in enumerate(comparison.differences if len(comparison.differences) > 1 else ()):
        words = line(Span(f"{number + 1:>2}. ", "dim"), shown(f"{difference.kind}: {difference.title}"))
        rows.append(AnswerEntry(words, place=CardPlace(number)))
    for number, cause in enumerate(comparison.hypotheses if len(comparison.hypotheses) > 1 else ()):
        words = line(Span(f" ?{number + 1} ", "dim"), shown(f"cause: {cause.cause}; {cause.experiment}"))
        rows.append(AnswerEntry(words, place=CardPlace(0, number)))
    return rows


class AnswerPage(ComparedPage):
    """The answer. It is the lowest page: the others lie over it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("next_finding", "difference(1)", "next difference"),
        bound("previous_finding", "difference(-1)", "previous difference"),
        bound("chain", "cause", "next cause"),
        bound("right", "open"),
        bound("next_pane", "step(1)", "next part"),
        Binding("shift+tab", "step(-1)", "previous part", show=False),
        bound("copy_command", "copy_command", "copy the command"),
        bound("export", "save", "write the Markdown report"),
    ]
    DEFAULT_CSS = "AnswerPage #list { height: 1fr; min-height: 1; }"
    TITLE = "answer"
    CANNOT = frozenset({"other_pane"})
    ENTER = "open"
    OWN = (Hint("enter", "enter", "open"), Hint("n", "n", "next"))

    def __init__(self, view: ComparedView, options: ViewOptions) -> None:
        super().__init__(view, options)
        self.place = CardPlace()
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
            self._show(CardPlace(0, (self.place.cause + 1) % count if not self.place.difference else self.place.cause))

    def _show(self, place: CardPlace) -> None:
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
