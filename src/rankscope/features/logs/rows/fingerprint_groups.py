"""Fingerprints of all logs of a job in lanes of their groups, as claims beside those of other lines.

The members of groups come from lines of the job's store. A job with only the default group needs no more; in others,
`lockstep` finds the group of each line, with what ranks report of the failed collective.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from rankscope.features.logs.read.bounded_rows import left_out
from rankscope.features.logs.read.log_record import Event
from rankscope.features.logs.rows import log_processes
from rankscope.features.logs.rows.c10d_claims import Claim, ClaimedOperation, Claims, not_before, printing_rank
from rankscope.features.logs.rows.lockstep import (
    CallNumbers,
    FailureReports,
    Fingerprint,
    LaneProgress,
    Lockstep,
    PeerQuote,
    PrintedLanes,
    lanes_of,
    last_teams,
)
from rankscope.features.logs.rows.log_groups import DEFAULT_GROUP, LogGroups
from rankscope.features.logs.rows.log_messages import failed_ranks
from rankscope.features.logs.rows.log_processes import LogFile, LogScene, int64_or_none, print_time, valid_rank
from rankscope.kinds.event_kinds import EVENTS
from rankscope.parsers.safe_values import RANK_LIMIT

_PRINTED = ("seq", "op", "shape", "dtype", "device")


class PrintedEvent(NamedTuple):
    """An event, the number of its log, and the global rank that printed it."""

    log: int
    rank: int
    event: Event


def events_of(scene: LogScene, *kinds: str) -> Iterator[tuple[int, Event]]:
    """Events of these kinds with the number of their log; events before the last run belong to an earlier one."""
    for number, log in enumerate(scene.logs):
        since = scene.since.get(number, 0)
        yield from ((number, event) for event in log.content.events if event.kind in kinds and event.offset >= since)


def fingerprint_row(log: LogFile, event: Event, printed: Sequence[Any], state: str) -> ClaimedOperation:
    """The operation of a fingerprint: sequence number, operation, shape, type, device."""
    seq, op, shape, dtype, device = printed
    created = print_time(event.stamp, log.source.mtime_ns) if event.kind == "fingerprint" else None
    return ClaimedOperation(
        seq,
        log_processes.c10d_op(op),
        state,
        created_ns=created,
        in_sizes=None if shape is None else f"[{list(shape)}]",
        dtypes=None if dtype is None else f'["{dtype}"]' if dtype.isalnum() else None,
        library="nccl" if device == "cuda" else "gloo",
        file=log.place,
        line=event.line,
        attempt=log.source.attempt,
    )


def printed_row(log: LogFile, event: Event, before: int | None) -> ClaimedOperation:
    """The operation of an event that is a fingerprint, issued no earlier than the one before it."""
    made = fingerprint_row(log, event, [event.values.get(name) for name in _PRINTED], "unknown")
    return made._replace(created_ns=not_before(made.created_ns, before))


def add_fingerprints(claim: Claim, scene: LogScene, own: Sequence[tuple[int, Event]]) -> None:
    """Adds the fingerprints of a rank's group, in order."""
    before: int | None = None
    for number, event in own:
        made = printed_row(scene.logs[number], event, before)
        before = made.created_ns
        claim.add(made)
    claim.enqueued = max(event.values["seq"] for _, event in own)
    claim.whole = own[0][1].values["seq"] <= 1


WORLD_GROUP = "0"
MOST_NAMED = 8


class NamedGroup(NamedTuple):
    """A group with its name and members."""

    name: str
    """Its name in torch; "" if unknown."""
    members: tuple[int, ...]
    device: str = ""
    """The device of its tensors, if the job has a group of this name for each of several kinds of device."""

    @property
    def ranks(self) -> str:
        """The members as a name; of many only the first."""
        shown = [str(rank) for rank in self.members[:MOST_NAMED]]
        return f"[{','.join(shown if len(self.members) <= MOST_NAMED else [*shown, '…'])}]"


def named_groups(events: Iterable[Event]) -> list[NamedGroup] | None:
    """The groups in the order of their creation; None if a member is unknown, or the default group is missing."""
    seats: defaultdict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for event in events:
        values = event.values
        if values["place"] < RANK_LIMIT:
            seats[values["name"], values["device"]].setdefault(values["place"], values["address"])
    ranks: dict[str, int] = {}
    for (name, _), addresses in seats.items():
        if name == WORLD_GROUP:
            ranks |= {address: place for place, address in addresses.items()}
    if not ranks or sorted(ranks.values()) != list(range(len(ranks))):
        return None
    groups = []
    devices = {device for _, device in seats}
    for (name, device), addresses in seats.items():
        members = tuple(ranks.get(addresses.get(place, ""), -1) for place in range(len(addresses)))
        if -1 in members:
            return None
        groups.append(NamedGroup(name, members, device if len(devices) > 1 else ""))
    return groups


def speakers(scene: LogScene, *kinds: str) -> list[PrintedEvent]:
    """Events of these kinds with a known process."""
    events = ((number, event, _global(scene, number, event)) for number, event in events_of(scene, *kinds))
    return [PrintedEvent(number, rank, event) for number, event, rank in events if rank is not None]


def _global(scene: LogScene, number: int, event: Event) -> int | None:
    rank = valid_rank(event.rank if event.rank is not None else scene.logs[number].source.rank)
    return rank if rank is not None and rank < scene.world else None


