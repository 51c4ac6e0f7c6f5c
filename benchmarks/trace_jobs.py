"""Simulated jobs whose traces have a late rank or none: data, tensor and pipeline parallel, with noise as in real ones.

Every rank is a little faster or slower than the others, every kernel takes a little longer or shorter, hosts differ in
their clocks, and now and then some host pauses. Delays are shares of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
from tests.traces import MS, US, TraceBuilder

from rankscope.schema import Dataset

FAULTS = ("healthy", "host", "compute", "launch", "two-hosts", "pauses", "clocks", "every-third")
"""Of which "healthy", "pauses" (long ones, of any rank, at times) and "clocks" (tens of ms apart) have no culprit."""
CAUSES = {"host": "host", "compute": "compute", "launch": "launch", "two-hosts": "host",
          "every-third": "host"}  # fmt: skip
MODES = ("whole", "no-steps", "cut", "short", "first-paint", "numbered")
"""How it was recorded: without steps, windows that begin at different calls, four steps, without spans, with Seq."""
LAYERS = 3
KERNEL_NS = 3 * MS
STEP_NS = 2 * LAYERS * KERNEL_NS
"""About what a step takes."""


@dataclass(frozen=True)
class Plan:
    """What a job does and what is wrong with it."""

    fault: str
    world: int
    seed: int
    steps: int = 12
    culprits: tuple[int, ...] = ()
    delay_ns: int = 0
    speeds: Mapping[int, float] = field(default_factory=dict)
    """By rank what its kernels take, of what is usual."""


def plan(fault: str, world: int, seed: int) -> Plan:
    """A job with its fault at a random place."""
    random = np.random.default_rng([seed, world, FAULTS.index(fault)])
    number = {"two-hosts": 2, "healthy": 0, "pauses": 0, "clocks": 0}.get(fault, 1)
    culprits = tuple(sorted(int(r) for r in random.choice(world, number, replace=False)))
    delay = int(random.uniform(0.05, 0.6) * STEP_NS)
    return Plan(fault, world, seed, 12, culprits, delay, {r: float(random.normal(1, 0.005)) for r in range(world)})


def hidden(job: Plan, program: str) -> set[int]:
    """Culprits that nobody waits for: in the second stage, busy for no longer than the first takes."""
    if program != "pipeline" or CAUSES.get(job.fault) != "host" or 0.8 * job.delay_ns > KERNEL_NS + MS:
        return set()
    return {rank for rank in job.culprits if rank >= job.world // 2}


def make(job: Plan, program: str, mode: str) -> Dataset:
    """The traces of a job."""
    if mode == "short":
        job = replace(job, steps=4)
    random = np.random.default_rng([job.seed, job.world, len(program)])
    apart = 40 * MS if job.fault == "clocks" else MS
    hosts = max(1, job.world // 4)
    clocks = random.integers(-apart, apart + 1, job.world // hosts + 1)
    builder = TraceBuilder(
        job.world, _groups(program, job.world), hosts=hosts, seqs=mode == "numbered", seed=job.seed,
        clock_ns={r: int(clocks[r // hosts]) for r in range(job.world)},
    )  # fmt: skip
    builder.descriptions.update({name: name.rstrip("0123456789") for name in builder.group_ranks if name != "0"})
    for step in range(job.steps):
        builder.begin_step(step + 3)
        _loading(job, builder, random, step)
        PROGRAMS[program](job, builder, random)
        builder.end_step()
    return _recorded(builder.build(), mode, random)


def _groups(program: str, world: int) -> dict[str, list[int]]:
    half = world // 2
    if program == "tensor":
        pairs = {f"tp{i}": [2 * i, 2 * i + 1] for i in range(half)}
        return {**pairs, **{f"dp{i}": list(range(i, world, 2)) for i in range(2)}}
    if program == "pipeline":
        return {**{f"pp{i}": [i, i + half] for i in range(half)},
                **{f"dp{i}": list(range(i * half, (i + 1) * half)) for i in range(2)}}  # fmt: skip
    return {}


def _loading(job: Plan, builder: TraceBuilder, random: np.random.Generator, step: int) -> None:
    slow = job.fault in ("host", "two-hosts") or (job.fault == "every-third" and step % 3 == job.seed % 3)
    for rank in range(job.world):
        builder.host(rank, "aten::randn", int(random.gamma(4, 80 * US)), within=("train.py(20): step",))
        if rank in job.culprits and slow:
            length = int(job.delay_ns * random.uniform(0.8, 1.2))
            builder.host(rank, "<built-in function sleep>", length, "python_function", ("data.py(12): __next__",))
        if random.random() < (0.1 if job.fault == "pauses" else 0.01):
            builder.idle(rank, int(random.uniform(0.1, 2) * STEP_NS))


def _compute(job: Plan, builder: TraceBuilder, random: np.random.Generator, rank: int, first: bool) -> None:
    slow = 1 + (job.delay_ns / STEP_NS if job.fault == "compute" and rank in job.culprits else 0.0)
    length = KERNEL_NS * slow * job.speeds.get(rank, 1.0) * float(random.lognormal(0, 0.03))
    builder.launch(rank, "gemm", int(length))
    if first:
        held = job.delay_ns if job.fault == "launch" and rank in job.culprits else 0
        builder.launch(rank, "relu", 50 * US, delay_ns=held)


def _data(job: Plan, builder: TraceBuilder, random: np.random.Generator) -> None:
    """Backward with an all-reduce behind each layer, the next layer running meanwhile."""
    for layer in range(2 * LAYERS):
        for rank in range(job.world):
            _compute(job, builder, random, rank, first=layer == 0)
        if layer >= LAYERS:
            builder.collective(nelems=1 << (18 + layer), length_ns=MS, blocks=layer == 2 * LAYERS - 1)


def _tensor(job: Plan, builder: TraceBuilder, random: np.random.Generator) -> None:
    """Pairs that reduce behind each layer, replicas at the end."""
    for layer in range(2 * LAYERS):
        for rank in range(job.world):
            _compute(job, builder, random, rank, first=layer == 0)
        for pair in range(job.world // 2):
            builder.collective(f"tp{pair}", length_ns=300 * US)
    for side in range(2):
        builder.collective(f"dp{side}", nelems=1 << 22, length_ns=2 * MS)


def _pipeline(job: Plan, builder: TraceBuilder, random: np.random.Generator) -> None:
    """Two stages, the second with more to do; replicas of a stage reduce at the end, then all ranks."""
    half = job.world // 2
    for micro in range(2):
        for rank in range(half):
            _compute(job, builder, random, rank, first=micro == 0)
            builder.p2p(f"pp{rank}", rank, rank + half)
            for again in range(2):
                _compute(job, builder, random, rank + half, first=micro + again == 0)
            builder.p2p(f"pp{rank}", rank + half, rank)
            _compute(job, builder, random, rank, first=False)
    for stage in range(2):
        builder.collective(f"dp{stage}", nelems=1 << 22, length_ns=2 * MS)
    builder.collective("0", nelems=1, length_ns=50 * US)


PROGRAMS: dict[str, Callable[[Plan, TraceBuilder, np.random.Generator], None]] = {
    "data": _data, "tensor": _tensor, "pipeline": _pipeline,
}  # fmt: skip


def _recorded(dataset: Dataset, mode: str, random: np.random.Generator) -> Dataset:
    """What is left of a job's traces, by how they were recorded."""
    name = pl.col("name").cast(pl.String)
    if mode == "no-steps":
        return replace(dataset, spans=dataset.spans.filter(~name.str.starts_with("ProfilerStep")))
    if mode == "first-paint":
        return replace(dataset, spans=dataset.spans.filter(name.str.starts_with("ProfilerStep")))
    if mode != "cut":
        return dataset
    counts = {rank: int(random.integers(0, 5)) for rank in range(dataset.world_size)}
    begin = pl.col("rank").replace_strict(counts, return_dtype=pl.Int64)
    return replace(dataset, traced=dataset.traced.filter(pl.int_range(pl.len()).over("rank") >= begin))
