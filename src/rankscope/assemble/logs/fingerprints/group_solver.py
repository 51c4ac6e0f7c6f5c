"""Solver of the groups of fingerprints: it tries all ways through the lanes, and only one may fit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rankscope.assemble.logs.c10d_claims import not_before
from rankscope.assemble.logs.fingerprints.fingerprint_rows import (
    NO_TIME,
    WORLD_GROUP,
    Fingerprint,
    NamedGroup,
    PrintedLane,
    PrintedLanes,
    Seat,
    by_seat,
    timed_lanes,
)
from rankscope.assemble.logs.fingerprints.lockstep import FailureReports, LaneProgress, Lockstep, last_teams
from rankscope.assemble.logs.log_values import print_time

MOST_RUNS, MOST_LINES = 24, 400_000
"""Most tried ways through the lanes, and most lines in all of them."""


class JobFacts(NamedTuple):
    """Facts about the job, beside the lanes."""

    named: Sequence[NamedGroup] | None
    """All groups, if a log has them."""
    whole: bool
    """Lanes begin at the start of the job."""
    failed: bool
    """The job failed."""
    world: int
    reports: FailureReports
    written: Mapping[int, int | None]
    """The last write time of each log."""


class _Run(NamedTuple):
    step: Lockstep
    played: dict[int, LaneProgress]


class Solution(NamedTuple):
    """Groups, and the group of each line of each rank; None for an unknown one."""

    groups: list[NamedGroup]
    of: dict[int, list[int | None]]


def solve_groups(lanes: PrintedLanes, job: JobFacts) -> Solution | None:
    """The only solution in which all lines fit; None without one, or with several of different groups."""
    for ordered in seat_orders(lanes, job.written):
        options: list[Groups] = (
            group_choices(ordered) if job.named is None else [tuple(own.members for own in job.named)]
        )
        fitting = [runs for groups in options if (runs := _solver_runs(ordered, groups, job))]
        if len(fitting) == 1:
            return _solved(fitting[0], job)
    return None


def _solver_runs(lanes: PrintedLanes, groups: Groups, job: JobFacts) -> list[_Run]:
    """The ways through the lanes up to the last line of each rank; none beyond the limit."""
    todo: list[tuple[int, ...]] = [()]
    found: list[_Run] = []
    most = max(2, min(MOST_RUNS, MOST_LINES // max(1, sum(len(lane.prints) for lane in lanes.values()))))
    for tries in range(most + 1):
        if not todo:
            return found
        guesses = todo.pop()
        if tries == most:
            break
        step = Lockstep(lanes, groups, job.whole, job.failed, guesses)
        played = step.play()
        if all(_to_the_end(lanes, rank, own) for rank, own in played.items()):
            found.append(_Run(step, played))
        for at in range(len(guesses), len(step.choices)):
            done = (*guesses, *(0 for _ in range(len(guesses), at)))
            todo += [(*done, other) for other in range(1, step.choices[at])]
    return []


def _to_the_end(lanes: PrintedLanes, rank: int, played: LaneProgress) -> bool:
    rest = len(lanes[rank].prints) - played.at
    return rest == 0 or (rest == 1 and bool(played.open))


def _solved(runs: Sequence[_Run], job: JobFacts) -> Solution:
    step, played = runs[0]
    groups = _ambiguous_groups(
        job.named if job.named is not None else [_unnamed(own, job.world) for own in _counted_members(step)]
    )
    numbers: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for at, named in enumerate(groups):
        numbers[named.members].append(at)
    agreed = len({_content(run) for run in runs}) == 1
    teams = {rank: list(own.teams) for rank, own in played.items()} if agreed else _common(runs)
    mixed = {team for team, members in enumerate(step.teams) if _is_mixed(step, team, teams[members[0]], members[0])}
    last = {} if mixed or not agreed else last_teams(step, played, job.reports) or {}
    for rank, team in last.items():
        teams[rank][played[rank].at] = team
    of = {rank: _numbered_lines(step, rank, own, mixed, numbers) for rank, own in teams.items()}
    return Solution(groups, of)


def _content(run: _Run) -> frozenset[tuple[int, int, int, int]]:
    """The operations of each rank on each team, without the order of equal lines."""
    lanes = run.step.lanes
    return frozenset(
        (rank, -1 if team is None else team, p.seq, p.call)
        for rank, own in run.played.items() for p, team in zip(lanes[rank].prints, own.teams, strict=True)
    )  # fmt: skip


def _common(runs: Sequence[_Run]) -> dict[int, list[int | None]]:
    """Teams of lines that are equal in all ways, for meetings in which they are equal for all members."""
    step = runs[0].step
    teams: dict[int, list[int | None]] = {}
    for rank in step.lanes:
        every = zip(*(run.played[rank].teams for run in runs), strict=True)
        teams[rank] = [own[0] if len(set(own)) == 1 else None for own in every]
    present = Counter(
        (team, p.seq) for rank, own in teams.items() for team, p in zip(own, step.lanes[rank].prints, strict=True)
    )
    for rank, own in teams.items():
        for at, (team, p) in enumerate(zip(own, step.lanes[rank].prints, strict=True)):
            if team is not None and present[team, p.seq] % len(step.teams[team]):
                own[at] = None
    return teams


def _counted_members(step: Lockstep) -> list[tuple[int, ...]]:
    """Members of each group, repeated for each group of the same members."""
    return [members for team, members in enumerate(step.teams) for _ in range(step.counts[team])]


def _ambiguous_groups(named: Sequence[NamedGroup]) -> list[NamedGroup]:
    """Groups in which those of the same members have the names of all: nothing distinguishes them."""
    alike: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)
    for own in named:
        alike[own.members].append(own.name)
    seen: Counter[tuple[int, ...]] = Counter()
    found: list[NamedGroup] = []
    for own in named:
        names = alike[own.members]
        seen[own.members] += 1
        one = f"{' or '.join(names) if len(set(names)) > 1 else own.ranks} ({seen[own.members]})"
        found.append(own if len(names) == 1 else NamedGroup(one, own.members, own.device))
    return found


def _unnamed(members: tuple[int, ...], world: int) -> NamedGroup:
    return NamedGroup(WORLD_GROUP if members == tuple(range(world)) else "", members)


def _is_mixed(step: Lockstep, team: int, teams: Sequence[int | None], rank: int) -> bool:
    """Whether groups of the same members made different calls under the same number, so that each could be of
    either."""
    prints = step.lanes[rank].prints
    calls = {(p.seq, p.call) for p, own in zip(prints, teams, strict=True) if own == team}
    return len({seq for seq, _ in calls}) < len(calls)


def _numbered_lines(
    step: Lockstep, rank: int, teams: Sequence[int | None], mixed: set[int],
    numbers: Mapping[tuple[int, ...], list[int]],
) -> list[int | None]:  # fmt: skip
    """Groups of a rank's lines: of several with the same members, the second line with a number is the second's."""
    seen: Counter[tuple[int, int]] = Counter()
    found: list[int | None] = []
    for printed, team in zip(step.lanes[rank].prints, teams, strict=True):
        if team is None or team in mixed:
            found.append(None)
            continue
        found.append(numbers[step.teams[team]][seen[team, printed.seq]])
        seen[team, printed.seq] += 1
    return found


# Print order of lines of different ranks.

_FINE_NS = 1_000_000
"""Finest time resolution that orders lines; coarser times order nothing."""


def seat_orders(lanes: PrintedLanes, written: Mapping[int, int | None]) -> Iterator[dict[int, PrintedLane]]:
    """The lanes with times, the most reliable first: the order of lines in one log, their time stamps, no times.

    An order counts only if all ranks fit it: launchers mix lines, and hosts have separate clocks. `written` holds the
    last write time of each log.
    """
    if len({log for lane in lanes.values() for log, _ in lane.events}) == 1:
        yield timed_lanes(lanes, {rank: [event.offset + 1 for _, event in lane.events] for rank, lane in lanes.items()})
    stamped = {rank: list(_stamped(lane, written)) for rank, lane in lanes.items()}
    if all(None not in times for times in stamped.values()):
        yield timed_lanes(lanes, {rank: [t for t in times if t is not None] for rank, times in stamped.items()})
    yield dict(lanes)


def _stamped(lane: PrintedLane, written: Mapping[int, int | None]) -> Iterator[int | None]:
    before: int | None = None
    for log, event in lane.events:
        fine = event.stamp is not None and event.stamp.resolution_ns <= _FINE_NS
        before = not_before(print_time(event.stamp, written[log]) if fine else None, before)
        yield before


# Groups without names, from the first operation of each: all members are in it at the same time.

MOST_CHOICES = 32
"""Most choices of groups."""
MOST_STEPS = 20_000
MOST_PAIRS = 1_000_000
"""Most comparisons of two first lines; they take ten seconds."""
SAMPLE_LINES = 16_000
"""Most lines of all ranks that are checked for the meeting of two seats."""
Groups = tuple[tuple[int, ...], ...]


class _Birth(NamedTuple):
    seat: Seat
    first: Fingerprint


def group_choices(lanes: PrintedLanes) -> list[Groups]:
    """All choices of groups for the first lines, as sorted members; none beyond the limit, or without first lines."""
    seats = by_seat(lanes)
    births = [_Birth(seat, p) for seat, prints in seats.items() for p in prints if p.seq == 0]
    largest = 1 + max((birth.seat.place for birth in births), default=-1)
    if len({birth.seat for birth in births}) < len(seats) or largest * largest // 2 > MOST_PAIRS:
        return []
    search = _GroupSearch(_SharedSeats(seats), births)
    found = list(dict.fromkeys(search.ways()))
    return [] if search.given_up else found


class _SharedSeats:
    """Pairs of seats that can be in one group."""

    def __init__(self, seats: dict[Seat, list[Fingerprint]]) -> None:
        self._counts = {seat: sum(p.seq == 0 for p in prints) for seat, prints in seats.items()}
        most = max(8, SAMPLE_LINES // max(1, len(seats)))
        self._some = {seat: _sample(prints, most) for seat, prints in seats.items()}
        self._at: defaultdict[tuple[Seat, int, int], list[Fingerprint]] = defaultdict(list)
        for seat, prints in seats.items():
            for p in prints:
                self._at[seat, p.seq, p.call].append(p)
        self._known: dict[tuple[Seat, Seat], bool] = {}

    def fits(self, one: Seat, other: Seat) -> bool:
        """Whether all lines of a seat with a single group meet a line of the other seat."""
        key = (one, other)
        if key not in self._known:
            self._known[key] = self._meets(one, other) and self._meets(other, one)
        return self._known[key]

    def _meets(self, one: Seat, other: Seat) -> bool:
        if self._counts[one] != 1:
            return True
        return all(
            any(meeting_seats([p, q]) for q in self._at.get((other, p.seq, p.call), ())) for p in self._some[one]
        )


def _sample(prints: Sequence[Fingerprint], most: int) -> list[Fingerprint]:
    went_on = [p for p in prints if p.left < NO_TIME] or list(prints[:-1])
    return went_on[:: max(1, len(went_on) // most)][:most]


def meeting_seats(prints: Sequence[Fingerprint]) -> bool:
    """Whether there was a moment at which each of them was the last line of its rank."""
    return max(p.came for p in prints) < min(p.left for p in prints)


class _GroupSearch:
    """Depth-first search over the first lines, the highest place first: it is the last member of its group."""

    def __init__(self, company: _SharedSeats, births: Sequence[_Birth]) -> None:
        self._company = company
        self._births = sorted(births, key=lambda b: (-b.seat.place, b.seat.rank, b.first.came))
        self._by_place: defaultdict[int, list[int]] = defaultdict(list)
        for i, birth in enumerate(self._births):
            self._by_place[birth.seat.place].append(i)
        self._used = [False] * len(births)
        self._steps = self._pairs = self._found = 0

    @property
    def given_up(self) -> bool:
        """Whether the search passed the limit."""
        return self._steps >= MOST_STEPS or self._pairs >= MOST_PAIRS or self._found > MOST_CHOICES

    # groups can have thousands of ranks, and there can be as many: no recursion here

    def ways(self) -> Iterator[Groups]:
        """Each choice that uses all first lines."""
        done: list[list[int]] = []
        levels = [self._teams(0)] if self._births else []
        while levels and not self.given_up:
            chosen = next(levels[-1], None)
            if chosen is None:
                levels.pop()
                self._use(done.pop() if done else [], False)
                continue
            done.append(chosen)
            self._use(chosen, True)
            if False in self._used:
                levels.append(self._teams(self._used.index(False)))
                continue
            self._found += 1
            yield tuple(sorted(self._members(own) for own in done))
            self._use(done.pop(), False)

    def _use(self, chosen: Sequence[int], used: bool) -> None:
        for i in chosen:
            self._used[i] = used

    def _members(self, chosen: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._births[i].seat.rank for i in reversed(chosen))

    def _teams(self, begin: int) -> Iterator[list[int]]:
        """Sets of first lines down to place 0 with the one at `begin`, which has the highest place."""
        chosen: list[int] = []
        levels: list[Iterator[int]] = [iter([begin])]
        while levels and not self.given_up:
            i = next(levels[-1], None)
            if i is None:
                levels.pop()
                del chosen[-1:]
                continue
            chosen.append(i)
            self._steps += 1
            if self._births[i].seat.place:
                levels.append(self._next(list(chosen)))
                continue
            yield list(chosen)
            chosen.pop()

    def _next(self, chosen: Sequence[int]) -> Iterator[int]:
        """First lines of the place below that can be of the same group."""
        lowest = self._births[chosen[-1]].seat
        tried: set[tuple[Seat, int, int]] = set()
        for i in self._by_place[lowest.place - 1]:
            birth = self._births[i]
            alike = (birth.seat, birth.first.came, birth.first.call)
            if self._used[i] or birth.seat.rank >= lowest.rank or alike in tried:
                continue
            self._pairs += len(chosen)
            if self.given_up:
                return
            if self._joins(i, chosen):
                tried.add(alike)
                yield i

    def _joins(self, i: int, chosen: Sequence[int]) -> bool:
        others = [self._births[j] for j in chosen]
        birth = self._births[i]
        if any(other.first.call != birth.first.call for other in others):
            return False
        if not meeting_seats([birth.first, *(other.first for other in others)]):
            return False
        return all(self._company.fits(birth.seat, other.seat) for other in others)
