"""Assignment of fingerprints to groups, by a replay of the job.

With DETAIL every collective begins with a barrier of its group and a comparison: no member prints its next line before
all members have printed this one. So an operation is the line that all members of a group have reached, and then all of
them go on. A line of only one possible group decides for the lines that it meets; equal lines are interchangeable. The
last line of a rank, whose operation never went on, is decided by the reports of ranks about it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rankscope.features.logs.read.log_record import Event

_CALL = ("op", "shape", "dtype", "device")


class Seat(NamedTuple):
    """A rank, and its rank within a group: a line has no other fact about the group."""

    rank: int
    place: int


class Fingerprint(NamedTuple):
    """One fingerprint."""

    place: int
    """Rank in the group."""
    seq: int
    call: int
    """Number of operation, shape, type and device: all members of a group must call the same."""


@dataclass
class PrintedLane:
    """The printed fingerprints of one rank."""

    rank: int
    events: list[tuple[int, Event]] = field(default_factory=list)
    """Pairs of log number and event."""
    prints: list[Fingerprint] = field(default_factory=list)


PrintedLanes = Mapping[int, PrintedLane]
"""Lanes by global rank."""


class CallNumbers:
    """Numbers of calls."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, ...], int] = {}

    def number(self, called: Iterable[Any]) -> int:
        """The number of a call: operation, shape, type and device."""
        return self._numbers.setdefault(tuple(map(str, called)), len(self._numbers))


def lanes_of(events: Iterable[tuple[int, int, Event]], calls: CallNumbers) -> dict[int, PrintedLane]:
    """Lanes from (log, global rank, fingerprint), for each rank in the order of its log, without times."""
    lanes: dict[int, PrintedLane] = {}
    for log, rank, event in events:
        values = event.values
        lane = lanes.setdefault(rank, PrintedLane(rank))
        lane.events.append((log, event))
        call = calls.number(values.get(name) for name in _CALL)
        lane.prints.append(Fingerprint(values["rank_in_group"], values["seq"], call))
    return lanes


class OperationSlot(NamedTuple):
    """A possible operation of a group, which lines may belong to."""

    team: int
    """Index of the members."""
    seq: int
    call: int


class LaneProgress(NamedTuple):
    """Progress of the replay on one rank."""

    teams: list[int | None]
    """The members for each of its lines; None from the first unmet line on."""
    at: int
    """The first unmet line."""
    open: list[OperationSlot]
    """Possible operations of that line."""


