"""The process groups: members, spread of their progress, the first divergence, and its cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from rankscope.analysis.model import Analysis, Divergence
from rankscope.schema import Dataset, Group
from rankscope.text.escaping import plain
from rankscope.text.wording import clipped, plural, rank_ranges
from rankscope.tui.detail.group_labels import group_label, group_short
from rankscope.tui.detail.operation_index import OpIndex, index_of
from rankscope.tui.detail.screens.page import ListPage
from rankscope.tui.detail.selection_facts import as_absence
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from rankscope.tui.styled_text import Line, Span, line, wrapped

_SPREAD = 16
"""Cells for the progress of the members."""


def columns_of(states: Sequence[GroupState], width: int) -> tuple[int, int]:
    """The cells for the names of groups and for their members, no more than they need."""
    names = max((len(group_short(state.group)) for state in states), default=0)
    members = max((len(_ranks(state, 24)) for state in states), default=0)
    return max(5, min(names, width // 4)), max(5, min(members, 14 if width < 100 else 24))


def _ranks(state: GroupState, width: int) -> str:
    count = f" x{len(state.group.ranks)}"
    return rank_ranges(state.group.ranks, width - len(count)) + count


def group_line(state: GroupState, names: int, members: int) -> Line:
    """A group in a line: description and members in so many cells, progress, divergence."""
    parted = state.divergence
    mark = "" if parted is None else "~" if parted.consequence else "!"
    label = clipped(group_short(state.group), names)
    return line(
        Span(f"{mark or ' '} ", "bad" if mark == "!" else "warn"),
        Span(f"{label:<{names}} ", "bold" if mark == "!" else "text"),
        f"{_ranks(state, members):<{members}} ",
        Span(f"{spread(state):<{_SPREAD}} ", "warn" if state.behind else "text"),
        parting(state),
    )


def spread(state: GroupState) -> str:
    """The progress of the members: "#31", "#30-31 (2)" with the number of members behind."""
    if state.reached is None:
        return "-"
    low, high = state.reached
    return f"#{high}" if low == high else f"#{low}-{high} ({state.behind})"


def group_detail(state: GroupState, width: int) -> list[Line]:
    """The known facts of a group, in whole lines."""
    group = state.group
    how = "" if group.membership == "config" else ", inferred from who has entries"
    lines = [
        line(Span(group_label(group), "bold"), f"  {plural(len(group.ranks), 'member')}{how}"),
        line("ranks ", rank_ranges(group.ranks, max(width * 2, 40))),
    ]
    if state.behind and state.reached:
        lines.append(
            line(Span(f"{plural(state.behind, 'member')} behind the others, at #{state.reached[0]} or later", "warn"))
        )
    if state.divergence is not None:
        lines.append(line(Span("parts ", "dim"), parting(state)))
    if state.cause:
        lines.append(line(Span("follows from ", "dim"), plain(state.cause)))
    if group.has_p2p:
        lines.append(line(Span("has sends and receives, which have numbers of their own", "dim")))
    return wrapped(lines, width, 2)


class GroupsScreen(ListPage):
    """The groups; dismisses with the collective where the chosen group diverges, or with its first member."""

    FIND_HINT = "part of a name or of a description; or a rank"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset, self.analysis = dataset, analysis
        self.states = group_states(dataset, analysis)
        self._shown = self.states
        self._widths = (0, (5, 5))

    def heading(self) -> list[Line]:
        """The number of groups, the number that diverge, and the columns."""
        parted = [s.divergence for s in self.states if s.divergence is not None]
        own = sum(not d.consequence for d in parted)
        what = f"  {plural(len(self.states), 'group')}, {own} diverged (!), {len(parted) - own} blocked by it (~)"
        names, members = self._columns(self.size.width)
        columns = f"   {'group':<{names}} {'ranks':<{members}} {'issued (behind)':<{_SPREAD}} first divergence"
        return [line(Span(" groups", "head"), what), line(Span(columns, "dim"))]

    def search(self, text: str) -> int:
        """Lists the groups with `text` in their names, or with a rank."""
        self._shown = [state for state in self.states if _has(state, text)]
        return len(self._shown)

    def entry_line(self, at: int, width: int) -> Line:
        """A group of the list."""
        return group_line(self._shown[at], *self._columns(width))

    def _columns(self, width: int) -> tuple[int, int]:
        if self._widths[0] != width:
            self._widths = (width, columns_of(self.states, width))
        return self._widths[1]

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The known facts of a group."""
        return group_detail(self._shown[at], width)

    def choose(self, at: int) -> None:
        """Goes to the collective where the group diverges."""
        state = self._shown[at]
        if state.rank_first is None:
            self.note("nothing is known of its members")
            return
        self.dismiss(jump_to(index_of(self.dataset), state, state.rank_first))


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


