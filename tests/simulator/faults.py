"""Faults: each is put into a plan, and says what an answer has to name once the job has run."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from tests.simulator.instructions import (
    MS,
    P2P,
    Batch,
    Collective,
    Compute,
    Crash,
    DeviceDies,
    Host,
    Instruction,
    WaitAll,
)
from tests.simulator.job import Outcome, Plan, calls_of
from tests.simulator.options import DumpOptions
from tests.simulator.topology import WORLD
from tests.simulator.truth import Truth, decidable, drained, issued

TruthOf = Callable[[Outcome, DumpOptions], Truth]
Inject = Callable[[Plan, random.Random], TruthOf]

STUCK = frozenset({"missing-rank", "gpu-stuck"})
MISMATCH = frozenset({"collective-mismatch", "size-mismatch", "dtype-mismatch", "extra-collective"})
SHIFTED = MISMATCH | {"order-deadlock", "missing-rank"}
NOBODY: frozenset[int] = frozenset()
FULL = 1000
"""Entries of a ring that holds a whole simulated run."""
FIXED = ("all_reduce", "_all_gather_base", "_reduce_scatter_base")


@dataclass(frozen=True)
class Place:
    """A place in the plan."""

    rank: int
    step: int
    index: int
    instruction: Instruction


def _late_step(job: Plan, rng: random.Random) -> int:
    steps = len(next(iter(job.steps.values())))
    return rng.randrange(steps // 2, steps)


def pick(job: Plan, rng: random.Random, fits: Callable[[Instruction], bool], rank: int | None = None) -> Place:
    """A random place with such a communication, in the second half of the run."""
    step = _late_step(job, rng)
    ranks = list(job.steps) if rank is None else [rank]
    for candidate in rng.sample(ranks, len(ranks)):
        program = job.steps[candidate][step]
        places = [(i, one) for i, one in calls_of(program) if fits(one)]
        if places:
            index, one = rng.choice(places)
            return Place(candidate, step, index, one)
    raise LookupError("no rank has such an operation")


def _anything(_: Instruction) -> bool:
    return True


def put(job: Plan, at: Place, *instructions: Instruction, instead: bool = False) -> None:
    """Puts instructions before a place, or in its stead."""
    program = job.steps[at.rank][at.step]
    job.replace(at.rank, at.step, [*program[: at.index], *instructions, *program[at.index + instead :]])


def _said(fault: str, kinds: frozenset[str], *culprits: int) -> TruthOf:
    return lambda _outcome, _options: Truth(fault, kinds, frozenset(culprits))


def healthy(job: Plan, rng: random.Random) -> TruthOf:
    """Nothing is wrong."""
    return lambda _outcome, _options: Truth("healthy", frozenset(), NOBODY, critical=False)


def host_stuck(job: Plan, rng: random.Random) -> TruthOf:
    """A host stops issuing."""
    at = pick(job, rng, _anything)
    put(job, at, Host(None))
    return _said("host-stuck", STUCK | {"p2p-unmatched"}, at.rank)


def lost_dump(job: Plan, rng: random.Random) -> TruthOf:
    """A host stops issuing, and the dump of another rank gets lost."""
    at = pick(job, rng, _anything)
    put(job, at, Host(None))
    job.lost.add(rng.choice([r for r in job.steps if r != at.rank]))
    return _said("lost-dump", STUCK | {"p2p-unmatched"}, at.rank)


def crashed(job: Plan, rng: random.Random) -> TruthOf:
    """A process dies and leaves no dump."""
    at = pick(job, rng, _anything)
    put(job, at, Crash())
    return _said("crashed", STUCK | {"p2p-unmatched"}, at.rank)


def _stopped_device(fault: str, what: Instruction) -> Inject:
    def inject(job: Plan, rng: random.Random) -> TruthOf:
        at = pick(job, rng, _anything)
        put(job, at, what)

        def truth(outcome: Outcome, options: DumpOptions) -> Truth:
            sure = Truth(fault, STUCK, frozenset({at.rank}))
            if decidable(outcome, at.rank, options):
                return sure
            either = frozenset({"stuck-in-collective", "p2p-unmatched"})
            return replace(
                sure, also=frozenset({NOBODY}), also_kinds=either, note="all joined, nothing tells who stopped"
            )

        return truth

    return inject


device_dead = _stopped_device("device-dead", DeviceDies())
compute_hang = _stopped_device("compute-hang", Compute(None))


def _odd_one_out(fault: str, kinds: frozenset[str], rank: int, group: str) -> TruthOf:
    """Truth of a rank that deviates in a group: of two members, nothing says which of them is right."""

    def truth(outcome: Outcome, options: DumpOptions) -> Truth:
        members = frozenset(outcome.topology.groups[group])
        sure = Truth(fault, kinds, frozenset({rank}))
        return sure if len(members) > 2 else replace(sure, also=frozenset({members}), note="one against one")

    return truth


def _altered(fault: str, kinds: frozenset[str], alter: Callable[[Collective, random.Random], Collective]) -> Inject:
    def inject(job: Plan, rng: random.Random) -> TruthOf:
        at = pick(job, rng, lambda one: isinstance(one, Collective) and one.op in FIXED)
        assert isinstance(at.instruction, Collective)
        put(job, at, alter(at.instruction, rng), instead=True)
        said = _odd_one_out(fault, kinds, at.rank, at.instruction.group)

        def truth(outcome: Outcome, options: DumpOptions) -> Truth:
            gone = not outcome.engine.hung and (options.only_active or options.ring < FULL)
            sure = said(outcome, options)
            return replace(sure, also=sure.also | {NOBODY}, note="done, and no longer in the dumps") if gone else sure

        return truth

    return inject


def _other_op(one: Collective, rng: random.Random) -> Collective:
    other = rng.choice([op for op in ("all_reduce", "broadcast", "_reduce_scatter_base") if op != one.op])
    return replace(one, op=other)


def _other_size(one: Collective, rng: random.Random) -> Collective:
    def grow(shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
        return tuple((shape[0] * 2, *shape[1:]) for shape in shapes)

    return replace(one, inputs=grow(one.inputs), outputs=grow(one.outputs))


def _other_dtype(one: Collective, rng: random.Random) -> Collective:
    return replace(one, dtype=rng.choice([d for d in ("Float", "BFloat16", "Half") if d != one.dtype]))


wrong_op = _altered("wrong-op", frozenset({"collective-mismatch", "extra-collective"}), _other_op)
wrong_size = _altered("wrong-size", frozenset({"size-mismatch"}), _other_size)
wrong_dtype = _altered("wrong-dtype", frozenset({"dtype-mismatch"}), _other_dtype)


def extra(job: Plan, rng: random.Random) -> TruthOf:
    """One rank takes part in a collective that nobody else issues: a branch for rank 0 only."""
    at = pick(job, rng, lambda one: isinstance(one, Collective), rank=rng.choice([0, None]))
    barrier = Collective(WORLD, "all_reduce_barrier", ((1,),), ((1,),), "Byte", 9, blocks_host=rng.random() < 0.5)
    put(job, at, barrier)
    return _odd_one_out("extra", SHIFTED, at.rank, WORLD)


def skipped(job: Plan, rng: random.Random) -> TruthOf:
    """One rank leaves a collective out, and what it does next meets it."""
    at = pick(job, rng, lambda one: isinstance(one, Collective) and one.op != "coalesced")
    assert isinstance(at.instruction, Collective)
    put(job, at, instead=True)
    return _odd_one_out("skipped", SHIFTED, at.rank, at.instruction.group)


def order(job: Plan, rng: random.Random) -> TruthOf:
    """One rank enters two groups in the opposite order."""
    step = _late_step(job, rng)
    for rank in rng.sample(list(job.steps), len(job.steps)):
        pair = _swappable(job, rank, step)
        if pair:
            first, second = rng.choice(pair)
            program = list(job.steps[rank][step])
            program[first], program[second] = program[second], program[first]
            job.replace(rank, step, program)
            return _order_truth(rank, program[first], program[second])
    raise LookupError("no two groups share two members")


def _swappable(job: Plan, rank: int, step: int) -> list[tuple[int, int]]:
    program, groups = job.steps[rank][step], job.topology.groups
    return [
        (i, j) for (i, a), (j, b) in pairwise(calls_of(program))
        if isinstance(a, Collective) and isinstance(b, Collective) and b.wait
        and a.group != b.group and len(set(groups[a.group]) & set(groups[b.group])) > 1
        and (a.wait or any(isinstance(one, WaitAll) for one in program[i:j]))
    ]  # fmt: skip


def _order_truth(rank: int, *ops: Instruction) -> TruthOf:
    def truth(outcome: Outcome, options: DumpOptions) -> Truth:
        groups = [o.group for o in ops if isinstance(o, Collective)]
        shared = set(outcome.topology.groups[groups[0]]) & set(outcome.topology.groups[groups[1]])
        counts = {r: issued(outcome, r, groups[1]) for r in shared}
        # A host that stops before it comes to the other group has, as far as anybody sees, left it out.
        kinds = {"order-deadlock", *({"missing-rank"} if counts[rank] < max(counts.values()) else ())}
        sure = Truth("order", frozenset(kinds), frozenset({rank}))
        return sure if len(shared) > 2 else replace(sure, also=frozenset({frozenset(shared)}), note="one against one")

    return truth


def _lost(fault: str, op: str) -> Inject:
    def has(one: Instruction) -> bool:
        inner = one.inner if isinstance(one, Batch) else (one,)
        return any(isinstance(p, P2P) and p.op == op for p in inner)

    def inject(job: Plan, rng: random.Random) -> TruthOf:
        at = pick(job, rng, has)
        one = at.instruction
        lost = next(p for p in (one.inner if isinstance(one, Batch) else (one,)) if isinstance(p, P2P) and p.op == op)
        kept = tuple(p for p in one.inner if p is not lost) if isinstance(one, Batch) else ()
        rest = (replace(one, inner=kept),) if isinstance(one, Batch) and kept else ()
        put(job, at, *rest, instead=True)
        pair = frozenset({frozenset({at.rank, lost.peer})})
        kinds = frozenset({"p2p-unmatched", "missing-rank", "order-deadlock"})
        return lambda _outcome, _options: Truth(
            fault, kinds, frozenset({at.rank}), pair, note="later messages shift by one"
        )

    return inject


lost_send = _lost("lost-send", "send")
lost_recv = _lost("lost-recv", "recv")


def lost_batch(job: Plan, rng: random.Random) -> TruthOf:
    """A rank leaves a whole batch of sends and receives out."""
    at = pick(job, rng, lambda one: isinstance(one, Batch))
    assert isinstance(at.instruction, Batch)
    put(job, at, instead=True)
    also = frozenset(frozenset({at.rank, one.peer}) for one in at.instruction.inner)
    kinds = frozenset({"p2p-unmatched", "missing-rank", "order-deadlock"})
    return lambda _outcome, _options: Truth(
        "lost-batch", kinds, frozenset({at.rank}), also, note="later messages shift by one"
    )


def network(job: Plan, rng: random.Random) -> TruthOf:
    """A collective that everybody joins never ends."""
    at = pick(job, rng, lambda one: isinstance(one, Collective))
    job.stopped.add(job.seq_of(at.rank, at.step, at.index))
    return _said("network", frozenset({"stuck-in-collective"}))


def straggler(job: Plan, rng: random.Random) -> TruthOf:
    """One rank's host is late in every step; nothing hangs."""
    rank = rng.choice(list(job.steps))
    late = rng.randrange(30, 80) * MS
    for number, program in enumerate(job.steps[rank]):
        job.replace(rank, number, [Host(late), *program])

    def truth(_: Outcome, options: DumpOptions) -> Truth:
        sure = Truth("straggler", frozenset({"straggler"}), frozenset({rank}), critical=False)
        few = options.only_active or options.ring < FULL
        return replace(sure, also=frozenset({NOBODY}), note="too few steps in the dumps") if few else sure

    return truth


