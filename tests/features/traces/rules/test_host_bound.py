"""Jobs whose devices wait for their hosts, by what the hosts do meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Finding
from tests.features.traces.read.documents import Event, about, all_reduce, document, kernel, launch, loaded, x
from tests.traces import MS, US, TraceBuilder, training

STEPS = 6


def stepping(each: Callable[[TraceBuilder, int], None], ranks: int = 4) -> TraceBuilder:
    """A job in which each rank does that in each step before it reduces."""
    job = TraceBuilder(ranks)
    for step in range(STEPS):
        job.begin_step(step)
        for rank in range(ranks):
            each(job, rank)
        job.collective()
        job.end_step()
    return job


def loading(job: TraceBuilder, rank: int) -> None:
    job.host(rank, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 40 * MS)
    job.launch(rank, "gemm", 2 * MS)


def launching(job: TraceBuilder, rank: int) -> None:
    for _ in range(300):
        job.host(rank, "aten::add_", 100 * US)
        job.launch(rank, "add", 3 * US)


def silent(job: TraceBuilder, rank: int) -> None:
    job.idle(rank, 40 * MS)
    job.launch(rank, "gemm", 2 * MS)


def saving(job: TraceBuilder, rank: int) -> None:
    job.host(rank, "torch/serialization.py(900): save_checkpoint", 40 * MS, "python_function")
    job.launch(rank, "gemm", 2 * MS)


@pytest.mark.parametrize(
    ("each", "said", "advice"),
    [
        (loading, "their hosts spend 40 ms of it in data loading", "num_workers"),
        (launching, "their hosts launch 301 kernels a step one by one, of 3 us", "CUDA graphs"),
        (silent, "the traces do not show why", "with_stack=True"),
        (saving, "their hosts spend 40 ms of it in checkpointing", "Do checkpointing less often"),
    ],
)
def test_devices_that_idle_are_not_healthy(each: Callable[[TraceBuilder, int], None], said: str, advice: str) -> None:
    analysis = analyse(stepping(each).build())
    (finding,) = (f for f in analysis.findings if f.kind == "host-bound")
    assert analysis.status == "slow" and analysis.verdict == finding.title
    assert finding.title.startswith("devices of all 4 traced ranks idle for ") and said in finding.title
    assert advice in " ".join(finding.next_steps) and not finding.culprit_ranks


def test_devices_that_compute_do_not_wait_for_their_hosts() -> None:
    analysis = analyse(training(4, STEPS).build())
    assert analysis.status == "healthy" and not [f for f in analysis.findings if f.kind == "host-bound"]


def test_a_wait_in_a_collective_is_no_idle_device() -> None:
    analysis = analyse(training(4, STEPS, slow_host={2: 60 * MS}).build())
    assert analysis.culprits == (2,) and not [f for f in analysis.findings if f.kind == "host-bound"]


def allocating(folder: Path, calls: tuple[str, ...], steps: range = range(STEPS)) -> list[Finding]:
    """The findings of a rank that computes nearly always, and makes these calls of 100 us in some of its steps."""
    events: list[Event] = []
    for n in range(STEPS):
        at = 1000 * n
        events += [x("user_annotation", f"ProfilerStep#{n}", at, 1000), launch(at + 3, 10 + n)]
        events += [kernel("gemm", at + 20, 700, 10 + n), *all_reduce(at + 800, 100 + n)]
        if n in steps:
            events += [launch(at + 300 + 110 * i, 1000 + 10 * n + i, name=c, dur=100) for i, c in enumerate(calls)]
    return list(analyse(loaded(folder, {"r.json": document(events, about(0))})).findings)


def test_flushes_of_the_allocator_within_steps_have_a_cost(tmp_path: Path) -> None:
    (finding,) = allocating(tmp_path, ("cudaFree", "cudaMalloc"))
    assert finding.kind == "allocator-flush"
    assert "the allocator of rank 0" in finding.title and "200 us of each step of 1 ms (20 %)" in finding.title
    assert "expandable_segments" in finding.next_steps[0]


@pytest.mark.parametrize(
    ("calls", "steps"),
    [(("cudaMalloc",), range(STEPS)), (("cudaFree", "cudaMalloc"), range(1)),
     (("cudaFreeAsync", "cudaMallocAsync"), range(STEPS)), (("cudaFreeHost", "cudaMallocHost"), range(STEPS))],
)  # fmt: skip
def test_memory_that_is_taken_once_or_beside_the_device_is_no_flush(
    calls: tuple[str, ...], steps: range, tmp_path: Path
) -> None:
    assert allocating(tmp_path, calls, steps) == []
