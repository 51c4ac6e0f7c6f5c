"""A whole job: its past, the steps that are simulated event by event, and the dumps its ranks leave."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from tests.simulator import dump, files
from tests.simulator.engine import Engine
from tests.simulator.instructions import MS, P2P, SECOND, US, Batch, Collective, Instruction
from tests.simulator.notices import next_look
from tests.simulator.options import DumpOptions, Job, Moment
from tests.simulator.programs import Style, step
from tests.simulator.record import Record, Recorder
from tests.simulator.topology import Layout, Topology, build
from tests.simulator.watchdog import Watchdog

START = 1_760_000_000 * SECOND
STEP_NS = 60 * MS
"""How long a step of the past took."""


@dataclass
class Plan:
    """What every rank is going to do, step by step; faults are put in here."""

    topology: Topology
    steps: dict[int, list[list[Instruction]]]
    past: int = 0
    """Steps behind the job that are not simulated but recorded as done."""
    stopped: set[tuple[str, int]] = field(default_factory=set)
    eager_bytes: int = 0
    lost: set[int] = field(default_factory=set)
    """Ranks whose dump gets lost."""
    healthy: dict[int, list[Instruction]] = field(default_factory=dict)
    """By rank the step without any fault."""

    def replace(self, rank: int, number: int, instructions: Iterable[Instruction]) -> None:
        """Gives one rank another step."""
        self.steps[rank][number] = list(instructions)

    def seq_of(self, rank: int, number: int, index: int) -> tuple[str, int]:
        """(group, seq) that the collective at this place will have."""
        one = self.steps[rank][number][index]
        assert isinstance(one, Collective)
        nominal = self.steps[rank][0]
        before = [
            *nominal * self.past,
            *chain.from_iterable(self.steps[rank][:number]),
            *self.steps[rank][number][:index],
        ]
        return one.group, 1 + sum(isinstance(i, Collective) and i.group == one.group for i in before)


def plan(layout: Layout, style: Style, steps: int, past: int = 0) -> Plan:
    """The faultless plan of a job."""
    topology = build(layout)
    programs = {rank: step(style, topology, rank) for rank in range(layout.world)}
    return Plan(topology, {rank: [program] * steps for rank, program in programs.items()}, past, healthy=programs)


@dataclass
class Outcome:
    """A job that has run: what happened, and how its ranks look at it."""

    topology: Topology
    engine: Engine
    watchdogs: dict[int, Watchdog]
    skews: dict[int, int]
    """rank -> how far its host's clock is off."""
    begun: int
    seed: int
    lost: frozenset[int] = frozenset()
    """Ranks whose dump got lost."""
    steps: int = 0
    """Steps that were simulated."""

    @property
    def records(self) -> dict[int, list[Record]]:
        """Everything each rank ever issued."""
        return {rank: recorder.records for rank, recorder in self.engine.recorders.items()}

    def dump_times(self, moment: Moment, options: DumpOptions) -> dict[int, int]:
        """The true time at which each rank that still lives dumps; with `own_only`, of those that see a time-out."""
        rng = random.Random(self.seed + 1)
        ranks = [r for r in self.records if r not in self.engine.crashed]
        if moment in ("before", "breaking"):
            marked = min(self.engine.marks.values())
            begin, end = (self.begun, marked) if moment == "before" else (marked, self.engine.now)
            at = begin + round((end - begin) * rng.uniform(0.4, 0.95))
            alive = [r for r in self.records if self.engine.crashed.get(r, at + 1) > at]
            return {r: at + rng.randrange(100 * US) for r in alive}
        if moment in ("live", "live-apart"):
            length = self.engine.now - self.begun
            at = self.begun + round(length * rng.uniform(0.4, 0.9))
            spread = length // 2 if moment == "live-apart" else 100 * US
            return {r: at + rng.randrange(spread) for r in ranks}
        if moment == "ended" or not self.engine.hung:
            return {r: self.engine.now + SECOND + rng.randrange(SECOND) for r in ranks}
        own = {r: first for r in ranks if (first := self._first_timeout(r, options)) is not None}
        if options.own_only:
            return own
        if moment == "own":
            return {r: own.get(r, max(own.values()) + SECOND) for r in ranks}
        spread = 20 * SECOND if moment == "apart" else SECOND
        return {r: min(own.values()) + rng.randrange(spread) for r in ranks}

    def _first_timeout(self, rank: int, options: DumpOptions) -> int | None:
        waiting = [r for r in self.records[rank] if r.done is None and r.role != "inner"]
        if not waiting:
            return None
        if rank not in self.engine.hooked:
            return min(r.created for r in waiting) + options.timeout_ns
        return min(self._given_up(rank, r, options.timeout_ns) for r in waiting)

    def _given_up(self, rank: int, record: Record, patience_ns: int) -> int:
        """When a rank on nccl2 gives up an operation, which its watchdog sees; gloo waits three times as long."""
        if record.on_host:
            return record.created + 3 * patience_ns
        return next_look(record.created + patience_ns, self.watchdogs[rank].phase_ns, record.channel)

    def write(
        self, folder: Path, moment: Moment, options: DumpOptions, order: Sequence[int] | None = None
    ) -> list[Path]:
        """Writes the dumps of all living ranks, in the given order of ranks; returns their paths."""
        times = self.dump_times(moment, options)
        there = [rank for rank in order or times if rank in times.keys() - self.lost]
        paths = [self._write_one(folder, rank, times[rank], one) for rank in there for one in options.files(rank)]
        if options.copied_ns is not None:
            for path in paths:
                os.utime(path, ns=(max(times.values()) + options.copied_ns,) * 2)
        return paths

    def _write_one(self, folder: Path, rank: int, at: int, options: DumpOptions) -> Path:
        created = [r for r in self.records[rank] if r.created <= at]
        view = dump.View(self.topology, rank, created, self.watchdogs[rank], at, self.skews[rank], options)
        path = folder / f"{options.prefix}{rank}{options.suffix}"
        path.write_bytes(files.written(view))
        os.utime(path, ns=(at + self.skews[rank],) * 2)
        return path


