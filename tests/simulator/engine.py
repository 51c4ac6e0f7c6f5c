"""Runs the programs of all ranks to their end, or until nothing moves any more."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from tests.simulator.device import Device, Item
from tests.simulator.instructions import (
    ANY_SOURCE,
    P2P,
    US,
    Batch,
    Collective,
    Communication,
    Compute,
    Crash,
    DeviceDies,
    Host,
    Instruction,
    Mark,
    Sync,
    WaitAll,
)  # fmt: skip
from tests.simulator.record import Record, Recorder
from tests.simulator.rendezvous import Meetings, Side
from tests.simulator.topology import Topology

ISSUE_NS = 8 * US
"""What issuing one operation costs a host."""
WIRE_NS = 40 * US
"""How long a transfer takes once everybody is there."""

Event = tuple[int, int, Callable[[int], None]]


@dataclass
class _HostState:
    program: Iterator[Instruction]
    clock: int
    finished: bool = False
    stuck: bool = False


@dataclass
class Engine:
    """The state of a job while it runs; after `run`, its records say when everything happened."""

    topology: Topology
    programs: dict[int, Iterator[Instruction]]
    recorders: dict[int, Recorder]
    start: int
    seed: int = 0
    hooked: frozenset[int] = frozenset()
    """Ranks on nccl2: everything asynchronous of a group shares a stream, the rest runs on the current one."""
    meetings: Meetings = field(init=False)
    hosts: dict[int, _HostState] = field(init=False)
    devices: dict[int, Device] = field(init=False)
    crashed: dict[int, int] = field(default_factory=dict)
    """rank -> when its process ended."""
    marks: dict[int, int] = field(default_factory=dict)
    """rank -> when it came to the mark of its program."""
    now: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.meetings = Meetings({name: len(ranks) for name, ranks in self.topology.groups.items()})
        self.hosts = {r: _HostState(p, self.start + self.rng.randrange(50 * US)) for r, p in self.programs.items()}
        self.devices = {r: Device() for r in self.programs}
        self._events: list[Event] = []
        self._count = count()

    def run(self) -> None:
        """Runs until nothing is left to happen."""
        for rank, host in self.hosts.items():
            self._at(host.clock, lambda t, rank=rank: self._resume(rank, t))  # type: ignore[misc]
        while self._events:
            self.now, _, action = heapq.heappop(self._events)
            action(self.now)

    @property
    def hung(self) -> bool:
        """Whether some rank did not get through its program."""
        return not all(host.finished for host in self.hosts.values())

    def _at(self, when: int, action: Callable[[int], None]) -> None:
        heapq.heappush(self._events, (when, next(self._count), action))

    def _resume(self, rank: int, now: int) -> None:
        host = self.hosts[rank]
        host.clock = max(host.clock, now)
        for instruction in host.program:
            if not self._issue(rank, host, instruction):
                return
        host.finished = True

    def _issue(self, rank: int, host: _HostState, instruction: Instruction) -> bool:
        """Carries out one instruction; False if the host stops at it."""
        match instruction:
            case Host(ns=None):
                host.stuck = True
                return False
            case Host(ns=int(ns)):
                host.clock += round(ns * self.rng.uniform(0.9, 1.2))
            case Mark():
                self.marks[rank] = host.clock
            case Crash():
                self.crashed[rank] = self.devices[rank].dead_at = host.clock
                return False
            case Sync():
                return self._wait_for(host, self.devices[rank].compute)
            case WaitAll():
                self._join_streams(rank, host)
            case Compute() | DeviceDies():
                self._kernel(rank, host, instruction)
            case Collective() | P2P() | Batch():
                return self._communicate(rank, host, instruction)
        return True

    def _wait_for(self, host: _HostState, item: Item | None) -> bool:
        if item is None or (item.done_at is not None and item.done_at <= host.clock):
            return True
        if item.done_at is not None:
            host.clock = item.done_at
            return True
        item.host_waits = True
        return False

    def _join_streams(self, rank: int, host: _HostState) -> None:
        device = self.devices[rank]
        item = Item(rank, host.clock)
        item.after(device.compute, *device.outstanding)
        device.outstanding, device.compute = [], item
        self._enqueue(item)

    def _kernel(self, rank: int, host: _HostState, instruction: Compute | DeviceDies) -> None:
        device = self.devices[rank]
        host.clock += ISSUE_NS
        if isinstance(instruction, Compute):
            ns = instruction.ns
            item = Item(rank, host.clock, None if ns is None else round(ns * self.rng.uniform(0.95, 1.1)))
        else:
            item = Item(rank, host.clock, kills=True)
        item.after(device.compute)
        device.compute = item
        self._enqueue(item)

    def _communicate(self, rank: int, host: _HostState, one: Communication) -> bool:
        host.clock += ISSUE_NS
        recorder = self.recorders[rank]
        item = Item(rank, host.clock)
        stream: tuple[str, ...] = (one.group,)
        if isinstance(one, Collective):
            item.records, item.on_host = recorder.collective(one, host.clock), one.on_host
        elif isinstance(one, Batch):
            item.records, item.batch = recorder.batch(one, host.clock), stream
        else:
            stream = (one.group, *sorted((f"{rank:06}", f"{one.peer:06}")))
            item.records, item.batch = [recorder.p2p(one, host.clock)], stream
        if not item.on_host:
            self._put_on_stream(item, one, stream[:1] if rank in self.hooked else stream)
        self._enqueue(item)
        return not _holds_up_the_host(one) or self._wait_for(host, item)

    def _put_on_stream(self, item: Item, one: Communication, stream: tuple[str, ...]) -> None:
        device = self.devices[item.rank]
        if item.rank in self.hooked and isinstance(one, Collective) and one.wait:
            item.after(device.compute)
        else:
            item.after(device.streams.get(stream), device.compute)
            device.streams[stream] = item
        if one.wait:
            device.compute = item
        else:
            device.outstanding.append(item)

    def _enqueue(self, item: Item) -> None:
        if item.pending == 0:
            self._at(max(item.enqueued, self.now), lambda t: self._start(item, t))

    def _alive(self, item: Item, now: int) -> bool:
        dead_at = self.crashed.get(item.rank) if item.on_host else self.devices[item.rank].dead_at
        return dead_at is None or now < dead_at

    def _start(self, item: Item, now: int) -> None:
        if not self._alive(item, now):
            return
        if item.kills:
            self.devices[item.rank].dead_at = now
        elif not item.records:
            if item.duration is not None:
                self._at(now + item.duration, lambda t: self._end(item, t))
        else:
            for record in item.records:
                record.arrived = now
            self._meet(item, now)

    def _meet(self, item: Item, now: int) -> None:
        if item.batch is None:
            together = self.meetings.join(item)
            if together:
                self._at(now + WIRE_NS, lambda t: self._end_together(together, t))
            return
        messages = [r for r in item.records if r.role != "closer"]
        item.unmatched = len(messages)
        for record in messages:
            sides = self.meetings.post(item, record)
            if sides is not None:
                met = [s for s in sides if s is not None]
                self._at(now + WIRE_NS, lambda t, met=met: self._end_messages(met, t))  # type: ignore[misc]

    def _end_together(self, items: list[Item], now: int) -> None:
        if all(self._alive(i, now) for i in items):
            for item in items:
                self._end(item, now)

    def _end_messages(self, sides: list[Side], now: int) -> None:
        if not all(record.done is not None or self._alive(item, now) for item, record in sides):
            return
        for item, record in sides:
            self._end_message(item, record, now)

    def _end_message(self, item: Item, record: Record, now: int) -> None:
        if record.done is not None:
            return
        record.done = now
        item.unmatched -= 1
        if item.unmatched == 0:
            self._end(item, now)

    def _end(self, item: Item, now: int) -> None:
        if not self._alive(item, now):
            return
        item.done_at = now
        for record in item.records:
            record.done = now
        for waiter in item.waiters:
            waiter.pending -= 1
            if waiter.pending == 0:
                self._at(max(now, waiter.enqueued), lambda t, w=waiter: self._start(w, t))  # type: ignore[misc]
        item.waiters = []
        if item.host_waits:
            self._at(now, lambda t: self._resume(item.rank, t))


def _holds_up_the_host(one: Communication) -> bool:
    if isinstance(one, Collective):
        return one.blocks_host or one.on_host
    return isinstance(one, P2P) and one.peer == ANY_SOURCE