class Lockstep:
    """Replay of the lanes. Groups of the same members are one team with several counters: their lines are alike.

    It is a Python loop over operations, because a line depends on all earlier lines of other ranks.
    """

    def __init__(self, lanes: PrintedLanes, groups: Sequence[tuple[int, ...]], whole: bool, failed: bool) -> None:
        """`whole`: lanes begin at the start of the job; `failed`: the job failed."""
        self.lanes, self._whole, self._failed = lanes, whole, failed
        counted = Counter(groups)
        self.teams = list(counted)
        self.counts = list(counted.values())
        self._counters: list[list[int | None]] = [[0 if whole else None] * counted[own] for own in self.teams]
        self._seats: defaultdict[Seat, list[int]] = defaultdict(list)
        for team, members in enumerate(self.teams):
            for place, rank in enumerate(members):
                self._seats[Seat(rank, place)].append(team)
        self._at = dict.fromkeys(lanes, 0)
        self._open: dict[int, list[OperationSlot]] = {rank: [] for rank in lanes}
        self._met: dict[int, list[int | None]] = {rank: [None] * len(lane.prints) for rank, lane in lanes.items()}
        self._present: Counter[OperationSlot] = Counter()
        self._sure: defaultdict[OperationSlot, set[int]] = defaultdict(set)
        self._sooner: list[OperationSlot] = []
        self._later: dict[OperationSlot, None] = {}
        self._before: dict[int, dict[int, int]] = {}
        self._left = Counter((Seat(rank, p.place), p.seq, p.call) for rank, lane in lanes.items() for p in lane.prints)
        self._calls = Counter((seat, seq) for seat, seq, _ in self._left)
        self._alike: defaultdict[tuple[Seat, int, int], list[int]] = defaultdict(list)
        for rank, lane in lanes.items():
            for at, p in enumerate(lane.prints):
                self._alike[Seat(rank, p.place), p.seq, p.call].append(at)
        self._known = self._sole_calls()

    def play(self) -> dict[int, LaneProgress]:
        """Replays until no rank can go on."""
        for rank in self.lanes:
            self._arrive(rank)
        while (meeting := self._next()) is not None:
            self._meet(meeting)
        return {rank: LaneProgress(self._met[rank], self._at[rank], self._open[rank]) for rank in self.lanes}

    def _since(self, team: int, rank: int) -> int:
        """The number of lines that the rank printed since the last meeting of the team."""
        return self._at[rank] - self._before.get(team, {}).get(rank, 0)

    def _sole_calls(self) -> dict[tuple[int, int], set[int]]:
        """The calls of teams at each sequence number, from seats that are in no other team."""
        known: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        for seat, seq, call in self._left:
            teams = self._seats.get(seat, ())
            if len(teams) == 1:
                known[teams[0], seq].add(call)
        return dict(known)

    def _head(self, rank: int) -> Fingerprint:
        return self.lanes[rank].prints[self._at[rank]]

    def _arrive(self, rank: int) -> None:
        """Finds the possible operations of the next line of a rank."""
        prints = self.lanes[rank].prints
        self._open[rank] = []
        while self._at[rank] < len(prints):
            found = self._fitting(rank, self._head(rank))
            if self._whole or not found or not all(map(self._cut_off, found)):
                break
            self._at[rank] += 1
        else:
            return
        self._open[rank] = found
        for meeting in found:
            self._present[meeting] += 1
            if len(found) == 1:
                self._sure[meeting].add(rank)
            if self._present[meeting] == len(self.teams[meeting.team]):
                if self._sure.get(meeting):
                    self._sooner.append(meeting)
                else:
                    self._later[meeting] = None

    def _fitting(self, rank: int, head: Fingerprint) -> list[OperationSlot]:
        """Meetings with the next number of their team; else with a later one, because sends and receives count too."""
        teams = self._seats.get(Seat(rank, head.place), [])
        next_ = [team for team in teams if any(count in (None, head.seq) for count in self._counters[team])]
        teams = next_ or [t for t in teams if any(c is not None and c < head.seq for c in self._counters[t])]
        return [OperationSlot(team, head.seq, head.call) for team in teams]

    def _cut_off(self, meeting: OperationSlot) -> bool:
        """Whether a line is at the cut beginning of its lane, without the other members' lines."""
        started = any(count is not None for count in self._counters[meeting.team])
        seats = (Seat(rank, place) for place, rank in enumerate(self.teams[meeting.team]))
        return not started and not all((seat, meeting.seq, meeting.call) in self._left for seat in seats)

    def _complete(self, meeting: OperationSlot) -> bool:
        return self._present.get(meeting, 0) == len(self.teams[meeting.team])

    def _next(self) -> OperationSlot | None:
        """A complete meeting: first one that is the only option of a line, then one that each of its lines could
        miss."""
        while self._sooner:
            meeting = self._sooner.pop()
            if not self._complete(meeting):
                continue
            other = self._instead(meeting)
            if other is not None:
                return other
            if self._believable(meeting):
                return meeting
        for meeting in [m for m in self._later if not self._complete(m)]:
            del self._later[meeting]
        return next(filter(self._harmless, self._later), None) or self._only()

    def _only(self) -> OperationSlot | None:
        """The only complete meeting: a member went on, so it took place."""
        found = {meeting for rank in self.lanes for meeting in self._open[rank] if self._complete(meeting)}
        went_on = [m for m in found if not (self._failed and all(map(self._is_last, self.teams[m.team])))]
        return went_on[0] if len(went_on) == 1 else None

    def _instead(self, meeting: OperationSlot) -> OperationSlot | None:
        """Another meeting with equal lines, whose members seem to be one step behind."""
        sure = self._sure[meeting]
        most = max(self._since(meeting.team, rank) for rank in sure)
        for rank in self.teams[meeting.team]:
            if rank in sure or self._since(meeting.team, rank) >= most:
                continue
            for other in self._open[rank]:
                if other != meeting and self._complete(other) and self._harmless(other) and self._again(other, meeting):
                    return other
        return None

    def _again(self, other: OperationSlot, meeting: OperationSlot) -> bool:
        """Whether ranks that first meet elsewhere have a further equal line for this meeting."""
        return all(map(self._repeats, set(self.teams[other.team]) & set(self.teams[meeting.team])))

    def _repeats(self, rank: int) -> bool:
        """Whether a later line of a rank equals its next one."""
        head, at = self._head(rank), self._at[rank]
        return self._alike[self._seat(rank), head.seq, head.call][-1] > at

    def _seat(self, rank: int) -> Seat:
        return Seat(rank, self._head(rank).place)

    def _is_last(self, rank: int) -> bool:
        return self._at[rank] == len(self.lanes[rank].prints) - 1

    def _believable(self, meeting: OperationSlot) -> bool:
        """Whether all lines can meet, and none of them waits elsewhere in an operation that looks the same."""
        members, sure = self.teams[meeting.team], self._sure.get(meeting, set())
        return not self._failed or len(sure) == len(members) or not all(map(self._is_last, sure))

    def _harmless(self, meeting: OperationSlot) -> bool:
        """Whether a meeting that each of its lines could miss puts no line to a wrong group."""
        members = self.teams[meeting.team]
        if self._failed and any(map(self._is_last, members)):
            return False
        for rank in members:
            if self._calls[self._seat(rank), meeting.seq] > 1:
                others = [other for other in self._open[rank] if other != meeting]
                if not all(self._excluded(other) for other in others):
                    return False
        return True

    def _excluded(self, meeting: OperationSlot) -> bool:
        known = self._known.get((meeting.team, meeting.seq))
        return known is not None and meeting.call not in known

    def _meet(self, meeting: OperationSlot) -> None:
        members = self.teams[meeting.team]
        counters = self._counters[meeting.team]
        fitting = [i for i, c in enumerate(counters) if c in (None, meeting.seq)]
        earlier = [i for i, c in enumerate(counters) if c is not None and c < meeting.seq]
        counters[(fitting or earlier)[0]] = meeting.seq + 1
        self._before[meeting.team] = {rank: self._at[rank] for rank in members}
        for rank in members:
            self._depart(rank, meeting.team)
        for rank in members:
            self._arrive(rank)

    def _depart(self, rank: int, team: int) -> None:
        head, seat = self._head(rank), self._seat(rank)
        for meeting in self._open[rank]:
            self._present[meeting] -= 1
            self._sure[meeting].discard(rank)
            if not self._present[meeting]:
                del self._present[meeting]
                self._sure.pop(meeting, None)
        self._met[rank][self._at[rank]] = team
        key = (seat, head.seq, head.call)
        self._left[key] -= 1
        if not self._left[key]:
            self._calls[seat, head.seq] -= 1
        self._at[rank] += 1


