"""All members of a collective: a list of their operations, and the tree of their stacks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.containers import Container
from textual.widget import Widget

from rankscope.analysis.model import Analysis
from rankscope.analysis.presence import Absence
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import clock, duration, rank_ranges
from rankscope.tui.actions import bound
from rankscope.tui.columns import Col, Columns
from rankscope.tui.detail import operation_text
from rankscope.tui.detail.detail_text import brief, stack_lines
from rankscope.tui.detail.frame_tree import FrameTree
from rankscope.tui.detail.line_widgets import LineList, Lines
from rankscope.tui.detail.operation_index import OpIndex, index_of
from rankscope.tui.detail.operation_text import group_label
from rankscope.tui.detail.peers import Fold, Peers, fold, members
from rankscope.tui.detail.screens.page import Page, Way
from rankscope.tui.detail.selection_facts import look_up, peers_of, select
from rankscope.tui.detail.stack_tree import forest, one_line, user_frames
from rankscope.tui.filters import parse_ranks
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import BLANK, Line, Span, line


class MemberScreen(Page):
    """The members of a collective with times and stacks; dismisses with the same collective on the chosen rank."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bound("unfold", "unfold", "unfold"),
        bound("source", "edit", "source"),
        bound("right", "frame(1)"),
        bound("left", "frame(-1)"),
    ]
    WAYS = (Way("i", "internals", "frames of torch, C++ and the interpreter, or without"),)
    DEFAULT_CSS = """
    MemberScreen #members, MemberScreen #tree { height: 1fr; }
    MemberScreen #text { height: 7; border-top: solid $secondary; }
    MemberScreen.-ascii #text { border-top: ascii $secondary; }
    MemberScreen.-tall #text { height: 40%; }
    """
    VERTICAL_BREAKPOINTS = [(0, "-low"), (32, "-tall")]
    TITLE = "members"
    TAB = 3
    ENTER = "go to rank"
    FIND_HINT = "ranks (0-7,64), or an operation or a state"

    def __init__(
        self, dataset: Dataset, analysis: Analysis, selection: Selection, options: ViewOptions | None = None
    ) -> None:
        super().__init__(options or ViewOptions())
        self.index, self.analysis = index_of(dataset), analysis
        self.selection = _with_operation(self.index, selection)
        self.peers = peers_of(self.index, analysis, self.selection)
        self.roster = Roster(self.peers) if self.peers else None
        self.columns = self.roster.columns(dataset, is_p2p=self.selection.is_p2p) if self.roster else None
        self.internals = False

    def body(self) -> Iterable[Widget]:
        """The list, the tree, and the known facts of the member under the cursor."""
        members, tree = LineList(self.options, id="members"), FrameTree(self.options)
        tree.display = False
        yield Container(members, tree, Lines(self.options, id="text"), id="body")

    @property
    def _members(self) -> LineList:
        return self.query_one("#members", LineList)

    @property
    def _tree(self) -> FrameTree:
        return self.query_one("#tree", FrameTree)

    def heading(self) -> list[Line]:
        """The operation, its members and times, the name of the pane, and the columns."""
        if self.peers is None:
            return [line(Span(f" rank {self.selection.rank}", "head"), "  no operation here")]
        number = "" if self.peers.seq is None else f"#{self.peers.seq} "
        title = line(Span(f" {number}{plain(self.peers.op)}", "head"), f" in {group_label(self.peers.group)}")
        return [title, _arrivals(self.peers), self._tabs()]

    def _tabs(self) -> Line:
        if self._tree.display:
            return line("  members ", Span(" [stacks]", "bold"), Span("   left and right choose a frame", "dim"))
        titles = self.columns.titles(self.size.width).plain if self.columns else ""
        tabs = line(Span(" [members]", "bold"), "  stacks")
        return line(tabs, Span(titles[len(tabs) :], "dim"))

    def fill(self) -> None:
        """Lists the members that match the search."""
        self._list(keep=False)

    def _list(self, keep: bool = True) -> None:
        roster = self.roster
        if roster is None:
            self._members.show_rows(1, lambda _at, _width: line("no operation is known here"))
            return
        roster.wanted = self.wanted
        roster.list_entries()
        self._members.show_rows(len(roster.entries), self._entry, keep=keep)

    def _entry(self, at: int, width: int) -> Line:
        return self.columns.line(self.roster.entries[at], width) if self.roster and self.columns else BLANK

    def on_resize(self) -> None:
        """Writes everything anew for the new width."""
        self.draw_bars()
        self._grow()
        self.call_after_refresh(self._draw_text)

    def _grow(self) -> None:
        """Draws the trees for the width there is."""
        if not self._tree.display or self.peers is None:
            return
        trees = forest(self.index, self.peers, self.size.width - 1, internals=self.internals)
        self._tree.show_trees(trees, keep=True)

    @on(LineList.Moved)
    def _draw_text(self) -> None:
        text = self.query_one("#text", Lines)
        rank = self._rank()
        if rank is None or not text.size.width:
            text.show_lines([])
            return
        detail = look_up(self.index, self.analysis, self._on(rank))
        if self._tree.display:
            text.show_lines(self._tree.about(text.size.width))
        else:
            frames = stack_lines(detail.stack) if self.has_class("-tall") else []
            text.show_lines([*brief(detail, text.size.width), *frames])

    def _rank(self) -> int | None:
        """The first rank under the cursor."""
        entries = self.roster.entries if self.roster else []
        ranks = self._tree.ranks if self._tree.display else entries[self._members.cursor].ranks if entries else ()
        return ranks[0] if ranks else None

    def _on(self, rank: int) -> Selection:
        """The collective on another rank."""
        entry = self.peers.of_rank(rank) if self.peers else None
        if entry is None:
            return replace(self.selection, rank=rank)
        return select(self.selection, rank, *entry)

    @on(LineList.Chosen)
    def _chosen(self) -> None:
        roster, rank = self.roster, self._rank()
        if rank is None or roster is None:
            return
        if not self._tree.display and len(roster.entries[self._members.cursor].ranks) > 1:
            self.action_unfold()
            return
        self.dismiss(self._on(rank))

    def action_unfold(self) -> None:
        """Opens or closes the members that are folded into one line."""
        if self.roster is not None and self.roster.entries and not self._tree.display:
            at = self.roster.toggle(self._members.cursor)
            self._list()
            self._members.move_to(at)

    def action_other_pane(self) -> None:
        """Changes between members and stacks."""
        self._tree.display, self._members.display = self._members.display, self._tree.display
        shown = self._tree if self._tree.display else self._members
        shown.focus()
        self.draw_bars()
        self._grow()
        self.call_after_refresh(self._draw_text)

    def action_internals(self) -> None:
        """Shows or hides the frames of torch, C++ and the interpreter."""
        self.internals = not self.internals
        self._grow()

    def action_frame(self, by: int) -> None:
        """Moves to another frame of the line."""
        if self._tree.display:
            self._tree.step_frame(by)
            self._draw_text()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disables the keys of the hidden pane."""
        del parameters
        if not self.is_mounted:
            return True
        return {"unfold": not self._tree.display, "internals": self._tree.display}.get(action, True)

    def action_edit(self) -> None:
        """Opens the source of the frame under the cursor, in the list the innermost of the user's."""
        if self._tree.display:
            self.open_source(self._tree.frame)
            return
        rank = self._rank()
        stack = look_up(self.index, self.analysis, self._on(rank)).stack if rank is not None else ()
        self.open_source(next(iter(user_frames(stack)), None))