def hooked_ranks(kind: Job, ranks: Iterable[int]) -> frozenset[int]:
    """The ranks that nccl2 and its hook serve."""
    return frozenset(r for r in ranks if kind in ("hook", "two") or (kind == "mixed" and r % 2))


def run(job: Plan, seed: int, skew_ns: int = 2 * MS, blind: bool = True, kind: Job = "legacy") -> Outcome:
    """Runs a plan; with `blind`, NCCL's own watchdog of a dead device sees nothing of its last poll interval."""
    rng = random.Random(seed)
    recorders = {rank: Recorder(rank, job.topology) for rank in job.steps}
    for rank, recorder in recorders.items():
        _remember(recorder, job.steps[rank][0], job.past)
    programs: dict[int, Iterator[Instruction]] = {rank: chain.from_iterable(steps) for rank, steps in job.steps.items()}
    begun = START + job.past * STEP_NS
    engine = Engine(job.topology, programs, recorders, begun, seed, hooked_ranks(kind, job.steps))
    engine.meetings.stopped, engine.meetings.eager_bytes = job.stopped, job.eager_bytes
    engine.run()
    hosts = {job.topology.host(rank) for rank in job.steps}
    offsets = {host: rng.randint(-skew_ns, skew_ns) for host in sorted(hosts)}
    skews = {rank: offsets[job.topology.host(rank)] for rank in job.steps}
    dead = {r: d.dead_at for r, d in engine.devices.items() if blind and r not in engine.hooked}
    watchdogs = {r: Watchdog(100 * MS, rng.randrange(100 * MS), dead.get(r)) for r in job.steps}
    steps = len(next(iter(job.steps.values())))
    return Outcome(job.topology, engine, watchdogs, skews, begun, seed, frozenset(job.lost), steps)


def _remember(recorder: Recorder, program: Sequence[Instruction], steps: int) -> None:
    """Records steps of the past as done: issued in the first half of a step, done in the second."""
    calls = [i for i in program if isinstance(i, Collective | P2P | Batch)]
    for number in range(steps):
        for k, one in enumerate(calls):
            issued = START + number * STEP_NS + (k * STEP_NS) // (2 * len(calls)) + recorder.rank % 7 * US
            for record in _issue(recorder, one, issued):
                record.arrived, record.done = issued + STEP_NS // 4, issued + STEP_NS // 2


def _issue(recorder: Recorder, one: Collective | P2P | Batch, when: int) -> list[Record]:
    if isinstance(one, Collective):
        return recorder.collective(one, when)
    return recorder.batch(one, when) if isinstance(one, Batch) else [recorder.p2p(one, when)]


def calls_of(program: Iterable[Instruction]) -> Iterator[tuple[int, Collective | P2P | Batch]]:
    """The communications of a program with their places."""
    return ((i, one) for i, one in enumerate(program) if isinstance(one, Collective | P2P | Batch))