class PeerQuote(NamedTuple):
    """Another member of the group, as quoted by a rank whose operation does not match."""

    place: int
    seq: int
    call: int


@dataclass(frozen=True)
class FailureReports:
    """Reports of ranks about the failed operation, by rank."""

    quotes: Mapping[int, Sequence[PeerQuote]] = field(default_factory=dict)
    absent: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """Places in its group of members that did not come to its barrier."""


def last_teams(step: Lockstep, played: Mapping[int, LaneProgress], reports: FailureReports) -> dict[int, int] | None:
    """By rank, the team of the operation that it did not leave; None if any is unknown."""
    last = _LastLines(step, played)
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


class _LastLines:
    """Possible teams of the last lines."""

    def __init__(self, step: Lockstep, played: Mapping[int, LaneProgress]) -> None:
        self._step = step
        self._heads: dict[int, Fingerprint] = {}
        self.open: dict[int, set[int]] = {}
        for rank, own in played.items():
            prints = step.lanes[rank].prints
            if own.at < len(prints):
                self._heads[rank] = prints[own.at]
                self.open[rank] = {meeting.team for meeting in own.open}

    def quoted(self, rank: int, quotes: Sequence[PeerQuote]) -> None:
        """Keeps only groups in which the quoted place is at the quoted operation."""
        for quote in quotes:
            fitting = {team for team in self.open.get(rank, ()) if self._stands(team, quote)}
            if fitting:
                self.open[rank] = fitting
            if len(fitting) == 1:
                self.open[self._step.teams[min(fitting)][quote.place]] = set(fitting)

    def _stands(self, team: int, quote: PeerQuote) -> bool:
        members = self._step.teams[team]
        other = members[quote.place] if quote.place < len(members) else -1
        head = self._heads.get(other)
        return head is not None and tuple(head) == tuple(quote) and team in self.open[other]

    def missed(self, rank: int, places: frozenset[int]) -> None:
        """Keeps only groups in which the absent members can be elsewhere, and all others there."""
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
