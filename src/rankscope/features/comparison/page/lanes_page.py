"""Lanes of both runs beside each other, one above the other, or as one; their cursors move together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.widget import Widget

from rankscope.features.comparison.page.aligned_lanes import PairedLanes
from rankscope.features.comparison.page.compared_view import ComparedView, TargetPage, shown
from rankscope.text.wording import plural, ranks_text
from rankscope.tui.actions import Hint, bound
from rankscope.tui.cell_selection import item_at
from rankscope.tui.detail.line_widgets import Lines
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.operation_index import one as position
from rankscope.tui.detail.operation_text import absence, carried, group_label, op_name, progress
from rankscope.tui.detail.peers import state_label
from rankscope.tui.detail.screens.page import Way
from rankscope.tui.detail.stack_tree import label, one_line, user_frames
from rankscope.tui.marks import REASONS
from rankscope.tui.model import Model
from rankscope.tui.options import ViewOptions
from rankscope.tui.order import Hashes, running_looks, window_looks
from rankscope.tui.shown_operations import ShownOperations
from rankscope.tui.styled_text import BLANK, Line, Role, Span, cut, line
from rankscope.tui.text_bars import TextBar, pane_title, rule
from rankscope.tui.timeline import Timeline

Layout = Literal["beside", "above", "one"]
LAYOUTS: tuple[Layout, ...] = ("beside", "above", "one")
WIDE = 110
"""Columns from which the runs are beside each other at first."""
HIGH = 20
"""Lines from which there is room for both runs above each other."""
_LABEL = 3
_SHARE = 0.6
"""The place of a difference in the window."""


class PairBoard(ShownOperations):
    """The lanes of one run. Rows hold ranks that look the same in both runs, so the rows of both runs are the same."""

    def __init__(self, model: Model, other: Model, blamed: frozenset[int]) -> None:
        self._other = other
        self._other_sums = running_looks(other.items.code, other.items.col)
        super().__init__(model)
        self.blamed = blamed
        self.first = (blamed,)
        self.refold()

    def _looks(self) -> Hashes:
        window = (self.view.first, self.view.first + self.view.span(self.width))
        other = self._other
        return super()._looks() + window_looks(self._other_sums, other.items.col, other.bounds, other.gap_until, window)

    def _alone(self) -> NDArray[np.bool_]:
        # ranks that part in the same way share a row
        return np.isin(self.model.ranks, list(self.unfolded))

    def follow(self, leader: ShownOperations) -> None:
        """Takes over cursor, window and rows."""
        self.view, self.unit, self.lane, self.marker = leader.view, leader.unit, leader.lane, leader.marker
        self.unfolded, self.before = set(leader.unfolded), leader.before
        self.rows, self.order, self.top = leader.rows, leader.order, leader.top


class LanesPage(TargetPage):
    """The lanes of both runs, and under them both operations at the cursor with their stacks."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("next_finding", "difference(1)", "next difference"),
        bound("previous_finding", "difference(-1)", "previous difference"),
        bound("back", "back", "back"),
    ]
    WAYS = (Way("x", "arrange", "beside each other, one above the other, or as one"),)
    DEFAULT_CSS = """
    LanesPage #runs { height: 1fr; width: 100%; layout: vertical; }
    LanesPage #runs.-beside { layout: horizontal; }
    LanesPage .run { height: 1fr; width: 1fr; }
    LanesPage #runs.-one #run_b { display: none; }
    LanesPage #detail { height: 4; }
    LanesPage.-high #detail { height: 5; }
    LanesPage.-tall #detail { height: 40%; }
    """
    VERTICAL_BREAKPOINTS = [(0, "-low"), (HIGH, "-high"), (36, "-tall")]
    TITLE = "lanes"
    CANNOT = frozenset({"find"})
    OWN = (Hint("n", "n", "next"), Hint("g", "g", "layout"), Hint("escape", "esc", "back"))

    def __init__(self, view: ComparedView, options: ViewOptions, target: str = "") -> None:
        super().__init__(view, options, target)
        self.rank = int(target) if target else None
        self.layout_name: Layout = "above"
        self.timelines = Timeline(options, "lanes_a"), Timeline(options, "lanes_b")
        self._following = False
        runs = view.whole.grounds.schedule
        self._indexes = (OpIndex(runs.a.dataset), OpIndex(runs.b.dataset)) if runs is not None else ()

    @classmethod
    def missing(cls, view: ComparedView) -> str:
        """Why there are no lanes."""
        return "" if view.lanes is not None else f"no lanes: schedules are {shown(view.part('schedule').answer)}"

    @property
    def lanes(self) -> PairedLanes:
        """The lanes; the page is opened only if there are any."""
        assert self.view.lanes is not None
        return self.view.lanes

    def body(self) -> Iterable[Widget]:
        """The lanes, a rule, and the detail."""
        with Container(id="runs"):
            for name, timeline in zip("ab", self.timelines, strict=True):
                with Vertical(classes="run", id=f"run_{name}"):
                    yield TextBar(f"head_{name}", self.options)
                    yield timeline
        yield TextBar("rule", self.options)
        yield Lines(self.options, id="detail")

    def fill(self) -> None:
        """Shows the boards; the cursor is on the first difference."""
        lanes = self.lanes
        for timeline, model, other in ((self.timelines[0], lanes.a, lanes.b), (self.timelines[1], lanes.b, lanes.a)):
            timeline.show(PairBoard(model, other, lanes.first))
        width, height = self.app.size
        self.lay_out("beside" if width >= WIDE else "above" if height >= HIGH else "one")
        for number, timeline in enumerate(self.timelines):
            self.watch(timeline, "moves", self._follow_b if number else self._follow_a, init=False)
        self.set_focus(self.timelines[0])
        self.call_after_refresh(self._go_first)

    def _go_first(self) -> None:
        places = self.lanes.places
        of_rank = [place for place in places if self.rank in place.ranks] or places
        if of_rank:
            self._go(of_rank[0].column, self.rank if self.rank in of_rank[0].ranks else of_rank[0].ranks[0])
        else:
            self.draw_detail()

    # The cursor of one run moves that of the other

    def _follow_a(self) -> None:
        self._follow(0)

    def _follow_b(self) -> None:
        self._follow(1)

    def _follow(self, leader: int) -> None:
        if self._following:
            return
        ours, theirs = self.timelines[leader], self.timelines[1 - leader]
        if isinstance(ours.board, ShownOperations) and isinstance(theirs.board, PairBoard):
            self._following = True
            theirs.board.follow(ours.board)
            theirs.changed()
            self._following = False
        self.draw_detail()

    @property
    def board(self) -> ShownOperations:
        """The board with the cursor."""
        board = self.timelines[0].board
        assert isinstance(board, ShownOperations)
        return board

    def action_difference(self, by: int) -> None:
        """Goes to the next or the previous column in which schedules part."""
        places, unit = self.lanes.places, self.board.unit
        ahead = [p for p in places if p.column > unit] if by > 0 else [p for p in places if p.column < unit][::-1]
        if ahead:
            self._go(ahead[0].column, ahead[0].ranks[0])
        else:
            self.note(f"no {'further' if by > 0 else 'earlier'} difference" if places else "no difference")

    def _go(self, column: int, rank: int) -> None:
        self.board.go_rank(rank)
        self.board.go_unit(column)
        self.board.centre(_SHARE)
        self.timelines[0].changed()

    def action_arrange(self) -> None:
        """Changes to the next layout."""
        self.lay_out(LAYOUTS[(LAYOUTS.index(self.layout_name) + 1) % len(LAYOUTS)])

    def lay_out(self, layout: Layout) -> None:
        """Shows the runs in this layout."""
        lanes, before = self.lanes, self.layout_name
        self.layout_name = layout
        self.query_one("#runs").set_classes(f"-{layout}")
        board = self.board
        if "one" in (before, layout) and before != layout:
            shown_board = PairBoard(lanes.joined if layout == "one" else lanes.a, lanes.b, lanes.first)
            shown_board.resize(board.width, board.height)
            shown_board.follow(board)
            self.timelines[0].show(shown_board)
            self.set_focus(self.timelines[0])
        self.call_after_refresh(self.draw_bars)

    # Texts

    def heading(self) -> list[Line]:
        """Both runs, and the number of places in which they part."""
        count = len(self.lanes.places)
        return [self.title_line("lanes", Span(f"  {plural(count, 'difference') if count else 'no difference'}", "dim"))]

    def draw_bars(self) -> None:
        """Writes titles, rule and keys."""
        super().draw_bars()
        joined = self.layout_name == "one"
        for name, timeline, run in zip("ab", self.timelines, self.view.pair_facts, strict=False):
            words = "A, with * where B differs" if joined else shown(run.title)
            head = line(pane_title("A + B" if joined else run.label, lit=timeline.has_focus), f" {words} ")
            width = max(timeline.size.width, 1)
            self.query_one(f"#head_{name}", TextBar).put(
                rule(head, BLANK, width, ascii_only=self.options.ascii_only, lit=timeline.has_focus)
            )
        self.draw_detail()

    def on_descendant_focus(self) -> None:
        """Shows the run with the keys."""
        super().on_descendant_focus()
        self.draw_bars()

    def draw_detail(self) -> None:
        """Writes both operations at the cursor."""
        pane = self.query_one("#detail", Lines)
        if not pane.size.width or not len(self.lanes.a.ranks):
            return
        rank = int(self.board.model.ranks[self.board.lane])
        a, b = (one.row for one in self._spots())
        places, unit = self.lanes.places, self.board.unit
        at = next((n for n, place in enumerate(places) if place.column == unit), None)
        word, role = state_word(self.lanes, a, b)
        parts = [Span(f"{word} ", role)]
        if at is not None:
            parts.append(Span(f"difference {at + 1} of {len(places)}, {ranks_text(places[at].ranks, 30)} "))
        words = line(Span(f" rank {rank} ", "bold"), *parts)
        self.query_one("#rule", TextBar).put(rule(words, BLANK, self.size.width, ascii_only=self.options.ascii_only))
        pane.show_lines(pair_lines(self._spots(), self._indexes, pane.size.width))

    def _spots(self) -> list[CursorSpot]:
        board = self.board
        return [spot(model, board.lane, board.unit, board.view.per) for model in (self.lanes.a, self.lanes.b)]

    def copied(self) -> str:
        """Both operations at the cursor."""
        rank = int(self.board.model.ranks[self.board.lane])
        return "\n".join([f"rank {rank}", *(one.plain for one in pair_lines(self._spots(), self._indexes, 200))])


