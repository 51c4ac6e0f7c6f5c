"""Faults and moments beside those of `faults`: what only some backends, programs or dumps can show."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.simulator.faults import FULL, NOBODY, Inject, TruthOf, pick, put
from tests.simulator.instructions import ANY_SOURCE, MS, P2P, US, Batch, Collective, Compute, Instruction, Shapes
from tests.simulator.job import Outcome, Plan
from tests.simulator.options import DumpOptions
from tests.simulator.stacks import NORM
from tests.simulator.topology import WORLD
from tests.simulator.truth import Truth

FLAG = Collective(WORLD, "all_reduce", ((1,),), ((1,),), "Int", NORM, blocks_host=True, on_host=True)
"""A flag all ranks agree on through gloo, as `cpu:gloo,cuda:nccl2` sends what lies in the host's memory."""


def add_flags(job: Plan, rng: random.Random) -> None:
    """Lets every rank go through gloo once a step: at its begin, or after the first operation of the step."""
    early = rng.random() < 0.5
    for programs in job.steps.values():
        programs[:] = [_flagged(program, early) for program in programs]


def _flagged(program: list[Instruction], early: bool) -> list[Instruction]:
    places = [i for i, one in enumerate(program) if isinstance(one, Collective | P2P)] if not early else []
    at = places[0] + 1 if places else 0
    return [*program[:at], FLAG, *program[at:]]


def midstep(job: Plan, rng: random.Random) -> TruthOf:
    """Nothing is wrong; in some jobs a step has a kernel of seconds, behind which collectives wait on every rank."""
    if rng.random() < 0.5:
        kernel, number = Compute(rng.randrange(200, 3000) * MS), rng.randrange(len(job.steps[0]))
        for rank, programs in job.steps.items():
            job.replace(rank, number, [kernel, *programs[number]])
    return lambda _outcome, _options: Truth("midstep", frozenset(), NOBODY, critical=False)


def any_source(job: Plan, rng: random.Random) -> TruthOf:
    """A rank leaves out its send to a rank that receives from whoever comes."""
    at = pick(job, rng, lambda one: isinstance(one, P2P) and one.op == "send" and one.peer != ANY_SOURCE)
    assert isinstance(at.instruction, P2P)
    put(job, at, instead=True)
    pair = frozenset({frozenset({at.rank, at.instruction.peer})})
    kinds = frozenset({"p2p-unmatched", "missing-rank"})
    return lambda _outcome, _options: Truth("any-source", kinds, frozenset({at.rank}), pair)


def wrong_split(job: Plan, rng: random.Random) -> TruthOf:
    """One rank sends a member, or two of them, other amounts than these expect, or expects others than they send."""
    at = pick(job, rng, lambda one: isinstance(one, Collective) and one.op == "all_to_all" and len(one.inputs) > 1)
    one = at.instruction
    assert isinstance(one, Collective)
    group = job.topology.groups[one.group]
    peers = rng.sample([p for p in range(len(group)) if group[p] != at.rank], rng.choice([1, 2]))
    sends = rng.random() < 0.5
    shapes = _shifted(one.inputs if sends else one.outputs, peers, rng.randrange(1, 9))
    put(job, at, replace(one, inputs=shapes) if sends else replace(one, outputs=shapes), instead=True)
    named = frozenset({at.rank, *(group[p] for p in peers)})

    def truth(_outcome: Outcome, _options: DumpOptions) -> Truth:
        kinds = frozenset({"size-mismatch", "collective-mismatch"})
        sure = Truth("wrong-split", kinds, frozenset({at.rank}))
        open_ = len(peers) == 1 or len(group) == 2
        return replace(sure, also=frozenset({named}), note="one against one") if open_ else sure

    return truth


def _shifted(shapes: Shapes, peers: list[int], rows: int) -> Shapes:
    """More rows for the first of these members, fewer for the second: what one has too much the other lacks."""
    change = dict(zip(peers, (rows, -rows), strict=False))
    return tuple((shape[0] + change.get(i, 0), *shape[1:]) for i, shape in enumerate(shapes))


def late_device(job: Plan, rng: random.Random) -> TruthOf:
    """The device of one rank has more to compute in every step, and its host issues on time."""
    sends = any(isinstance(one, P2P | Batch) for one in job.steps[0][0])
    rank, more = rng.choice(list(job.steps)), rng.randrange(2000, 6000) * US
    for number, program in enumerate(job.steps[rank]):
        job.replace(rank, number, [Compute(more), *program])

    def truth(outcome: Outcome, options: DumpOptions) -> Truth:
        sure = Truth("late-device", frozenset({"straggler"}), frozenset({rank}), critical=False)
        layout = outcome.topology.layout
        stages = sends and layout.pp in (1, layout.world)
        untold = options.only_active or options.ring < FULL or not options.timing or stages
        return (
            replace(sure, also=frozenset({NOBODY}), note="no durations in the dumps, or every rank has work of its own")
            if untold
            else sure
        )

    return truth


FURTHER: dict[str, Inject] = {
    "midstep": midstep,
    "any-source": any_source,
    "wrong-split": wrong_split,
    "late-device": late_device,
}
"""These faults by name."""
