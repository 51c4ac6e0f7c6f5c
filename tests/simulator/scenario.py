"""Scenarios by number: a job of some shape with some fault, everything drawn from the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

from tests.simulator.fairness import fair
from tests.simulator.faults import FAULTS, TruthOf
from tests.simulator.further_faults import FURTHER, add_flags
from tests.simulator.instructions import MS
from tests.simulator.job import Outcome, plan, run
from tests.simulator.moments import SLOW, When, hang_beside, mark_half, moment_of, seen_at
from tests.simulator.options import ALL_MODES, DumpOptions, Job, Moment
from tests.simulator.programs import Style
from tests.simulator.shifted_calls import SHIFTED_CALLS
from tests.simulator.topology import Layout
from tests.simulator.truth import Truth

Shape = tuple[Layout, Style]

DDP, FSDP, MEGATRON = Style("ddp", layers=4), Style("fsdp", layers=3), Style("megatron", layers=1)
SINGLE = replace(MEGATRON, batched=False)
COALESCED = replace(FSDP, coalesced=True)
RING, LONG_RING = Style("ring", layers=1), Style("ring", layers=3)

SMALL: tuple[Shape, ...] = (
    (Layout(dp=4), DDP), (Layout(dp=8), DDP), (Layout(tp=8), FSDP), (Layout(tp=4, dp=2), FSDP),
    (Layout(tp=4), COALESCED), (Layout(tp=2, dp=2, pp=2), MEGATRON), (Layout(tp=2, pp=4), SINGLE),
    (Layout(tp=4, dp=2), MEGATRON), (Layout(dp=2, pp=4), MEGATRON), (Layout(tp=2, dp=4, pp=2, ep=4), MEGATRON),
    (Layout(pp=4), SINGLE), (Layout(tp=2, dp=2, pp=4), SINGLE), (Layout(dp=4, pp=2, ep=2), SINGLE),
)  # fmt: skip
MEDIUM: tuple[Shape, ...] = (
    (Layout(tp=2, dp=4, pp=4), MEGATRON), (Layout(tp=4, dp=4, pp=2, ep=8), SINGLE), (Layout(tp=8, dp=8), FSDP),
    (Layout(tp=4, dp=4, pp=4), MEGATRON), (Layout(dp=32), DDP), (Layout(tp=8, dp=2, pp=4, ep=16), MEGATRON),
)  # fmt: skip
LARGE: tuple[Shape, ...] = (
    (Layout(tp=8, dp=8, pp=4), MEGATRON), (Layout(tp=8, dp=16, pp=4, ep=8), SINGLE), (Layout(tp=8, dp=32), FSDP),
)  # fmt: skip
RINGS: tuple[Shape, ...] = (
    (Layout(dp=3), RING), (Layout(dp=4), RING), (Layout(tp=2, dp=2), LONG_RING), (Layout(dp=8), LONG_RING),
)  # fmt: skip
"""Rings in which every rank sends to the next, in the group of its collectives, and no replica tells who is right."""
COLLECTOR, LISTS = Style("ddp", layers=1, collects=True), replace(MEGATRON, lists=True)
OWN_SHAPES: dict[str, tuple[Shape, ...]] = {
    "any-source": ((Layout(dp=4), COLLECTOR), (Layout(dp=8), COLLECTOR), (Layout(tp=2, dp=2), COLLECTOR)),
    "wrong-split": (
        (Layout(dp=4, ep=4), LISTS), (Layout(dp=8, ep=8), LISTS), (Layout(tp=2, dp=4, pp=2, ep=4), LISTS),
        (Layout(dp=6, pp=2, ep=3), LISTS),
    ),
}  # fmt: skip
"""Jobs that alone have a place for a fault, whatever the size asked for."""
ALL_FAULTS = {**FAULTS, **FURTHER, **SHIFTED_CALLS}
HEALTHY = ("healthy", "midstep")
ONLY_MODES: dict[str, tuple[str, ...]] = {"any-source": ("hook fallback",)}
"""Kinds of dump that alone can show a fault: nccl2 receives from nobody in particular."""
SIZES = {"small": SMALL, "medium": MEDIUM, "large": LARGE, "rings": RINGS}
STEPS = 4
ATTEMPTS = 1000


@dataclass(frozen=True)
class Scenario:
    """A job that has run with its fault."""

    name: str
    outcome: Outcome
    truth_of: TruthOf
    moment: Moment
    when: When | None = None

    def truth(self, options: DumpOptions) -> Truth:
        """What dumps taken with these options allow to be said."""
        truth = fair(self.truth_of(self.outcome, options), self.outcome, options)
        return truth if self.when is None else seen_at(self.when, truth, self.outcome, self.moment, options)

    def write(self, folder: Path, options: DumpOptions, shuffle: int | None = None) -> Truth:
        """Writes the dumps, in an order drawn from `shuffle`, and returns the truth."""
        ranks = list(self.outcome.records)
        if shuffle is not None:
            random.Random(shuffle).shuffle(ranks)
        self.outcome.write(folder, self.moment, options, ranks)
        return self.truth(options)


def modes_of(fault: str, scenario: Scenario, job: Job) -> list[str]:
    """The kinds of dump that this job can leave: where nothing stops, nobody sees a time-out."""
    given_up = scenario.outcome.engine.hung and scenario.when not in ("before", "mid-step")
    there = [m for m, o in ALL_MODES.items() if o.job == job and (given_up or not o.own_only)]
    return [m for m in there if m in ONLY_MODES.get(fault, there)]


def whens_of(fault: str) -> tuple[When, ...]:
    """The moments that a job with this fault has: without a fault nothing hangs, and nothing is before it."""
    match fault:
        case "midstep":
            return ("mid-step",)
        case "healthy":
            return ("mid-step", "after")
        case "wrong-dtype":
            return ("before", "mid-step", "after")
        case _:
            return ("before", "mid-step", "hang", "after")


def make(fault: str, seed: int, size: str = "small", job: Job = "legacy", when: When | None = None) -> Scenario:
    """The scenario of this number; draws again until the job has a place for the fault and it strikes.

    `job` tells what the ranks communicate through, `when` the moment of the dumps, which is drawn where it is None.
    Raises LookupError where none of the jobs of that size can have it.
    """
    for attempt in range(ATTEMPTS):
        rng = random.Random(f"{fault}/{size}/{seed}/{attempt}")
        layout, style = rng.choice(OWN_SHAPES.get(fault, SIZES[size]))
        try:
            scenario = _make(fault, f"{fault}-{size}-{seed}", layout, style, rng, job, when)
        except LookupError:
            continue
        if _struck(fault, scenario, when):
            return replace(scenario, when=when)
    raise LookupError(f"no place for {fault} in any of the {size} jobs")


def _make(
    fault: str, name: str, layout: Layout, style: Style, rng: random.Random, kind: Job, when: When | None
) -> Scenario:  # fmt: skip
    if style.coalesced and kind == "mixed":
        raise LookupError("NCCL's own recorder and the hook do not write the same calls")
    long = fault in SLOW or (fault == "healthy" and rng.random() < 0.5)
    # a job that is caught while it runs has done many steps, and a watchdog notes ends and durations every 100 ms only
    count = 10 if fault in SLOW and when is not None else 3 if long else 1
    job = plan(layout, style, steps=count * STEPS, past=0 if long else rng.choice([0, 2, 10]))
    job.eager_bytes = rng.choice([0, 0, 1 << 20])
    if when is not None:
        mark_half(job)
    truth_of = ALL_FAULTS[fault](job, rng)
    if when == "hang" and fault in SLOW:
        truth_of = hang_beside(job, rng, truth_of)
    # A clock off by more than the rank is late hides it from whoever compares clocks.
    skew = rng.choice([0, 2 * MS] if fault in SLOW else [0, 2 * MS, 400 * MS])
    if kind == "two":
        add_flags(job, random.Random(name))
    outcome = run(job, rng.randrange(1 << 30), skew, kind=kind)
    quiet: tuple[Moment, ...] = ("live", "live-apart", "ended")
    stopped: tuple[Moment, ...] = ("timeout", "own", "apart")
    if fault == "midstep":
        quiet = ("live", "live-apart")
    drawn = rng.choice(stopped if outcome.engine.hung else quiet if fault in HEALTHY else ("ended",))
    moment = drawn if when is None else moment_of(when, outcome.engine.hung, rng)
    single = "" if style.batched else " single"
    shape = f"{style.name}{single} tp{layout.tp} dp{layout.dp} pp{layout.pp} ep{layout.ep}"
    return Scenario(f"{name} ({shape}, {moment}, past {job.past}, skew {skew // MS} ms)", outcome, truth_of, moment)


def _struck(fault: str, scenario: Scenario, when: When | None) -> bool:
    hung = scenario.outcome.engine.hung
    if fault in (*HEALTHY, *SLOW):
        return hung == (when == "hang")
    if fault == "two":
        return len(scenario.truth(DumpOptions()).culprits) == 2
    return hung or fault == "wrong-dtype"
