"""Where ranks meet: the k-th collective of a communicator, the k-th message of a pair."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from tests.simulator.device import Item
from tests.simulator.instructions import ANY_SOURCE, WIDTHS, elements
from tests.simulator.record import Record

UNEVEN = {"all_to_all"}
"""Collectives in which ranks may well have different sizes."""

Channel = tuple[tuple[str, ...], int, int]
"""Communicator, sender, receiver."""
Side = tuple[Item, Record]


def payload(record: Record) -> int:
    """Bytes an operation moves in, which is what a communicator compares."""
    return elements(record.inputs) * WIDTHS.get(record.dtype, 1)


def fits(records: list[Record]) -> bool:
    """Whether the operations of all members, in their order in the group, can end together."""
    if len({r.op for r in records}) > 1:
        return False
    if records[0].op in UNEVEN and all(len(r.inputs) == len(r.outputs) == len(records) for r in records):
        pairs = ((a, b) for a in range(len(records)) for b in range(len(records)))
        return all(records[a].inputs[b] == records[b].outputs[a] for a, b in pairs)
    return records[0].op in UNEVEN or len({payload(r) for r in records}) == 1


@dataclass
class Meetings:
    """All meetings of a job that are not over."""

    members: dict[str, int]
    """Number of members of each group."""
    eager_bytes: int = 0
    stopped: set[tuple[str, int]] = field(default_factory=set)
    """Collectives in which the network stops."""
    slots: defaultdict[tuple[str, int], list[Item]] = field(default_factory=lambda: defaultdict(list))
    sends: defaultdict[Channel, deque[Side]] = field(default_factory=lambda: defaultdict(deque))
    recvs: defaultdict[Channel, deque[Side]] = field(default_factory=lambda: defaultdict(deque))
    open_recvs: defaultdict[tuple[str, int], deque[Side]] = field(default_factory=lambda: defaultdict(deque))
    """Receives from any source, by group and receiver."""

    def join(self, item: Item) -> list[Item]:
        """A collective starts on a rank; returns the items of all members if it can now run to its end."""
        work = item.records[-1]
        key = (work.channel, work.seq)
        here = self.slots[key]
        here.append(item)
        if len(here) < self.members[work.group]:
            return []
        calls = [list(i.records) for i in sorted(self.slots.pop(key), key=lambda i: i.rank)]
        level = len({len(c) for c in calls}) == 1 and all(fits(list(column)) for column in zip(*calls, strict=True))
        return here if level and key not in self.stopped else []

    def post(self, item: Item, record: Record) -> tuple[Side, Side | None] | None:
        """A send or receive starts; returns the sides that can now end, None if it has to wait."""
        assert item.batch is not None and record.peer is not None
        if record.peer == ANY_SOURCE:
            return self._from_anyone(item, record)
        sending = record.op == "send"
        ends = (item.rank, record.peer) if sending else (record.peer, item.rank)
        channel: Channel = (item.batch, *ends)
        own, other = (self.sends, self.recvs) if sending else (self.recvs, self.sends)
        if other[channel]:
            return (item, record), other[channel].popleft()
        if sending and self.open_recvs[record.group, record.peer]:
            return (item, record), self.open_recvs[record.group, record.peer].popleft()
        own[channel].append((item, record))
        eager = sending and payload(record) <= self.eager_bytes
        return ((item, record), None) if eager else None

    def _from_anyone(self, item: Item, record: Record) -> tuple[Side, Side | None] | None:
        here = (record.group, item.rank)
        waiting = [q for (stream, _, receiver), q in self.sends.items() if q and (stream[0], receiver) == here]
        if waiting:
            return (item, record), min(waiting, key=lambda q: q[0][0].enqueued).popleft()
        self.open_recvs[record.group, item.rank].append((item, record))
        return None