def distinct_lines(prints: Iterable[PrintedEvent]) -> list[PrintedEvent]:
    """For each rank, the lines of the log with the most of them: another log may repeat them."""
    prints = list(prints)
    counts: dict[int, dict[int, int]] = {}
    for line in prints:
        by_log = counts.setdefault(line.rank, {})
        by_log[line.log] = by_log.get(line.log, 0) + 1
    best = {rank: max(by_log, key=lambda log: (by_log[log], -log)) for rank, by_log in counts.items()}
    return [line for line in prints if best[line.rank] == line.log]


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
        prints = distinct_lines(line for line in speakers(scene, "fingerprint") if _is_sound(line.event))
        self._calls = CallNumbers()
        self._lanes = lanes_of(((line.log, line.rank, line.event) for line in prints), self._calls)
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
        self._place_failed_calls(solved, rows)

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

    def _place_failed_calls(self, solved: Solution, rows: dict[int, int]) -> None:
        """Notes the group of each collective that a rank reports as failed, and that a mismatch stopped."""
        for line in self._said:
            lane = self._lanes.get(line.rank)
            at = solved.of[line.rank][-1] if lane is not None and of_last(line, self._lanes) else None
            if (
                lane is None
                or at is None
                or line.event.values.get("rank_in_group") not in (None, lane.prints[-1].place)
            ):
                continue
            self._scene.told_groups[line.log, line.event.offset] = rows[at]
            values = line.event.values
            members = solved.groups[at].members
            for place, printed in zip(values.get("ranks", ()), values.get("fingerprints", ()), strict=False):
                if place < len(members):
                    made = fingerprint_row(self._scene.logs[line.log], line.event, printed, "scheduled")
                    self._claims[members[place], rows[at]].add(made)


def _is_sound(event: Event) -> bool:
    return int64_or_none(event.values["seq"]) is not None and valid_rank(event.values.get("rank_in_group")) is not None


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
    kept_lanes: dict[int, list[PrintedEvent]] = {}
    for (rank, _), lane in lanes.items():
        kept = _last_lane(lane) if cut else lane
        # whether the sequence numbers are consecutive, as those of one group are
        seqs = [line.event.values["seq"] for line in kept]
        if not all(later == seq + 1 for seq, later in pairwise(seqs)):
            return None
        kept_lanes[rank] = max(kept_lanes.get(rank, []), kept, key=len)
    return kept_lanes


def place_world_lanes(
    scene: LogScene, groups: LogGroups, claims: Claims, lanes: Mapping[int, Sequence[PrintedEvent]]
) -> None:
    """Puts lines to lanes of the default group."""
    for rank, lane in lanes.items():
        at = groups.of_report("0", DEFAULT_GROUP, rank, rank, scene.world)
        add_fingerprints(claims[rank, at], scene, [(line.log, line.event) for line in lane])


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


def _last_lane(lines: Sequence[PrintedEvent]) -> list[PrintedEvent]:
    """The last lines with consecutive sequence numbers."""
    seqs = [line.event.values["seq"] for line in lines]
    begins = [i for i in range(1, len(seqs)) if seqs[i] != seqs[i - 1] + 1]
    return list(lines[begins[-1] if begins else 0 :])


def read_reports(said: Iterable[PrintedEvent], lanes: PrintedLanes, calls: CallNumbers) -> FailureReports:
    """The reports about the last operation of each rank; a report before its last line is about another one."""
    quotes: defaultdict[int, list[PeerQuote]] = defaultdict(list)
    absent: defaultdict[int, set[int]] = defaultdict(set)
    for line in said:
        lane = lanes.get(line.rank)
        if lane is None or not of_last(line, lanes):
            continue
        values, last = line.event.values, lane.prints[-1]
        if line.event.kind == "monitored-barrier":
            missed = [place for place in values["failed_ranks"] if place != last.place]
            if missed and values.get("reporter") == last.place:
                absent[line.rank].update(missed)
        elif (quote := _quote(line, last, calls)) is not None:
            quotes[line.rank].append(quote)
    return FailureReports(dict(quotes), {rank: frozenset(places) for rank, places in absent.items()})


def of_last(line: PrintedEvent, lanes: PrintedLanes) -> bool:
    """Whether a line follows the last fingerprint of its rank."""
    log, event = lanes[line.rank].events[-1]
    return log == line.log and event.offset < line.event.offset


def _quote(line: PrintedEvent, last: Fingerprint, calls: CallNumbers) -> PeerQuote | None:
    places, prints = line.event.values["ranks"], line.event.values["fingerprints"]
    if len(places) != 2 or len(prints) != 2:
        return None
    (seq, *call), (other_seq, *other) = prints
    if (places[0], seq, calls.number(call)) != (last.place, last.seq, last.call):
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
    for group in named:
        alike[group.members].append(group.name)
    seen: Counter[tuple[int, ...]] = Counter()
    groups: list[NamedGroup] = []
    for group in named:
        names = alike[group.members]
        seen[group.members] += 1
        name = f"{' or '.join(names) if len(set(names)) > 1 else group.ranks} ({seen[group.members]})"
        groups.append(group if len(names) == 1 else NamedGroup(name, group.members, group.device))
    return groups


def _is_mixed(step: Lockstep, team: int, teams: Sequence[int | None], rank: int) -> bool:
    """Whether groups of the same members made different calls under the same number, so that each could be of
    either."""
    prints = step.lanes[rank].prints
    calls = {(p.seq, p.call) for p, own in zip(prints, teams, strict=True) if own == team}
    return len({seq for seq, _ in calls}) < len(calls)


def _numbered_lines(
    step: Lockstep,
    rank: int,
    teams: Sequence[int | None],
    mixed: set[int],
    numbers: Mapping[tuple[int, ...], list[int]],
) -> list[int | None]:
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
