"""Replicas that run the same program; their operations decide where a group cannot decide by itself.

Ranks at the same pipeline stage (the same index in every group that carries sends and receives) run the same code on
other data. Groups of one description and one stage therefore see the same collective at the same sequence number, and a
group of two that disagrees can be judged by the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from rankscope.analysis.facts import Facts
from rankscope.analysis.instances import Instance, InstanceMember, calls_at
from rankscope.analysis.presence import Absence
from rankscope.schema import Group

LONG_AGO, NEVER = -1.0, float("inf")
"""Positions of a step that a rank has finished, or never came to."""


class Signature(NamedTuple):
    """Properties that must agree between members; None: not comparable."""

    op: str
    elements: int | None
    dtype: str | None

    def fits(self, other: Signature) -> bool:
        """Whether both can meet in one collective."""
        return self.op == other.op and all(
            a is None or b is None or a == b for a, b in zip(self[1:], other[1:], strict=True)
        )

    def __str__(self) -> str:
        parts = [self.op]
        if self.elements is not None:
            parts.append(f"of {self.elements:,} elements")
        if self.dtype:
            parts.append(self.dtype_text)
        return " ".join(parts)

    @property
    def dtype_text(self) -> str:
        """The types without the marks of their list."""
        return (self.dtype or "").strip('[]"').replace('"', "")


def signature(entry: InstanceMember) -> Signature:
    """The signature of one member's operation."""
    return Signature(entry.op, entry.elements, entry.dtype)


