"""The process groups: members, spread of their progress, the first divergence, and its cause."""

from __future__ import annotations

from functools import partial

from rankscope.analysis.model import Analysis, Divergence
from rankscope.schema import Dataset
from rankscope.text.escaping import plain
from rankscope.text.wording import plural, rank_ranges
from rankscope.tui.columns import Col, Columns
from rankscope.tui.detail.group_states import GroupState, group_states
from rankscope.tui.detail.operation_index import OpIndex, index_of
from rankscope.tui.detail.operation_text import group_label, group_short
from rankscope.tui.detail.screens.page import TablePage, Way
from rankscope.tui.detail.selection_facts import as_absence
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import GroupFilter, Selection
from rankscope.tui.styled_text import Line, Span, line


def span_text(span: tuple[int, int] | None) -> str:
    """The numbers of two collectives: "#31", "#30-31"; "-" if they are not known."""
    if span is None:
        return "-"
    return f"#{span[1]}" if span[0] == span[1] else f"#{span[0]}-{span[1]}"


def pending(state: GroupState) -> str:
    """The collective that the members wait in; "-" without one."""
    parted = state.divergence
    return "-" if parted is None else f"#{parted.seq} {plain(parted.op)}"


def missing(state: GroupState) -> str:
    """The members that keep the others waiting: "6 never issued"; "" if nobody waits."""
    parted = state.divergence
    if parted is None:
        return ""
    odd = ((parted.absent, "never issued"), (parted.differing, "issued others"), (parted.unknown, "not known"))
    return ", ".join(f"{rank_ranges(ranks, 14)} {what}" for ranks, what in odd if ranks) or "nobody: all joined"


GROUP_COLUMNS = Columns[GroupState](
    Col(title="", cell=lambda state: Span(state.mark, "bad" if state.is_stuck else "warn"), width=1),
    Col(
        title="group",
        cell=lambda state: Span(group_short(state.group), "bold" if state.is_stuck else "text"),
        width=lambda screen: screen // 4,
        fits=True,
    ),
    Col(title="size", cell=lambda state: str(len(state.group.ranks)), fits=True, right=True),
    Col(
        title="ranks",
        cell=lambda state: partial(rank_ranges, state.group.ranks),
        width=lambda screen: 10 if screen < 100 else 24,
        fits=True,
        since=70,
    ),
    Col(title="done", cell=lambda state: span_text(state.done), width=12, fits=True),
    Col(
        title="pending",
        cell=lambda state: Span(pending(state), "text" if state.divergence is None else "warn"),
        width=lambda screen: 18 if screen < 100 else 30,
        fits=True,
    ),
    Col(title="missing", cell=lambda state: Span(missing(state), "bad" if state.is_stuck else "text")),
)


def group_detail(state: GroupState, width: int) -> list[Line]:
    """The known facts of a group; `width` is that of the screen."""
    group, reached = state.group, state.reached
    how = "" if group.membership == "config" else ", inferred from who has entries"
    apart = state.behind and reached is not None and reached[0] != reached[1]
    behind = f", {plural(state.behind, 'member')} behind" if apart else ""
    title = f"  {plural(len(group.ranks), 'member')}{how}; issued up to {span_text(reached)}{behind}"
    lines = [
        line(Span(group_label(group), "bold"), title),
        line("ranks ", rank_ranges(group.ranks, max(width * 2, 40))),
    ]
    if state.divergence is not None:
        lines.append(line(Span("parts ", "dim"), parting(state.divergence)))
    if state.cause:
        lines.append(line(Span("follows from ", "dim"), plain(state.cause)))
    if group.has_p2p:
        lines.append(line(Span("has sends and receives, which have numbers of their own", "dim")))
    return lines


class GroupsScreen(TablePage[GroupState]):
    """The groups; dismisses with a filter to the chosen group, and the collective where it diverges."""

    WAYS = (
        Way("p", "place", "go to the collective where it parts, among all lanes"),
        Way("a", "all", "all groups in the lanes: ends the filter"),
    )
    VIEW = "groups"
    COLUMNS = GROUP_COLUMNS
    ENTER = "only this group"
    FIND_HINT = "part of a name or of a description; or a rank"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset, self.analysis = dataset, analysis
        self.states = group_states(dataset, analysis)

    def heading(self) -> list[Line]:
        """The number of groups, of those that are stuck, and the columns."""
        stuck = sum(state.is_stuck for state in self.states)
        blocked = sum(state.divergence is not None for state in self.states) - stuck
        what = f"  {plural(len(self.states), 'group')}, {stuck} stuck (!), {blocked} blocked by them (~)"
        return [line(Span(" groups", "head"), what), self.titles()]

    def rows(self) -> list[GroupState]:
        """The groups, the stuck ones first."""
        return self.states

    def has(self, row: GroupState, text: str) -> bool:
        """Whether a group has `text` in its name or description, or a rank as a member."""
        if text.isdigit():
            return int(text) in row.group.ranks or row.group.name == text
        return text in f"{row.group.name} {row.group.description}".lower()

    def about(self, row: GroupState, width: int) -> list[Line]:
        """The known facts of a group."""
        return group_detail(row, width)

    def choose(self, at: int) -> None:
        """Shows only the members and the operations of the group."""
        self.dismiss(GroupFilter(self.row(at).group.id, self._place(at)))

    def _place(self, at: int) -> Selection | None:
        state = self.row(at)
        return None if state.rank_first is None else jump_to(index_of(self.dataset), state, state.rank_first)

    def action_place(self) -> None:
        """Goes to the collective where the group diverges, among all lanes."""
        place = self._place(self.listing.cursor) if self.listing.count else None
        if place is None:
            self.note("no member of this group is known")
        else:
            self.dismiss(place)

    def action_all(self) -> None:
        """Ends the filter to a group."""
        self.dismiss(GroupFilter(None))


def jump_to(index: OpIndex, state: GroupState, rank: int) -> Selection:
    """The collective where a group diverges, on `rank`; without divergence, the last one that the rank issued."""
    parted = state.divergence
    if parted is not None:
        row = index.position(rank, state.group.id, parted.seq)
        absence = as_absence("never issued" if rank in parted.absent else "unknown") if row is None else None
        return Selection(rank, row=row, group=state.group.id, seq=parted.seq, absence=absence)
    last = index.last_of(rank, state.group.id)
    if last is None:
        return Selection(rank, group=state.group.id)
    return index.selection(last)


def parting(parted: Divergence) -> str:
    """The odd ranks at a divergence, in words."""
    where = f"#{parted.seq} {plain(parted.op)}"
    differ = "differs in" if len(parted.differing) == 1 else "differ in"
    odd = ((parted.absent, "never issued"), (parted.differing, differ), (parted.unknown, "not known in"))
    text = (f"{rank_ranges(ranks, 14)} {what} {where}" for ranks, what in odd if ranks)
    return next(text, f"unfinished, all joined {where}")