class CursorSpot(NamedTuple):
    """One run at the cursor."""

    row: int | None = None
    """Row of its operations."""
    absence: str = ""
    """The reason of a mark without an operation."""


def spot(model: Model, lane: int, unit: int, per: int) -> CursorSpot:
    """The most telling operation of a lane in a cell."""
    item = item_at(model, lane, unit, unit + per)
    if item is None:
        return CursorSpot(None, REASONS[model.gap_reason[lane]] if unit < model.gap_until[lane] else "")
    row = int(model.items.row[item])
    return CursorSpot(row) if row >= 0 else CursorSpot(None, REASONS[model.items.reason[item]])


def state_word(lanes: PairedLanes, a: int | None, b: int | None) -> tuple[str, Role]:
    """Whether two operations in one column are equal, by their rows."""
    if a is not None and b is not None and int(lanes.partner_in_b[a]) == b:
        return "equal", "good"
    if (a is not None and lanes.odd_a[a]) or (b is not None and lanes.odd_b[b]):
        return "DIFFERS", "warn"
    return ("no operation", "dim") if a is None and b is None else ("only in one run, not compared", "dim")


def pair_lines(spots: Sequence[CursorSpot], indexes: Sequence[OpIndex], width: int) -> list[Line]:
    """The operations of both runs: each with its stack in one line, then the frames below each other."""
    short, long = list[Line](), list[Line]()
    for name, one, index in zip("AB", spots, indexes, strict=True):
        if one.row is None:
            why = absence(one.absence or None)
            short.append(line(Span(f" {name} ", "head"), Span(why, "warn" if one.absence else "dim")))
            continue
        row = index.frame(position(one.row)).with_columns(state_label().alias("label")).row(0, named=True)
        stack = index.dataset.stack(row["stack_id"])
        words = f"  {carried(row)}  {group_label(index.group(row['group']))}  "
        parts = [Span(op_name(row), "bold"), Span(words)]
        short.append(cut(line(Span(f" {name} ", "head"), *parts, *progress(row, None)), width))
        if stack:
            short.append(line("   ", Span(one_line(stack, width - 4), "dim")))
            long += [
                line(Span(f" {name}  {op_name(row)}", "head")),
                *(line(f"   {label(one)}") for one in user_frames(stack)),
            ]
    return [*short, *([BLANK, *long] if long else [])]