@dataclass(frozen=True)
class ReplicaCohorts:
    """Finds the replicas of a group and looks up their operations."""

    facts: Facts
    _known: dict[tuple[str, int], dict[int, float]] = field(default_factory=dict)
    _arrays: dict[tuple[str, int], npt.NDArray[np.float64]] = field(default_factory=dict)

    @cached_property
    def stages(self) -> dict[int, tuple[tuple[str, int], ...]]:
        """For each rank its index in every group with point-to-point operations."""
        out: dict[int, list[tuple[str, int]]] = {}
        for group in self.facts.groups:
            if group.has_p2p:
                for index, rank in enumerate(group.ranks):
                    out.setdefault(rank, []).append((group.description, index))
        return {rank: tuple(sorted(places)) for rank, places in out.items()}

    def stage_of(self, rank: int) -> tuple[tuple[str, int], ...]:
        """The place of a rank in the pipeline; () without one."""
        return self.stages.get(rank, ())

    def replicas(self, group: Group) -> list[Group]:
        """Other groups of the same description, size and stages."""
        stages = [self.stage_of(rank) for rank in group.ranks]
        return [
            other
            for other in self.facts.groups
            if other.id != group.id
            and other.description == group.description
            and group.description
            and len(other.ranks) == len(group.ranks)
            and [self.stage_of(r) for r in other.ranks] == stages
        ]

    def expected(self, instance: Instance) -> tuple[Signature, int] | None:
        """The signature of the replicas at this place, and the number that agree; None if they do not agree."""
        replicas = self.replicas(self.facts.groups[instance.group])
        keys = pl.DataFrame(
            {"group": [g.id for g in replicas], "seq": [instance.seq] * len(replicas)},
            schema={"group": pl.UInt32, "seq": pl.Int64},
        )
        votes = Counter[Signature]()
        for other in calls_at(self.facts, keys).values():
            seen = {signature(e) for e in other.entries.values() if e.op}
            if len(seen) == 1:
                votes.update(seen)
        ranked = votes.most_common(2)
        if not ranked or (len(ranked) > 1 and ranked[0][1] == ranked[1][1]):
            return None
        return ranked[0]

    def ahead(self, rank: int) -> str | None:
        """Groups in which a rank issued more than all others of the same description; None if there are none.

        Of only two ranks, the one that is behind may as well be the one that took another path.
        """
        for (label, own), seq in self._issued.items():
            others = [s for (other, r), s in self._issued.items() if other == label and r != rank]
            if own == rank and len(others) > 1 and seq > max(others):
                return f"#{seq} of {label}"
        return None

    @cached_property
    def _issued(self) -> dict[tuple[str, int], int]:
        """By (label of the group, rank) the last collective issued."""
        out: dict[tuple[str, int], int] = {}
        for (rank, group), frontier in sorted(self.facts.presence.frontiers.items()):
            if frontier.enqueued is not None:
                key = (self.facts.label(group), rank)
                out[key] = max(out.get(key, 0), frontier.enqueued)
        return out

    def orders(self, a: Instance, b: Instance) -> dict[int, bool]:
        """For each rank that is at one of two steps or past it, replicas included: whether it entered `a` first."""
        first, second = self._positions(a), self._positions(b)
        return {rank: first[rank] < second[rank] for rank in first if rank in second and first[rank] != second[rank]}

    def precedes(self, a: Instance, b: Instance) -> bool:
        """Whether most of the ranks that did both steps did `a` first."""
        first, second = self._array(a), self._array(b)
        both = np.isfinite(first) & np.isfinite(second) & (first != second)
        return bool(2 * np.count_nonzero(first[both] < second[both]) > np.count_nonzero(both))

    def look_up(self, instances: Iterable[Instance]) -> None:
        """Finds the rows of several steps at once: one pass over all calls serves any number of steps."""
        wanted = {self._step(instance) for instance in instances} - set(self._known)
        groups = [(g.id, self.facts.label(g.id)) for g in self.facts.groups]
        places = [(group, seq) for group, label in groups for name, seq in wanted if name == label]
        table = pl.DataFrame(places, schema={"group": pl.UInt32, "seq": pl.Int64}, orient="row")
        by_place: dict[tuple[int, int], dict[int, float]] = {}
        rows = self.facts.calls_at(table)
        for group, seq, rank, row in rows.select("group", "seq", "rank", "row").iter_rows():
            by_place.setdefault((group, seq), {})[rank] = row
        for step in wanted:
            of_step = [(group, by_place.get((group, step[1]), {})) for group, label in groups if label == step[0]]
            self._known[step] = self._complete(step[1], of_step)

    def _step(self, instance: Instance) -> tuple[str, int]:
        return self.facts.label(instance.group), instance.seq

    def _positions(self, instance: Instance) -> dict[int, float]:
        """For each rank of this group and its replicas its row of a step; LONG_AGO or NEVER if that is certain."""
        step = self._step(instance)
        if step not in self._known:
            self.look_up([instance])
        return self._known[step]

    def _array(self, instance: Instance) -> npt.NDArray[np.float64]:
        """The positions of a step by rank; NEVER also for unknown ranks."""
        known, step = self._positions(instance), self._step(instance)
        if step not in self._arrays:
            out = np.full(self._ranks, NEVER)
            out[list(known)] = list(known.values())
            self._arrays[step] = out
        return self._arrays[step]

    @cached_property
    def _ranks(self) -> int:
        """One more than the highest rank, of groups and of operations: those of another job name no group with it."""
        acting = self.facts.dataset.ops["rank"].max()
        members = (rank for group in self.facts.groups for rank in group.ranks)
        return 1 + max(*members, acting if isinstance(acting, int) else -1, -1)

    def _complete(self, seq: int, issued: list[tuple[int, dict[int, float]]]) -> dict[int, float]:
        """The rows of one step by rank, completed by certain positions of ranks without a row."""
        out = {rank: row for _, rows in issued for rank, row in rows.items()}
        for group, _ in issued:
            for rank, why in self.facts.presence.absences(group, seq, out).items():
                if why is Absence.NEVER_ISSUED:
                    out[rank] = NEVER
                elif why in (Absence.FILTERED, Absence.OVERWRITTEN):
                    out[rank] = LONG_AGO
        return out
