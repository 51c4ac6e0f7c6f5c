"""The process groups: members, spread of their progress, the first divergence, and its cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import polars as pl
from textual.binding import Binding, BindingType

from rankscope.analysis.model import Analysis, Divergence
from rankscope.schema import Dataset, Group
from rankscope.text.escaping import plain
from rankscope.text.wording import clipped, plural, rank_ranges
from rankscope.tui.detail.group_labels import group_label, group_short
from rankscope.tui.detail.operation_index import OpIndex, index_of
from rankscope.tui.detail.screens.page import ListPage
from rankscope.tui.detail.selection_facts import as_absence
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import GroupFilter, Selection
from rankscope.tui.styled_text import Line, Span, line, wrapped

NARROW = 70
"""Columns below which the members are named only in the text below the list."""


MEASURED = 200
"""Groups whose texts give the widths of the columns: the first ones are those that matter."""


class Columns(NamedTuple):
    """Cells of the columns of the list, no more than they need."""

    group: int
    size: int
    ranks: int
    """0 leaves the column out."""
    done: int
    pending: int

    def row(self, texts: Sequence[str]) -> list[str]:
        """The texts of the columns, filled up with blanks."""
        shown = [clipped(texts[0], self.group), texts[1].rjust(self.size), *texts[2:]]
        pairs = zip(shown, self, strict=True)
        return [f"{clipped(text, width):<{width}} " for text, width in pairs if width]


def columns_of(states: Sequence[GroupState], width: int) -> Columns:
    """The cells of the columns for a screen of `width` cells."""
    rows = map(_texts, states[:MEASURED])
    longest = [max((len(text) for text in column), default=0) for column in zip(*rows, strict=True)]
    group, size, ranks, done, pending = longest or [0] * 5
    return Columns(
        max(5, min(group, width // 4)),
        max(4, size),
        0 if width < NARROW else max(5, min(ranks, 10 if width < 100 else 24)),
        max(4, min(done, 12)),
        max(7, min(pending, 18 if width < 100 else 30)),
    )


def _texts(state: GroupState) -> tuple[str, str, str, str, str]:
    """The texts of all columns but the last."""
    group = state.group
    return (
        group_short(group),
        str(len(group.ranks)),
        rank_ranges(group.ranks, 24),
        span_text(state.done),
        pending(state),
    )


def group_line(state: GroupState, columns: Columns) -> Line:
    """A group in a line: name, size, members, last finished and pending collective, and who is missing."""
    parted = state.divergence
    mark = "" if parted is None else "~" if parted.consequence else "!"
    name, size, ranks, done, waits = _texts(state)
    ranks = rank_ranges(state.group.ranks, columns.ranks) if columns.ranks else ""
    cells = columns.row((name, size, ranks, done, waits))
    return line(
        Span(f"{mark or ' '} ", "bad" if mark == "!" else "warn"),
        Span(cells[0], "bold" if mark == "!" else "text"),
        *cells[1:-1],
        Span(cells[-1], "warn" if parted is not None else "text"),
        Span(missing(state), "bad" if mark == "!" else "text"),
    )


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
    found = [f"{rank_ranges(ranks, 14)} {what}" for ranks, what in odd if ranks]
    return ", ".join(found) or "nobody: all joined"


def spread(state: GroupState) -> str:
    """The progress of the members: "#31", "#30-31"."""
    if state.reached is None:
        return "-"
    low, high = state.reached
    return f"#{high}" if low == high else f"#{low}-{high}"


def _behind(state: GroupState) -> str:
    if not state.behind or state.reached is None or state.reached[0] == state.reached[1]:
        return ""
    return f", {plural(state.behind, 'member')} behind"


def group_detail(state: GroupState, width: int) -> list[Line]:
    """The known facts of a group, in whole lines."""
    group = state.group
    how = "" if group.membership == "config" else ", inferred from who has entries"
    title = f"  {plural(len(group.ranks), 'member')}{how}; issued up to {spread(state)}{_behind(state)}"
    lines = [
        line(Span(group_label(group), "bold"), title),
        line("ranks ", rank_ranges(group.ranks, max(width * 2, 40))),
    ]
    if state.divergence is not None:
        lines.append(line(Span("parts ", "dim"), parting(state)))
    if state.cause:
        lines.append(line(Span("follows from ", "dim"), plain(state.cause)))
    if group.has_p2p:
        lines.append(line(Span("has sends and receives, which have numbers of their own", "dim")))
    return wrapped(lines, width, 2)


class GroupsScreen(ListPage):
    """The groups; dismisses with a filter to the chosen group, and the collective where it diverges."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "place", "go there"),
        Binding("a", "all", "all groups"),
    ]
    VIEW = "groups"
    ENTER = "only this group"
    FIND_HINT = "part of a name or of a description; or a rank"

    def __init__(self, dataset: Dataset, analysis: Analysis, options: ViewOptions | None = None) -> None:
        super().__init__(options or ViewOptions())
        self.dataset, self.analysis = dataset, analysis
        self.states = group_states(dataset, analysis)
        self._shown = self.states
        self._columns = (0, columns_of((), 80))

    @classmethod
    def lacks_data(cls, dataset: Dataset, analysis: Analysis) -> bool:
        """Whether no group is known."""
        del analysis
        return not dataset.group_list

    def heading(self) -> list[Line]:
        """The number of groups, of those that are stuck, and the columns."""
        parted = [s.divergence for s in self.states if s.divergence is not None]
        own = sum(not d.consequence for d in parted)
        what = f"  {plural(len(self.states), 'group')}, {own} stuck (!), {len(parted) - own} blocked by them (~)"
        titles = self._columns_for(self.size.width).row(("group", "size", "ranks", "done", "pending"))
        return [line(Span(" groups", "head"), what), line(Span(f"   {''.join(titles)}missing", "dim"))]

    def search(self, text: str) -> int:
        """Lists the groups with `text` in their names, or with a rank."""
        self._shown = [state for state in self.states if _has(state, text)]
        return len(self._shown)

    def entry_line(self, at: int, width: int) -> Line:
        """A group of the list."""
        return group_line(self._shown[at], self._columns_for(width))

    def _columns_for(self, width: int) -> Columns:
        if self._columns[0] != width:
            self._columns = (width, columns_of(self.states, width))
        return self._columns[1]

    def entry_text(self, at: int, width: int) -> list[Line]:
        """The known facts of a group."""
        return group_detail(self._shown[at], width)

    def choose(self, at: int) -> None:
        """Shows only the members and the operations of the group."""
        self.dismiss(GroupFilter(self._shown[at].group.id, self._place(at)))

    def _place(self, at: int) -> Selection | None:
        state = self._shown[at]
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
    done: tuple[int, int] | None = None
    """Last collective finished by the member furthest behind and by the one furthest ahead; None where not known."""

    @property
    def rank_first(self) -> int | None:
        """The rank to look at first."""
        parted = self.divergence
        if parted is None:
            return self.group.ranks[0] if self.group.ranks else None
        return next(iter((*parted.absent, *parted.differing, *parted.joined, *parted.unknown)), None)