def two(job: Plan, rng: random.Random) -> TruthOf:
    """Two hosts that share no small group stop at the same step."""
    at = pick(job, rng, _anything)
    near = {
        r for kind, g in job.topology.of[at.rank].items() if kind in ("tp", "pp", "dp") for r in job.topology.groups[g]
    }
    far = [r for r in job.steps if r not in near | {at.rank}]
    if not far:
        raise LookupError("the job is too small for two independent faults")
    other = rng.choice(far)
    put(job, at, Host(None))
    job.replace(other, at.step, [Host(None), *job.steps[other][at.step]])
    fell = (at.rank, other)

    def truth(outcome: Outcome, options: DumpOptions) -> Truth:
        both = frozenset(r for r in fell if outcome.engine.hosts[r].stuck)
        seen = frozenset(r for r in both if drained(outcome, r))
        also = frozenset({seen}) if seen and seen != both else frozenset()
        note = "the host of one is stuck behind a device that waits for the other" if also else ""
        return Truth("two", STUCK | {"p2p-unmatched"}, both, also, note=note)

    return truth


FAULTS: dict[str, Inject] = {
    "healthy": healthy, "host-stuck": host_stuck, "lost-dump": lost_dump, "crashed": crashed,
    "device-dead": device_dead, "compute-hang": compute_hang, "wrong-op": wrong_op, "wrong-size": wrong_size,
    "wrong-dtype": wrong_dtype, "extra": extra, "skipped": skipped, "order": order, "lost-send": lost_send,
    "lost-recv": lost_recv, "network": network, "straggler": straggler, "two": two, "lost-batch": lost_batch,
}  # fmt: skip
"""All faults by name."""
