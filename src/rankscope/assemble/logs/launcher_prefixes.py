"""Prefixes that torchrun puts before lines: by --tee role and rank within the node, or host and rank by a template.

Where the role is "rank", the prefixes of --tee look like those of torch itself, which hold the rank in the job.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rankscope.assemble.logs.log_processes import LogFile, LogScene
from rankscope.parsers.logs.log_record import Event
from rankscope.parsers.safe_values import RANK_LIMIT

_LOCAL = re.compile(r"^\[([A-Za-z_][\w\-]{0,40}?)(\d{1,6})\]:")
_RANK_ROLE = "rank"


def settle_local_prefixes(scene: LogScene) -> None:
    """Gives lines with such a prefix alone the rank that stands behind it in other lines of their log.

    Logs of several nodes have the same prefixes for different ranks.
    """
    told = [_told_behind(log) for log in scene.logs]
    pairs = {(front, rank) for of_log in told for front, ranks in of_log.items() for rank in ranks}
    local = {role for role, number, rank in ((*_role(front), rank) for front, rank in pairs) if number != rank}
    if not pairs:
        return
    for number, log in enumerate(scene.logs):
        prefixes = _LocalPrefixes(told[number], _offset(log, told[number]), _RANK_ROLE in local)
        events = [prefixes.settled(event) for event in log.content.events]
        processes = [
            row._replace(rank=prefixes.rank(row.rank)) if row.rank is not None and _LOCAL.match(row.label) else row
            for row in log.content.processes
        ]
        scene.logs[number] = log._replace(content=replace(log.content, events=events, processes=processes))


@dataclass(frozen=True)
class _LocalPrefixes:
    """The prefixes of one log."""

    told: dict[str, set[int]]
    """The ranks behind each."""
    offset: int | None
    """The first rank of the node, if known."""
    is_local: bool
    """Whether `[rank3]:` is the rank within the node."""

    def settled(self, event: Event) -> Event:
        """An event with the rank of its process; without one, if its prefix may be of several."""
        if "outer" in event.values or event.kind == "torchrun-failure":
            return event
        label = _LOCAL.match(str(event.values.get("label") or ""))
        if event.rank is None and label is not None:
            found = self._of(label[1], int(label[2]))
            rest = {name: value for name, value in event.values.items() if name != "label"}
            return event if found is None else event._replace(rank=found, values=rest)
        if event.rank is None or not self.is_local:
            return event
        found = self._of(_RANK_ROLE, event.rank)
        values = event.values if found is not None else {**event.values, "label": f"[rank{event.rank}]:"}
        return event._replace(rank=found, values=values)

    def rank(self, printed: int) -> int | None:
        """The rank of a process behind `[rankN]:`."""
        return self._of(_RANK_ROLE, printed) if self.is_local else printed

    def _of(self, role: str, number: int) -> int | None:
        ranks = self.told.get(f"[{role}{number}]:", set())
        if len(ranks) == 1:
            return next(iter(ranks))
        return None if ranks or self.offset is None else number + self.offset


def _told_behind(log: LogFile) -> dict[str, set[int]]:
    """The ranks behind each prefix."""
    told: defaultdict[str, set[int]] = defaultdict(set)
    for event in log.content.events:
        if "outer" in event.values and event.rank is not None:
            told[event.values["outer"]].add(event.rank)
    return dict(told)


def _role(front: str) -> tuple[str, int]:
    found = _LOCAL.match(front)
    return (found[1], int(found[2])) if found is not None else ("", -1)


def _offset(log: LogFile, told: dict[str, set[int]]) -> int | None:
    """The first rank of the node of a log, if all its lines agree."""
    found = {rank - _role(front)[1] for front, ranks in told.items() for rank in ranks}
    for event in log.content.events:
        local = event.values.get("local_rank") if event.kind == "torchrun-failure" else None
        found |= {event.rank - local} if isinstance(local, int) and event.rank is not None else set()
    return found.pop() if len(found) == 1 and min(found) >= 0 else None


# Ranks that torchrun puts before lines by a template: `node07:12: `, `[12]:`.

_FRONT = re.compile(r"^\[?(?:(?P<host>[A-Za-z][\w.\-]*):)?(?P<number>\d{1,6})\]?:?$")


def settle_labels(scene: LogScene, world: int) -> None:
    """Gives events the rank before them; `world` is the size of the job from elsewhere, else 0."""
    if not any("front" in event.values for log in scene.logs for event in log.content.events):
        return
    told = {front: _read(front) for front, _ in _fronts(scene)}
    if not _are_ranks(scene, told, world):
        return
    for number, log in enumerate(scene.logs):
        events = [_ranked(event, told) for event in log.content.events]
        scene.logs[number] = log._replace(content=replace(log.content, events=events))


def _fronts(scene: LogScene) -> Iterator[tuple[str, int | None]]:
    """The texts before events, each with the rank that torch itself prints there."""
    for log in scene.logs:
        for event in log.content.events:
            if "front" in event.values:
                yield event.values["front"], event.rank


def _read(front: str) -> tuple[str, int] | None:
    """Host and number of a text; None for another form."""
    found = _FRONT.match(front)
    number = int(found["number"]) if found else RANK_LIMIT
    return (found["host"] or "", number) if found and number < RANK_LIMIT else None


def _are_ranks(scene: LogScene, told: dict[str, tuple[str, int] | None], world: int) -> bool:
    hosts: defaultdict[int, set[str]] = defaultdict(set)
    for place in told.values():
        if place is None:
            return False
        hosts[place[1]].add(place[0])
    if any(len(own) > 1 for own in hosts.values()):
        # counted on each host separately
        return False
    known = [(told[front], rank) for front, rank in _fronts(scene) if rank is not None]
    if known:
        return all(place is not None and place[1] == rank for place, rank in known)
    several = len(set().union(*hosts.values())) > 1
    highest = max((e.rank for log in scene.logs for e in log.content.events if e.rank is not None), default=-1)
    # numbers of one host, from 0 on, are the ranks of a job on that host only
    return several or min(hosts) > 0 or max(world - 1, highest) <= max(hosts)


def _ranked(event: Event, told: dict[str, tuple[str, int] | None]) -> Event:
    place = told.get(event.values.get("front", ""))
    if event.rank is not None or place is None:
        return event
    values = {name: value for name, value in event.values.items() if name != "label"}
    if place[0] and values.get("host") is None:
        values["host"] = place[0]
    return event._replace(rank=place[1], values=values)