def group_states(dataset: Dataset, analysis: Analysis) -> list[GroupState]:
    """All groups: first those with a divergence of their own, then consequences, then the others by size."""
    fronts = _fronts(dataset)
    parted = {d.group: d for d in analysis.divergences}
    cause = _root_title(analysis)
    states = []
    for group in dataset.group_list:
        front = fronts.get(group.id, _NO_FRONT)
        divergence = parted.get(group.id)
        consequence = cause if divergence is not None and divergence.consequence else ""
        issued, done = _span(front.low, front.high), _span(front.done_low, front.done_high)
        states.append(GroupState(group, issued, front.behind, divergence, consequence, done))
    return sorted(states, key=_order)


def _span(low: int | None, high: int | None) -> tuple[int, int] | None:
    return None if low is None or high is None else (low, high)


def _order(state: GroupState) -> tuple[int, int, int]:
    parted = state.divergence
    kind = 2 if parted is None else 1 if parted.consequence else 0
    since = parted.pending_since_ns or 0 if parted else -len(state.group.ranks)
    return kind, since, state.group.id


class _Front(NamedTuple):
    """The least and the greatest collective that members of a group issued and finished last."""

    low: int | None
    high: int | None
    behind: int
    done_low: int | None
    done_high: int | None


_NO_FRONT = _Front(None, None, 0, None, None)


def _fronts(dataset: Dataset) -> dict[int, _Front]:
    last, done = pl.col("last_enqueued"), pl.col("last_completed")
    table = dataset.frontiers.group_by("group").agg(
        last.min().alias("low"), last.max().alias("high"), (last < last.max()).sum().alias("behind"),
        done.min().alias("done_low"), done.max().alias("done_high"),
    )  # fmt: skip
    return {group: _Front(*rest) for group, *rest in table.iter_rows()}


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
