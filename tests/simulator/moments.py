"""Moments at which the dumps of a job are taken, seen from its fault, and what dumps of a moment allow to be said."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from tests.simulator.faults import NOBODY, STUCK, TruthOf, pick, put
from tests.simulator.instructions import Collective, Host, Instruction, Mark
from tests.simulator.job import Outcome, Plan
from tests.simulator.options import DumpOptions, Moment
from tests.simulator.truth import Truth

When = Literal["before", "mid-step", "hang", "after"]
"""Before the fault strikes; in the middle of its step, while ranks still move; in the hang; after the end of the job,
or after every watchdog has given up."""
FEW_STEPS, FEW_STEPS_OF_TWO = 6, 13
"""Steps from which on a rank of at least four, or of two, that is late in each of them must be named."""


def mark_half(job: Plan) -> None:
    """Marks the first step that a fault can strike in."""
    half = len(job.steps[0]) // 2
    for rank, programs in job.steps.items():
        job.replace(rank, half, [Mark(), *programs[half]])


def hang_beside(job: Plan, rng: random.Random, truth_of: TruthOf) -> TruthOf:
    """Lets the host of another rank than the late one stop in the second half of the job."""

    def call(one: Instruction) -> bool:
        return isinstance(one, Collective)

    late = next(rank for rank, programs in job.steps.items() if programs[0] != job.healthy[rank])
    at = next(place for _ in range(1000) if (place := pick(job, rng, call)).rank != late)
    put(job, at, Host(None))

    def truth(outcome: Outcome, options: DumpOptions) -> Truth:
        slow = truth_of(outcome, options)
        return Truth(
            slow.fault, STUCK | {"p2p-unmatched"}, frozenset({at.rank}), beside=frozenset({late}),
            beside_open=NOBODY in slow.also,
        )  # fmt: skip

    return truth


def moment_of(when: When, hung: bool, rng: random.Random) -> Moment:
    """The moment of the dumps; LookupError for the hang of a job that does not hang."""
    moments: dict[When, tuple[Moment, ...]] = {
        "before": ("before",),
        "mid-step": ("breaking",) if hung else ("live", "live-apart"),
        "hang": ("timeout", "apart") if hung else (),
        "after": ("own",) if hung else ("ended",),
    }
    if not moments[when]:
        raise LookupError("nothing hangs")
    return rng.choice(moments[when])


def seen_at(when: When, truth: Truth, outcome: Outcome, moment: Moment, options: DumpOptions) -> Truth:
    """The truth with what a moment leaves open."""
    if when in ("before", "mid-step") and outcome.lost and options.copied_ns is not None:
        # without the times of files a running job looks as if it waited for the rank without a dump
        kinds = truth.also_kinds | {"missing-rank"}
        right = truth if when == "mid-step" else Truth(truth.fault, frozenset(), NOBODY)
        return replace(right, also=right.also | {NOBODY, outcome.lost}, also_kinds=kinds, note="no times, and no dump")
    if when == "before" and truth.fault not in SLOW:
        return Truth(truth.fault, frozenset(), NOBODY, critical=False, note="nothing is wrong yet")
    if when == "mid-step" and truth.fault not in SLOW:
        return replace(truth, also=truth.also | {NOBODY}, note="the job still moves")
    if truth.fault in SLOW and _steps(outcome, moment, options, truth.fault == "late-device") < _fewest(truth, outcome):
        few = "too few steps in the dumps"
        return (
            replace(truth, also=truth.also | {NOBODY}, note=few)
            if not truth.beside
            else replace(truth, beside_open=True)
        )
    return truth


SLOW = ("straggler", "late-device")
"""Faults of jobs that go on, and are to run for longer."""


def _fewest(truth: Truth, outcome: Outcome) -> int:
    """The number of steps that show who is late: stages of a pipeline are compared with their replicas only."""
    layout = outcome.topology.layout
    members = layout.world if truth.fault == "straggler" or layout.pp == 1 else max(layout.tp, layout.dp)
    return FEW_STEPS if members > 3 else FEW_STEPS_OF_TWO


def _steps(outcome: Outcome, moment: Moment, options: DumpOptions, durations: bool) -> float:
    """The number of steps that all dumps hold, or have `durations` of."""
    times = outcome.dump_times(moment, options)

    def share(rank: int) -> float:
        records, dog = outcome.records[rank], outcome.watchdogs[rank]
        if durations:
            return sum(dog.looks_after(record.done, times[rank]) is not None for record in records) / len(records)
        return sum(record.created <= times[rank] for record in records) / len(records)

    return outcome.steps * min(share(rank) for rank in times)