def _has(state: GroupState, wanted: str) -> bool:
    if wanted.isdigit():
        return int(wanted) in state.group.ranks or state.group.name == wanted
    return wanted in f"{state.group.name} {state.group.description}".lower()


# Groups with the progress of their members, for the list of groups.


@dataclass(frozen=True)
class GroupState:
    """A group, the progress of its members, and their first divergence."""

    group: Group
    reached: tuple[int, int] | None
    """Last collective issued by the member furthest behind and by the one furthest ahead; None where not known."""
    behind: int
    """Number of members behind the furthest."""
    divergence: Divergence | None
    cause: str
    """The operation of another group that this group waits for; "" if there is none."""

    @property
    def rank_first(self) -> int | None:
        """The rank to look at first."""
        parted = self.divergence
        if parted is None:
            return self.group.ranks[0] if self.group.ranks else None
        return next(iter((*parted.absent, *parted.differing, *parted.joined, *parted.unknown)), None)


def group_states(dataset: Dataset, analysis: Analysis) -> list[GroupState]:
    """All groups: first those with a divergence of their own, then consequences, then the others by size."""
    reached = _reached(dataset)
    parted = {d.group: d for d in analysis.divergences}
    cause = _root_title(analysis)
    states = []
    for group in dataset.group_list:
        low, high, behind = reached.get(group.id, (None, None, 0))
        divergence = parted.get(group.id)
        consequence = cause if divergence is not None and divergence.consequence else ""
        span = None if low is None or high is None else (low, high)
        states.append(GroupState(group, span, behind, divergence, consequence))
    return sorted(states, key=_order)


def _order(state: GroupState) -> tuple[int, int, int]:
    parted = state.divergence
    kind = 2 if parted is None else 1 if parted.consequence else 0
    since = parted.pending_since_ns or 0 if parted else -len(state.group.ranks)
    return kind, since, state.group.id


def _reached(dataset: Dataset) -> dict[int, tuple[int | None, int | None, int]]:
    """By group: the least and the greatest collective issued last, and how many members are behind the greatest."""
    last = pl.col("last_enqueued")
    table = dataset.frontiers.group_by("group").agg(
        last.min().alias("low"), last.max().alias("high"), (last < last.max()).sum().alias("behind")
    )
    return {group: (low, high, behind) for group, low, high, behind in table.iter_rows()}


def _root_title(analysis: Analysis) -> str:
    return next((f.title for f in analysis.findings if f.root_cause), "another group")


def parting(state: GroupState) -> str:
    """The odd ranks at the first divergence, in words; "" if there is none."""
    parted = state.divergence
    if parted is None:
        return ""
    where = f"#{parted.seq} {plain(parted.op)}"
    differ = "differs in" if len(parted.differing) == 1 else "differ in"
    odd = ((parted.absent, "never issued"), (parted.differing, differ), (parted.unknown, "not known in"))
    for ranks, what in odd:
        if ranks:
            return f"{rank_ranges(ranks, 14)} {what} {where}"
    return f"unfinished, all joined {where}"
