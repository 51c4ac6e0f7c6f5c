"""Groups with how far apart their members are, for the list of groups."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rankscope.analysis.model import Analysis, Divergence
from rankscope.schema import Dataset, Group
from rankscope.tui.detail.format import plain, rank_ranges


@dataclass(frozen=True)
class GroupState:
    """A group, where its members stand, and where they first part."""

    group: Group
    reached: tuple[int, int] | None
    """Last collective issued by the member furthest behind and by the one furthest ahead; None where not known."""
    behind: int
    """Members that are not as far as the furthest."""
    divergence: Divergence | None
    cause: str
    """What the group waits for, where that is another group's fault; "" otherwise."""

    @property
    def rank_first(self) -> int | None:
        """The rank to look at first."""
        parted = self.divergence
        if parted is None:
            return self.group.ranks[0] if self.group.ranks else None
        return next(iter((*parted.absent, *parted.differing, *parted.joined, *parted.unknown)), None)


def group_states(dataset: Dataset, analysis: Analysis) -> list[GroupState]:
    """All groups: those that part by themselves first, then consequences, then the others by size."""
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
    """Which ranks are the odd ones where the members first part, in words; "" where they do not."""
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
