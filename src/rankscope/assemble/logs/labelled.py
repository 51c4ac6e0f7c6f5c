"""Ranks that torchrun puts in front of lines where a template tells it to: `node07:12: `, `[12]:`.

The template is the user's: the number may as well count within a node. It is the rank where all numbers of the job are
different, and nothing speaks for a larger job than they are of.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from rankscope.assemble.logs.log_processes import Scene
from rankscope.parsers.flight_recorder.values import RANK_LIMIT
from rankscope.parsers.logs.event import Event

_FRONT = re.compile(r"^\[?(?:(?P<host>[A-Za-z][\w.\-]*):)?(?P<number>\d{1,6})\]?:?$")


def settle(scene: Scene, world: int) -> None:
    """Gives events the rank in front of them; `world` is the size of the job where anything else tells it, else 0."""
    if not any("front" in event.values for log in scene.logs for event in log.content.events):
        return
    told = {front: _read(front) for front, _ in _fronts(scene)}
    if not _are_ranks(scene, told, world):
        return
    for number, log in enumerate(scene.logs):
        events = [_ranked(event, told) for event in log.content.events]
        scene.logs[number] = log._replace(content=replace(log.content, events=events))


def _fronts(scene: Scene) -> Iterator[tuple[str, int | None]]:
    """What stands in front of events, each with the rank that torch itself says there."""
    for log in scene.logs:
        for event in log.content.events:
            if "front" in event.values:
                yield event.values["front"], event.rank


def _read(front: str) -> tuple[str, int] | None:
    """Host and number."""
    found = _FRONT.match(front)
    number = int(found["number"]) if found else RANK_LIMIT
    return (found["host"] or "", number) if found and number < RANK_LIMIT else None


def _are_ranks(scene: Scene, told: dict[str, tuple[str, int] | None], world: int) -> bool:
    hosts: defaultdict[int, set[str]] = defaultdict(set)
    for place in told.values():
        if place is None:
            return False
        hosts[place[1]].add(place[0])
    if any(len(own) > 1 for own in hosts.values()):
        # counted on each host anew
        return False
    known = [(told[front], rank) for front, rank in _fronts(scene) if rank is not None]
    if known:
        return all(place is not None and place[1] == rank for place, rank in known)
    several = len(set().union(*hosts.values())) > 1
    highest = max((e.rank for log in scene.logs for e in log.content.events if e.rank is not None), default=-1)
    # all of one host, from 0 on, are the ranks of a job that has no other
    return several or min(hosts) > 0 or max(world - 1, highest) <= max(hosts)


def _ranked(event: Event, told: dict[str, tuple[str, int] | None]) -> Event:
    place = told.get(event.values.get("front", ""))
    if event.rank is not None or place is None:
        return event
    values = {name: value for name, value in event.values.items() if name != "label"}
    if place[0] and values.get("host") is None:
        values["host"] = place[0]
    return event._replace(rank=place[1], values=values)
