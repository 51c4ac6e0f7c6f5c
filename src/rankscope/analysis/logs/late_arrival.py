"""A rank that had not issued a collective when others gave up waiting in it, whatever it did afterwards.

The counters that ranks print when the watchdog asks for dumps are those of that moment. A rank that wakes up later goes
on, and by the end of its log it has issued what the others waited for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankscope.analysis.logs.lines import CLOCKS_NS, Line, precedes, ranks_of
from rankscope.analysis.model import Culprit, Finding, GroupRef
from rankscope.analysis.wording import ranks_text, wait_text
from rankscope.schema import Dataset

MOST_EVIDENCE = 3


@dataclass(frozen=True)
class _Late:
    """Who was late to one collective."""

    group: int
    seq: int
    late: tuple[Line, ...]
    gave_up: tuple[Line, ...]

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(line.rank for line in self.late if line.rank is not None))


def find_late(lines: Sequence[Line], dataset: Dataset, place: Callable[[int], Culprit]) -> Finding | None:
    """The rank that was late and waited for nobody itself; None unless it is one alone."""
    waits = {(line.rank, line.values.get("seq")) for line in lines if line.kind == "watchdog-timeout"}
    told: defaultdict[int, dict[int, Line]] = defaultdict(dict)
    for line in lines:
        if line.kind == "pg-status" and line.group is not None and line.rank is not None:
            told[line.group].setdefault(line.rank, line)
    found = [
        one for group, first in told.items()
        if not dataset.group_list[group].has_p2p and (one := _in_group(group, first, waits)) is not None
    ]  # fmt: skip
    ranks = {rank for one in found for rank in one.ranks}
    if len(ranks) != 1:
        return None
    named = max((one for one in found if one.late), key=lambda one: len(one.gave_up))
    return _finding(named, len(found) == 1, dataset, place)


def _in_group(group: int, first: dict[int, Line], waits: set[tuple[int | None, int | None]]) -> _Late | None:
    """Who gave up in a group, and who was late; `first` has the first counters that each rank printed of it."""
    gave_up = {rank: line for rank, line in first.items() if (rank, line.values.get("at_work")) in waits}
    if not gave_up:
        return None
    seq: int = min(line.values["at_work"] for line in gave_up.values())
    waited = {rank for rank, _ in waits}
    late = tuple(
        line for rank, line in first.items()
        if rank not in waited and line.values.get("at_work") is None and _before(line, seq)
        and any(precedes(other, line, CLOCKS_NS) for other in gave_up.values())
    )  # fmt: skip
    return _Late(group, seq, late, tuple(line for line in gave_up.values() if line.values["at_work"] == seq))


def _before(line: Line, seq: int) -> bool:
    enqueued = line.values.get("last_enqueued")
    return isinstance(enqueued, int) and enqueued < seq


def _finding(one: _Late, only: bool, dataset: Dataset, place: Callable[[int], Culprit]) -> Finding:
    group, own = dataset.group_list[one.group], one.late[0]
    waiting = ranks_of(one.gave_up)
    name = group.description or group.name
    reasons = () if only else ("it may wait itself in another group, of which it printed nothing",)
    return Finding(
        kind="missing-rank",
        severity="critical",
        title=f"{ranks_text(one.ranks)} had not issued #{one.seq} of {name} when {ranks_text(waiting)} gave up waiting "
        f"in it ({own.place})",
        explanation=(
            f"{wait_text(waiting)} in #{one.seq} until the timeout. After that {ranks_text(one.ranks)} still said that "
            f"the last it had issued was #{own.values['last_enqueued']}. What it did later came too late."
        ),
        root_cause=True,
        culprit_ranks=one.ranks,
        culprits=tuple(map(place, one.ranks)),
        waiting_ranks=waiting,
        blast_radius=len(waiting),
        confidence="high" if only else "medium",
        confidence_reasons=reasons,
        group=GroupRef(group.name, group.description, group.ranks, key=group.id),
        seq=one.seq,
        evidence=(own.evidence(), *(line.evidence() for line in one.gave_up[:MOST_EVIDENCE])),
        next_steps=(
            f"Look at what {ranks_text(one.ranks)} did between #{own.values['last_enqueued']} and #{one.seq}: its log, "
            "its stack, the time that loading or saving took.",
        ),
    )
