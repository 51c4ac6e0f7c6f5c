"""Fingerprints of all logs of a job in lanes of their groups, as claims beside those of other lines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from rankscope.features.logs.read.bounded_rows import left_out
from rankscope.features.logs.read.log_record import Event
from rankscope.features.logs.rows.c10d_claims import Claims, printing_rank
from rankscope.features.logs.rows.fingerprint_rows import (
    WORLD_GROUP,
    CallNumbers,
    Fingerprint,
    NamedGroup,
    PrintedEvent,
    PrintedLanes,
    add_fingerprints,
    distinct_lines,
    events_of,
    fingerprint_row,
    lanes_of,
    named_groups,
    speakers,
)
from rankscope.features.logs.rows.lockstep import FailureReports, LaneProgress, Lockstep, PeerQuote, last_teams
from rankscope.features.logs.rows.log_groups import DEFAULT_GROUP, LogGroups
from rankscope.features.logs.rows.log_messages import failed_ranks
from rankscope.features.logs.rows.log_processes import LogScene, int64_or_none, valid_rank
from rankscope.kinds.event_kinds import EVENTS


def place_fingerprints(scene: LogScene, groups: LogGroups, claims: Claims) -> None:
    """Adds the content of fingerprints to `claims` and `groups`, and the number of those without a known group to
    `scene`."""
    named = named_groups(event for _, event in events_of(scene, "pg-seat"))
    cut = any(left_out("fingerprint") in log.content.counts for log in scene.logs)
    alone = lanes_of_all(scene, cut) if named is None else None
    if alone is not None:
        place_world_lanes(scene, groups, claims, alone)
        place_mismatches(scene, groups, claims)
    else:
        _SeveralGroups(scene, groups, claims).place(named or (), not cut)


class _SeveralGroups:
    """Fingerprints of a job with several groups."""

    def __init__(self, scene: LogScene, groups: LogGroups, claims: Claims) -> None:
        self._scene, self._groups, self._claims = scene, groups, claims
        prints = distinct_lines(told for told in speakers(scene, "fingerprint") if _is_sound(told.event))
        self._calls = CallNumbers()
        self._lanes = lanes_of(((told.log, told.rank, told.event) for told in prints), self._calls)
        self._said = speakers(scene, *(kind.name for kind in EVENTS.values() if kind.of_failed_call))

    def place(self, named: Sequence[NamedGroup], whole_lanes: bool) -> None:
        """Puts all lines with a known group to it, and notes the number of the others."""
        scene = self._scene
        solved = self._solved(named, whole_lanes)
        if solved is None:
            scene.mixed_prints.update(Counter(number for number, _ in events_of(scene, "fingerprint")))
            return
        of_group: defaultdict[tuple[int, int], list[tuple[int, Event]]] = defaultdict(list)
        left: Counter[int] = Counter()
        for rank, own in solved.of.items():
            for at, event in zip(own, self._lanes[rank].events, strict=True):
                if at is None:
                    left[event[0]] += 1
                else:
                    of_group[rank, at].append(event)
        scene.mixed_prints.update(left)
        rows = {at: self._row_of(solved.groups[at]) for at in sorted({at for _, at in of_group})}
        for (rank, at), events in of_group.items():
            add_fingerprints(self._claims[rank, rows[at]], scene, events)
        self._failed_ones(solved, rows)

    def _solved(self, named: Sequence[NamedGroup], whole_lanes: bool) -> Solution | None:
        scene, lanes = self._scene, self._lanes
        if not lanes or not named:
            return None
        reports = read_reports(self._said, lanes, self._calls)
        return solve_groups(lanes, named, reports, whole=whole_lanes, failed=failed_ranks(scene))

    def _row_of(self, named: NamedGroup) -> int:
        """The row of a group: one with the same name or members, or a new one."""
        groups, members = self._groups, named.members
        if named.name == WORLD_GROUP and not named.device:
            return groups.of_report(WORLD_GROUP, DEFAULT_GROUP, members[0], 0, len(members))
        known = groups.of_members(members)
        own = [at for at in known if groups.names[at] == named.name] or (known if not named.name else [])
        if len(own) == 1:
            return own[0]
        return groups.add(f"{named.name or named.ranks} {named.device}".rstrip(), "", members, True)

    def _failed_ones(self, solved: Solution, rows: dict[int, int]) -> None:
        """Notes the group of each collective that a rank reports as failed, and that a mismatch stopped."""
        for told in self._said:
            lane = self._lanes.get(told.rank)
            at = solved.of[told.rank][-1] if lane is not None and of_last(told, self._lanes) else None
            if (
                lane is None
                or at is None
                or told.event.values.get("rank_in_group") not in (None, lane.prints[-1].place)
            ):
                continue
            self._scene.told_groups[told.log, told.event.offset] = rows[at]
            values = told.event.values
            members = solved.groups[at].members
            for one, printed in zip(values.get("ranks", ()), values.get("fingerprints", ()), strict=False):
                if one < len(members):
                    made = fingerprint_row(self._scene.logs[told.log], told.event, printed, "scheduled")
                    self._claims[members[one], rows[at]].add(made)


def _is_sound(event: Event) -> bool:
    return int64_or_none(event.values["seq"]) is not None and valid_rank(event.values.get("rank_in_group")) is not None


# Fingerprints of a job with only the default group, as far as its lines show.


def lanes_of_all(scene: LogScene, cut: bool) -> dict[int, list[PrintedEvent]] | None:
    """The lane of each rank; None unless all are of one group in which each rank has the place of its own number.

    `cut`: some lines in the middle were dropped; the last ones still have consecutive numbers.
    """
    lanes: defaultdict[tuple[int, int], list[PrintedEvent]] = defaultdict(list)
    for number, event in events_of(scene, "fingerprint"):
        if int64_or_none(event.values["seq"]) is None:
            continue
        rank = printing_rank(scene, number, event)
        if rank is None or event.values.get("rank_in_group") not in (None, rank):
            return None
        lanes[rank, number].append(PrintedEvent(number, rank, event))
    found: dict[int, list[PrintedEvent]] = {}
    for (rank, _), own in lanes.items():
        kept = _last_lane(own) if cut else own
        if not _one_lane(kept):
            return None
        found[rank] = max(found.get(rank, []), kept, key=len)
    return found


def place_world_lanes(
    scene: LogScene, groups: LogGroups, claims: Claims, lanes: Mapping[int, Sequence[PrintedEvent]]
) -> None:
    """Puts lines to lanes of the default group."""
    for rank, own in lanes.items():
        at = groups.of_report("0", DEFAULT_GROUP, rank, rank, scene.world)
        add_fingerprints(claims[rank, at], scene, [(told.log, told.event) for told in own])


def place_mismatches(scene: LogScene, groups: LogGroups, claims: Claims) -> None:
    """Adds rows of the two ranks that a mismatch names; its ranks count in the group, here the default group."""
    for number, event in events_of(scene, "fingerprint-mismatch"):
        prints, ranks = event.values["fingerprints"], event.values["ranks"]
        reporter = ranks[0] if ranks else None
        if printing_rank(scene, number, event) not in (None, reporter) or not ranks or len(prints) != len(ranks):
            continue
        for one, printed in zip(ranks, prints, strict=True):
            if one < scene.world:
                at = groups.of_report("0", DEFAULT_GROUP, one, one, scene.world)
                claims[one, at].add(fingerprint_row(scene.logs[number], event, printed, "scheduled"))


def _last_lane(own: Sequence[PrintedEvent]) -> list[PrintedEvent]:
    """The last lines with consecutive sequence numbers."""
    seqs = [told.event.values["seq"] for told in own]
    begins = [i for i in range(1, len(seqs)) if seqs[i] != seqs[i - 1] + 1]
    return list(own[begins[-1] if begins else 0 :])


def _one_lane(own: Sequence[PrintedEvent]) -> bool:
    """Whether the sequence numbers are consecutive, as those of one group are."""
    seqs = [told.event.values["seq"] for told in own]
    return all(later == seq + 1 for seq, later in pairwise(seqs))


# Reports of ranks about the failed collective: absent members at its barrier, and the call of another member.


def read_reports(said: Iterable[PrintedEvent], lanes: PrintedLanes, calls: CallNumbers) -> FailureReports:
    """The reports about the last operation of each rank; a report before its last line is about another one."""
    quotes: defaultdict[int, list[PeerQuote]] = defaultdict(list)
    absent: defaultdict[int, set[int]] = defaultdict(set)
    for told in said:
        lane = lanes.get(told.rank)
        if lane is None or not of_last(told, lanes):
            continue
        values, last = told.event.values, lane.prints[-1]
        if told.event.kind == "monitored-barrier":
            missed = [place for place in values["failed_ranks"] if place != last.place]
            if missed and values.get("reporter") == last.place:
                absent[told.rank].update(missed)
        elif (quote := _quote(told, last, calls)) is not None:
            quotes[told.rank].append(quote)
    return FailureReports(dict(quotes), {rank: frozenset(places) for rank, places in absent.items()})


def of_last(told: PrintedEvent, lanes: PrintedLanes) -> bool:
    """Whether a line follows the last fingerprint of its rank."""
    log, event = lanes[told.rank].events[-1]
    return log == told.log and event.offset < told.event.offset


def _quote(told: PrintedEvent, last: Fingerprint, calls: CallNumbers) -> PeerQuote | None:
    places, prints = told.event.values["ranks"], told.event.values["fingerprints"]
    if len(places) != 2 or len(prints) != 2:
        return None
    (seq, *own), (other_seq, *other) = prints
    if (places[0], seq, calls.number(own)) != (last.place, last.seq, last.call):
        return None
    return PeerQuote(places[1], other_seq, calls.number(other))


class Solution(NamedTuple):
    """Groups, and the group of each line of each rank; None for an unknown one."""

    groups: list[NamedGroup]
    of: dict[int, list[int | None]]


def solve_groups(
    lanes: PrintedLanes, named: Sequence[NamedGroup], reports: FailureReports, *, whole: bool, failed: bool
) -> Solution | None:
    """The solution in which all lines fit; None without one, or where nothing tells several from each other.

    `whole`: lanes begin at the start of the job; `failed`: the job failed.
    """
    step = Lockstep(lanes, [own.members for own in named], whole, failed)
    played = step.play()
    fits = all(_to_the_end(lanes, rank, own) for rank, own in played.items())
    return _solved(step, played, named, reports) if fits else None


def _to_the_end(lanes: PrintedLanes, rank: int, played: LaneProgress) -> bool:
    rest = len(lanes[rank].prints) - played.at
    return rest == 0 or (rest == 1 and bool(played.open))


def _solved(
    step: Lockstep, played: Mapping[int, LaneProgress], named: Sequence[NamedGroup], reports: FailureReports
) -> Solution:
    groups = _ambiguous_groups(named)
    numbers: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for at, group in enumerate(groups):
        numbers[group.members].append(at)
    teams = {rank: list(own.teams) for rank, own in played.items()}
    mixed = {team for team, members in enumerate(step.teams) if _is_mixed(step, team, teams[members[0]], members[0])}
    last = {} if mixed else last_teams(step, played, reports) or {}
    for rank, team in last.items():
        teams[rank][played[rank].at] = team
    of = {rank: _numbered_lines(step, rank, own, mixed, numbers) for rank, own in teams.items()}
    return Solution(groups, of)


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
