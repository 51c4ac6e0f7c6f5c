"""Fingerprints of all logs of a job onto lanes of their groups, as claims beside those of other lines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from rankscope.assemble.logs.grouping import DEFAULT, Groups
from rankscope.assemble.logs.log_processes import Scene
from rankscope.assemble.logs.messages import failed
from rankscope.assemble.logs.numbers import rank as sound
from rankscope.assemble.logs.numbers import whole
from rankscope.assemble.logs.prints.alone import lanes_of_all, place_all, place_mismatches
from rankscope.assemble.logs.prints.lanes import Calls, lanes_of
from rankscope.assemble.logs.prints.rows import add, events_of, row
from rankscope.assemble.logs.prints.said import of_last, read_reports
from rankscope.assemble.logs.prints.seats import ALL, Named, named_groups
from rankscope.assemble.logs.prints.solve import Job, Solved, solve
from rankscope.assemble.logs.prints.who import by_labels, once, speakers
from rankscope.assemble.logs.reports import Claims
from rankscope.kinds.event_kinds import EVENTS
from rankscope.parsers.logs.event import Event
from rankscope.parsers.logs.kept import left_out


def place(scene: Scene, groups: Groups, claims: Claims) -> None:
    """Adds what fingerprints tell to `claims` and `groups`; `scene` gets how many of them are of no known group."""
    named = named_groups(event for _, event in events_of(scene, "pg-seat"))
    cut = any(left_out("fingerprint") in log.content.counts for log in scene.logs)
    alone = lanes_of_all(scene, cut) if named is None else None
    if alone is not None:
        place_all(scene, groups, claims, alone)
        place_mismatches(scene, groups, claims)
    else:
        _Several(scene, groups, claims).place(named, not cut)


class _Several:
    """Fingerprints of a job with several groups."""

    def __init__(self, scene: Scene, groups: Groups, claims: Claims) -> None:
        self._scene, self._groups, self._claims = scene, groups, claims
        prints = once(told for told in speakers(scene, "fingerprint") if _is_sound(told.event))
        self._calls = Calls()
        self._lanes = lanes_of(((told.log, told.rank, told.event) for told in prints), self._calls)
        self._said = speakers(scene, *(kind.name for kind in EVENTS.values() if kind.of_failed_call))

    def place(self, named: Sequence[Named] | None, whole_lanes: bool) -> None:
        """Puts all lines to groups of which that can be told, and notes how many others there are."""
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
            add(self._claims[rank, rows[at]], scene, events)
        self._failed_ones(solved, rows)

    def _solved(self, named: Sequence[Named] | None, whole_lanes: bool) -> Solved | None:
        scene, lanes = self._scene, self._lanes
        if not lanes or (named is None and not whole_lanes):
            return None
        reports = read_reports(self._said, lanes, self._calls)
        written = {number: log.source.mtime_ns for number, log in enumerate(scene.logs)}
        solved = solve(lanes, Job(named, whole_lanes, failed(scene), scene.world, reports, written))
        if solved is not None and by_labels(scene):
            # processes of two hosts with the same prefixes would look like groups that are there twice
            members = [group.members for group in solved.groups]
            return solved if len(set(members)) == len(members) else None
        return solved

    def _row_of(self, named: Named) -> int:
        """The row of a group: one that is known by its name or members, or a new one."""
        groups, members = self._groups, named.members
        if named.name == ALL and not named.device:
            return groups.of_report(ALL, DEFAULT, members[0], 0, len(members))
        known = groups.of_members(members)
        own = [at for at in known if groups.names[at] == named.name] or (known if not named.name else [])
        if len(own) == 1:
            return own[0]
        return groups.add(f"{named.name or named.ranks} {named.device}".rstrip(), "", members, True)

    def _failed_ones(self, solved: Solved, rows: dict[int, int]) -> None:
        """Of which group the collective is that a rank says failed, and that a mismatch kept it from running."""
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
                    made = row(self._scene.logs[told.log], told.event, printed, "scheduled")
                    self._claims[members[one], rows[at]].add(made)


def _is_sound(event: Event) -> bool:
    return whole(event.values["seq"]) is not None and sound(event.values.get("rank_in_group")) is not None
