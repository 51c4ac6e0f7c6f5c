"""Fingerprints of each rank in the order of its program, before it is known of which group each is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rankscope.parsers.logs.event import Event

NEVER = 1 << 62
_CALL = ("op", "shape", "dtype", "device")


class Seat(NamedTuple):
    """A rank, and its rank within a group: nothing else of the group is in a line."""

    rank: int
    place: int


class Print(NamedTuple):
    """One fingerprint."""

    place: int
    """Rank in the group."""
    seq: int
    call: int
    """Operation, shape, type and device as a number: all members of a group must call the same."""
    came: int
    """When it was printed, as a number that grows, comparable between ranks; 0 where that is not known."""
    left: int
    """When its rank printed the next one: it was in this operation until then. NEVER of the last one."""


@dataclass
class Lane:
    """What one rank printed."""

    rank: int
    events: list[tuple[int, Event]] = field(default_factory=list)
    """With the number of the log."""
    prints: list[Print] = field(default_factory=list)


Lanes = Mapping[int, Lane]
"""By global rank."""


class Calls:
    """Numbers for what is called."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, ...], int] = {}

    def number(self, called: Iterable[Any]) -> int:
        """Of operation, shape, type and device."""
        return self._numbers.setdefault(tuple(map(str, called)), len(self._numbers))


def lanes_of(events: Iterable[tuple[int, int, Event]], calls: Calls) -> dict[int, Lane]:
    """Lanes from (log, global rank, fingerprint), those of each rank in the order of its log, with no times yet."""
    lanes: dict[int, Lane] = {}
    for log, rank, event in events:
        values = event.values
        lane = lanes.setdefault(rank, Lane(rank))
        lane.events.append((log, event))
        call = calls.number(values.get(name) for name in _CALL)
        lane.prints.append(Print(values["rank_in_group"], values["seq"], call, 0, NEVER))
    return lanes


def timed(lanes: Lanes, times: Mapping[int, Sequence[int]]) -> dict[int, Lane]:
    """The same lanes, with the time of each line by rank."""
    return {rank: Lane(rank, lane.events, _timed(lane.prints, times[rank])) for rank, lane in lanes.items()}


def _timed(prints: Sequence[Print], times: Sequence[int]) -> list[Print]:
    left = [*times[1:], NEVER]
    return [p._replace(came=came, left=until) for p, came, until in zip(prints, times, left, strict=True)]


def by_seat(lanes: Lanes) -> dict[Seat, list[Print]]:
    """The prints of each seat, in the order of the program."""
    found: defaultdict[Seat, list[Print]] = defaultdict(list)
    for rank, lane in lanes.items():
        for printed in lane.prints:
            found[Seat(rank, printed.place)].append(printed)
    return dict(found)
