"""Rows of `ops` from fingerprints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rankscope.features.logs.read.log_record import Event
from rankscope.features.logs.rows import log_processes
from rankscope.features.logs.rows.c10d_claims import Claim, ClaimedOperation, not_before
from rankscope.features.logs.rows.log_processes import LogFile, LogScene, print_time, valid_rank
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
        seq, log_processes.c10d_op(op), state, created_ns=created,
        in_sizes=None if shape is None else f"[{list(shape)}]",
        dtypes=None if dtype is None else f'["{dtype}"]' if dtype.isalnum() else None,
        library="nccl" if device == "cuda" else "gloo", file=log.place, line=event.line, attempt=log.source.attempt,
    )  # fmt: skip


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


# Members of groups, from lines of the job's store.

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
    for (name, _), own in seats.items():
        if name == WORLD_GROUP:
            ranks |= {address: place for place, address in own.items()}
    if not ranks or sorted(ranks.values()) != list(range(len(ranks))):
        return None
    found = []
    devices = {device for _, device in seats}
    for (name, device), own in seats.items():
        members = tuple(ranks.get(own.get(place, ""), -1) for place in range(len(own)))
        if -1 in members:
            return None
        found.append(NamedGroup(name, members, device if len(devices) > 1 else ""))
    return found


# Fingerprints of each rank in the order of its program, before their groups are known.

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


def speakers(scene: LogScene, *kinds: str) -> list[PrintedEvent]:
    """Events of these kinds with a known process."""
    told = ((number, event, _global(scene, number, event)) for number, event in events_of(scene, *kinds))
    return [PrintedEvent(number, rank, event) for number, event, rank in told if rank is not None]


def _global(scene: LogScene, number: int, event: Event) -> int | None:
    rank = valid_rank(event.rank if event.rank is not None else scene.logs[number].source.rank)
    return rank if rank is not None and rank < scene.world else None


def distinct_lines(prints: Iterable[PrintedEvent]) -> list[PrintedEvent]:
    """For each rank, the lines of the log with the most of them: another log may repeat them."""
    prints = list(prints)
    counts: dict[int, dict[int, int]] = {}
    for told in prints:
        own = counts.setdefault(told.rank, {})
        own[told.log] = own.get(told.log, 0) + 1
    best = {rank: max(own, key=lambda log: (own[log], -log)) for rank, own in counts.items()}
    return [told for told in prints if best[told.rank] == told.log]
