"""The process groups of a job with the progress of their members, and the first divergence of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from rankscope.analysis.model import Analysis, Divergence
from rankscope.schema import Dataset, Group


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
    def is_stuck(self) -> bool:
        """Whether its members part, and not because of another group."""
        return self.divergence is not None and not self.divergence.consequence

    @property
    def mark(self) -> str:
        """One character: `!` stuck, `~` blocked by another group."""
        return "!" if self.is_stuck else " " if self.divergence is None else "~"

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
    cause = next((f.title for f in analysis.findings if f.root_cause), "another group")
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
        last.min().alias("low"),
        last.max().alias("high"),
        (last < last.max()).sum().alias("behind"),
        done.min().alias("done_low"),
        done.max().alias("done_high"),
    )
    return {group: _Front(*rest) for group, *rest in table.iter_rows()}
