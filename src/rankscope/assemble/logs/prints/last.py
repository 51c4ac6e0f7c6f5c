"""Of which group the last line of each rank is, where its operation never went on.

What says it: the line itself, the comparison that failed, which quotes another member, and the barrier that failed,
which says who did not come and with that who did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rankscope.assemble.logs.prints.lockstep import Lockstep, Played
from rankscope.assemble.logs.prints.rows import Print


class Quote(NamedTuple):
    """Another member of its group, as a rank quotes it whose operation does not match."""

    place: int
    seq: int
    call: int


@dataclass(frozen=True)
class Reports:
    """What ranks say of the operation that failed, by rank."""

    quotes: Mapping[int, Sequence[Quote]] = field(default_factory=dict)
    absent: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """Places in its group of those that did not come to its barrier."""


def last_teams(step: Lockstep, played: Mapping[int, Played], reports: Reports) -> dict[int, int] | None:
    """By rank the team whose operation it did not leave; None where any of them cannot be told."""
    last = _Last(step, played)
    for _ in range(len(last.open)):
        before = {rank: set(teams) for rank, teams in last.open.items()}
        for rank, quotes in reports.quotes.items():
            last.quoted(rank, quotes)
        for rank, places in reports.absent.items():
            last.missed(rank, places)
        if before == last.open:
            break
    if any(len(teams) != 1 for teams in last.open.values()):
        return None
    return {rank: next(iter(teams)) for rank, teams in last.open.items()}


class _Last:
    """What the last lines may be of."""

    def __init__(self, step: Lockstep, played: Mapping[int, Played]) -> None:
        self._step = step
        self._heads: dict[int, Print] = {}
        self.open: dict[int, set[int]] = {}
        for rank, own in played.items():
            prints = step.lanes[rank].prints
            if own.at < len(prints):
                self._heads[rank] = prints[own.at]
                self.open[rank] = {meeting.team for meeting in own.open}

    def quoted(self, rank: int, quotes: Sequence[Quote]) -> None:
        """Only a group in which the quoted place stands at what was quoted."""
        for quote in quotes:
            fitting = {team for team in self.open.get(rank, ()) if self._stands(team, quote)}
            if fitting:
                self.open[rank] = fitting
            if len(fitting) == 1:
                self.open[self._step.teams[min(fitting)][quote.place]] = set(fitting)

    def _stands(self, team: int, quote: Quote) -> bool:
        members = self._step.teams[team]
        other = members[quote.place] if quote.place < len(members) else -1
        head = self._heads.get(other)
        return head == (quote.place, quote.seq, quote.call, *head[3:]) and team in self.open[other] if head else False

    def missed(self, rank: int, places: frozenset[int]) -> None:
        """Only a group in which those that did not come can be elsewhere, and all others there."""
        if rank not in self.open:
            return
        fitting = {team for team in self.open[rank] if self._could_miss(team, rank, places)}
        if fitting:
            self.open[rank] = fitting
        if len(fitting) == 1:
            team = min(fitting)
            for place, other in enumerate(self._step.teams[team]):
                if place not in places:
                    self.open[other] = {team}
                elif len(self.open.get(other, ())) > 1:
                    self.open[other].discard(team)

    def _could_miss(self, team: int, rank: int, places: frozenset[int]) -> bool:
        members = self._step.teams[team]
        if max(places) >= len(members):
            return False
        gone = {members[place] for place in places}
        came = all(self._may_be(other, team, rank) for other in set(members) - gone)
        return came and not any(self.open.get(other) == {team} for other in gone if self._may_be(other, team, rank))

    def _may_be(self, other: int, team: int, rank: int) -> bool:
        head = self._heads.get(other)
        return head is not None and team in self.open[other] and head.seq == self._heads[rank].seq