def _with_operation(index: OpIndex, selection: Selection) -> Selection:
    """The selection; if it has no operation, the last operation of its rank."""
    if selection.group is not None and (selection.seq is not None or selection.is_p2p):
        return selection
    return replace(index.last_operation(selection.rank), finding=selection.finding)


def _arrivals(peers: Peers) -> Line:
    """The number of members that issued it, the first and the last of them."""
    table = peers.table.drop_nulls("created_ns").sort("created_ns", "rank")
    if table.is_empty():
        return line(f" {counts(peers)}")
    first, last = table.row(0, named=True), table.row(-1, named=True)
    times = f"; first {first['rank']} at {clock(first['created_ns'])}"
    if table.height > 1 and not last["lag_ns"]:
        times = f"; all at {clock(first['created_ns'])}"
    elif table.height > 1:
        times += f", last {last['rank']} +{duration(last['lag_ns'])}"
    return line(f" {counts(peers)}", Span(times, "dim"))


@dataclass
class Roster:
    """Folds of members, some of them opened to single members."""

    peers: Peers
    wanted: str = ""
    """Ranks ("0-7,64"), or part of the text in a line."""
    opened: set[tuple[int, ...]] = field(default_factory=set)
    entries: list[Fold] = field(default_factory=list)
    """The entries of the list now."""
    usual: str = ""
    """The operation of most members."""

    def __post_init__(self) -> None:
        self._folds = fold(self.peers)
        most = max((f for f in self._folds if f.issued), key=lambda f: len(f.ranks), default=None)
        self.usual = operation_text.fold_op(most) if most else ""
        self.list_entries()

    def list_entries(self) -> None:
        """Lists the entries for `wanted` and `opened`."""
        ranks = self._ranks()
        if ranks is not None:
            self.entries = members(self.peers, ranks)
            return
        wanted = self.wanted.lower()
        self.entries = []
        for entry in self._folds:
            if wanted in searched(entry):
                self.entries += [entry, *(members(self.peers, entry.ranks) if entry.ranks in self.opened else [])]

    def toggle(self, at: int) -> int:
        """Opens or closes the fold of an entry; returns the new place of that fold."""
        entry = self.entries[at]
        whole = next((f for f in self._folds if set(entry.ranks) <= set(f.ranks)), entry)
        if len(whole.ranks) < 2:
            return at
        self.opened ^= {whole.ranks}
        self.list_entries()
        return next((i for i, f in enumerate(self.entries) if f.ranks == whole.ranks), at)

    def is_inside(self, entry: Fold) -> bool:
        """Whether an entry is a member of an opened fold."""
        return len(entry.ranks) == 1 and any(entry.ranks[0] in ranks for ranks in self.opened)

    def columns(self, dataset: Dataset, *, is_p2p: bool = False) -> Columns[Fold]:
        """The columns of the entries: mark, ranks, state, lag; then places, and operations unless they are `usual`."""
        return Columns(
            Col(title="", cell=lambda entry: Span(entry.mark, "bad" if entry.mark in ("!", "*") else "warn"), width=1),
            Col(
                title="",
                cell=lambda entry: partial(self._label, entry),
                width=lambda screen: 20 if screen <= 100 else 36,
            ),
            Col(title="state", cell=operation_text.fold_state, width=12),
            Col(title="behind", cell=operation_text.lag, width=lambda screen: 13 if screen <= 100 else 16),
            Col(title="where", cell=lambda entry: partial(self._what, entry, dataset, is_p2p)),
        )

    def _label(self, entry: Fold, cells: int) -> Span:
        count = f" x{len(entry.ranks)}" if len(entry.ranks) > 1 else ""
        label = ("  " if self.is_inside(entry) else "") + rank_ranges(entry.ranks, cells - len(count) - 2) + count
        return Span(label, "bold" if entry.accused else "text")

    def _what(self, entry: Fold, dataset: Dataset, is_p2p: bool, cells: int) -> Line:
        if not entry.issued:
            guilty = entry.presence == Absence.NEVER_ISSUED
            blame = Span("to blame" if guilty else ", to blame", "bad") if entry.accused else ""
            return line("" if guilty else operation_text.reason(entry.presence, is_p2p=is_p2p), blame)
        what = operation_text.fold_op(entry)
        what = "" if what == self.usual and not entry.differs else f"{what}  "
        where = one_line(dataset.stack(entry.stack_id), max(cells - len(what) - 1, 12))
        return line(Span(what, "bad" if entry.differs else "text"), where)

    def _ranks(self) -> frozenset[int] | None:
        highest = max(self.peers.table["rank"].to_list(), default=0)
        try:
            return parse_ranks(self.wanted, highest) if self.wanted else None
        except ValueError:
            return None


def searched(entry: Fold) -> str:
    """The text of an entry that a search looks at."""
    return f"{entry.presence} {entry.state} {operation_text.fold_op(entry)} {entry.host or ''}".lower()


def counts(peers: Peers) -> str:
    """The number of members that issued it, and of others with reasons: "7 of 8 issued it, 1 never issued"."""
    presence = peers.table["presence"].to_list()
    issued = presence.count("issued")
    why = {text: presence.count(text) for text in dict.fromkeys(presence) if text != "issued"}
    return ", ".join([f"{issued:,} of {len(presence):,} issued it", *(f"{n} {plain(text)}" for text, n in why.items())])
