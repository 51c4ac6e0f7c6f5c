"""What hosts do by their innermost call: ranks that wait inside operators hide no late rank."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.features.traces.rules.critical_path import path_totals
from rankscope.features.traces.rules.device_spans import SpanIndex
from rankscope.features.traces.rules.host_pieces import WAIT_CALL, host_pieces
from rankscope.features.traces.rules.model import TRACE_RESULTS
from rankscope.features.traces.rules.trace_story import TraceStory
from rankscope.schema import Dataset
from tests.trace_tables import COMM, COMPUTE, COPY, HOST
from tests.traces import LAUNCH_NS, MS, START_NS, US, TraceBuilder

RELEASE_NS = 20 * US
"""How long after its device a host goes on."""
Call = tuple[str, str]
ITEM: tuple[Call, ...] = (("cpu_op", "aten::item"), ("cpu_op", "aten::_local_scalar_dense"))
SYNC: Call = ("cuda_runtime", "cudaStreamSynchronize")
WAYS: dict[str, tuple[Call, ...]] = {
    "item": (*ITEM, SYNC),
    "item without a call": ITEM,
    "annotation": (("user_annotation", "metrics"), ("cuda_runtime", "cudaEventSynchronize")),
    "autograd": (("cpu_op", "MeanBackward0"), *ITEM, ("cuda_runtime", "cudaDeviceSynchronize")),
    "driver": (("cpu_op", "aten::to"), SYNC, ("cuda_driver", "cuStreamSynchronize")),
    "copy": (("cpu_op", "aten::to"), ("cpu_op", "aten::copy_"), ("cuda_runtime", "cudaMemcpy")),
    "cudaMalloc": (("cpu_op", "aten::empty"), ("cuda_runtime", "cudaMalloc")),
    "cudaFree": (("cpu_op", "aten::cat"), ("cuda_runtime", "cudaFree")),
    "cuMemUnmap": (("cpu_op", "aten::cat"), ("cuda_driver", "cuMemUnmap")),
    "HIP": (("cpu_op", "aten::copy_"), ("cuda_runtime", "hipMemcpyWithStream")),
    "hipMalloc": (("cpu_op", "aten::empty"), ("cuda_runtime", "hipMalloc")),
    "NPU": (("cpu_op", "aten::copy_"), ("privateuse1_runtime", "aclrtSynchronizeStreamWithTimeout")),
    "XPU": (("cpu_op", "aten::copy_"), ("xpu_runtime", "urQueueFinish")),
    "MTIA": (("cpu_op", "aten::copy_"), ("mtia_runtime", "synchronizeStream")),
    "full queue": (("cpu_op", "aten::mm"), ("cuda_runtime", "cudaLaunchKernel")),
    "no call": (("cpu_op", "aten::cat"),),
}


def wait(job: TraceBuilder, rank: int, way: str) -> tuple[int, int]:
    """The host waits for its device; returns begin and end of its innermost call."""
    state = job.ranks[rank]
    start, end = state.host, max(state.host + 2 * US, *state.device.values()) + RELEASE_NS
    for depth, (category, name) in enumerate(WAYS[way]):
        job.span(rank, HOST, category, name, start + depth * US, end - start - 2 * depth * US)
    state.host = end
    inner = len(WAYS[way]) - 1
    return start + inner * US, end - inner * US


@pytest.mark.parametrize("way", WAYS)
def test_a_host_that_waits_inside_an_operator_does_not_work(way: str) -> None:
    job = TraceBuilder(1, jitter_ns=0)
    for _ in range(3):
        job.launch(0, "gemm", 20 * MS)
    begin, end = wait(job, 0, way)
    pieces = host_pieces(SpanIndex(job.build()), 0)
    stretch = np.array([START_NS + begin]), np.array([START_NS + end])
    assert pieces.work.within(*stretch).tolist() == [0]
    held = (pieces.wait_begins <= stretch[0]) & (pieces.wait_ends >= stretch[1])
    assert held.any()


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("cpu_op", "aten::mm"),
        ("cpu_op", "aten::items"),
        ("cuda_runtime", "cudaGraphInstantiate"),
        ("cpu_op", "cudaFree"),
    ],
)
def test_what_ends_while_the_device_has_work_left_is_work(category: str, name: str) -> None:
    job = TraceBuilder(1, jitter_ns=0)
    job.launch(0, "gemm", 20 * MS)
    job.host(0, name, 5 * MS, category)
    pieces = host_pieces(SpanIndex(job.build()), 0)
    assert pieces.work.within(np.array([START_NS]), np.array([START_NS + 20 * MS])).tolist() == [LAUNCH_NS + 5 * MS]


@pytest.mark.parametrize(
    "name", ["cudaMallocAsync", "cudaFreeAsync", "cudaMallocFromPoolAsync", "hipMemcpyAsync", "cudaStreamWaitEvent",
             "urEnqueueEventsWait", "urEnqueueEventsWaitWithBarrier", "cudaEventQuery", "cuMemAllocAsync",
             "aclrtMemcpyAsync", "cuLaunchKernel"],
)  # fmt: skip
def test_calls_that_return_at_once_are_not_known_to_wait(name: str) -> None:
    assert WAIT_CALL.search(name) is None


def test_a_stream_that_is_made_to_wait_holds_no_host() -> None:
    job = TraceBuilder(1, jitter_ns=0)
    job.launch(0, "gemm", 20 * MS)
    for name in ("cudaStreamWaitEvent", "urEnqueueEventsWait", "cudaEventQuery"):
        job.host(0, name, 5 * US, "cuda_runtime")
    assert len(host_pieces(SpanIndex(job.build()), 0).wait_begins) == 0


def test_a_copy_that_returns_behind_its_transfer_waits() -> None:
    job = TraceBuilder(1, jitter_ns=0)
    begin = job.ranks[0].host
    job.host(0, "aten::copy_", 9 * MS)
    job.span(0, HOST, "cuda_runtime", "cudaMemcpyAsync", begin + 10 * US, 8 * MS, correlation=7)
    job.span(0, COPY, "gpu_memcpy", "Memcpy DtoH", begin + 3 * MS, 4 * MS, correlation=7)
    pieces = host_pieces(SpanIndex(job.build()), 0)
    assert pieces.wait_begins.tolist() == [START_NS + begin + 10 * US]
    assert pieces.wait_ends.tolist() == [START_NS + begin + 10 * US + 8 * MS]


def test_what_cann_shows_in_rows_of_its_own_counts_for_the_thread() -> None:
    """The calls of CANN are another process with the same thread numbers, and have no category."""
    job = TraceBuilder(2, jitter_ns=0)
    job.launch(0, "gemm", 20 * MS)
    job.span(0, HOST, "cpu_op", "aten::to", 50 * US, 40 * MS)
    job.span(1, HOST, "", "AscendCL@aclrtSynchronizeStream", 60 * US, 19 * MS)
    dataset = job.build()
    one_file = dataset.tracks.with_columns(file=pl.lit(0, dtype=dataset.tracks["file"].dtype))
    pieces = host_pieces(SpanIndex(replace(dataset, tracks=one_file)), 0)
    found = pieces.work.within(np.array([START_NS + 50 * US]), np.array([START_NS + 41 * MS]))
    assert found.tolist() == [40 * MS - 19 * MS]


def training(
    way: str | None, late: Callable[[TraceBuilder, int], None] | None, *, collectives: int = 1, world: int = 4,
    steps: int = 5, seed: int = 0,
) -> Dataset:  # fmt: skip
    """All ranks wait behind each collective; rank 1 does `late` before the first of each step."""
    job, random = TraceBuilder(world, seed=seed), np.random.default_rng(seed)
    for step in range(steps):
        job.begin_step(step)
        for rank in range(world):
            job.host(rank, "aten::randn", 200 * US + int(random.integers(0, 300 * US)))
            if rank == 1 and late is not None:
                late(job, rank)
        for number in range(collectives):
            for rank in range(world) if number else ():
                job.launch(rank, "gemm", 2 * MS + int(random.integers(0, 300 * US)))
            job.collective()
            for rank in range(world) if way else ():
                wait(job, rank, way or "")
        for rank in range(world):
            job.launch(rank, "gemm", 6 * MS)
        job.end_step()
    return job.build()


def prepares(job: TraceBuilder, rank: int) -> None:
    job.host(rank, "prepare_batch", 60 * MS, "user_annotation")


def computes(job: TraceBuilder, rank: int) -> None:
    job.launch(rank, "extra_gemm", 60 * MS)


@pytest.mark.parametrize("way", ["item", "copy", "cudaFree", "full queue", "no call"])
@pytest.mark.parametrize("collectives", [1, 2])
def test_a_late_rank_is_named_however_the_others_wait_for_it(way: str, collectives: int) -> None:
    analysis = analyse(training(way, prepares, collectives=collectives))
    assert (analysis.status, analysis.culprits) == ("slow", (1,))
    assert "by 60 ms, because its host was in prepare_batch" in analysis.verdict


def test_a_late_device_is_named_where_hosts_wait() -> None:
    analysis = analyse(training("item", computes, world=2))
    assert analysis.culprits == (1,) and TRACE_RESULTS.find(analysis) is not None
    assert TRACE_RESULTS.of(analysis).causes[1].cause == "compute"


@pytest.mark.parametrize("way", ["item", "cudaMalloc", "no call"])
def test_nobody_is_late_where_all_wait_alike(way: str) -> None:
    assert analyse(training(way, None, seed=3)).status == "healthy"


def test_a_rank_that_issues_late_is_late_because_of_its_host_whatever_its_device_computes() -> None:
    """Its kernels were queued on all ranks alike; the collective runs on a stream of its own at once."""
    job = TraceBuilder(4)
    for step in range(6):
        job.begin_step(step)
        for rank in range(4):
            for _ in range(9):
                job.launch(rank, "gemm", 5 * MS)
            if rank == 2:
                job.host(rank, "load_batch", 25 * MS, "user_annotation")
        queued = {rank: job.ranks[rank].device[COMPUTE] for rank in range(4)}
        for rank in range(4):
            job.ranks[rank].device[COMPUTE] = 0
        job.collective(op="all_to_all", blocks=False)
        for rank in range(4):
            job.ranks[rank].device[COMPUTE] = queued[rank]
        job.collective(op="all_to_all")
        job.end_step()
    analysis = analyse(job.build())
    assert analysis.culprits == (2,) and TRACE_RESULTS.find(analysis) is not None
    cause = TRACE_RESULTS.of(analysis).causes[2]
    assert (cause.cause, cause.what) == ("host", "load_batch")
    assert cause.share > 0.9
    assert "of that time goes to its host, which was in load_batch" in analysis.findings[0].explanation


@pytest.mark.parametrize("way", ["item", "no call", "cudaFree"])
def test_a_critical_path_goes_through_the_late_host_and_not_through_one_that_waits(way: str) -> None:
    found = TraceStory(training(way, prepares, steps=4)).analysis()
    host = path_totals(found.path).filter((pl.col("kind") == "host") & (pl.col("rank") == 1))
    assert host.height == 4 and (host["total_ns"] > 60 * MS).all()


# A table that shows a large loss, and the word healthy, exclude each other.


def hidden_work(late: Sequence[int], world: int = 4) -> Dataset:
    """In each step one rank works 60 ms before the collective, and the others as long in operators behind its issue."""
    job = TraceBuilder(world)
    for step in range(len(late)):
        job.begin_step(step)
        for rank in range(world):
            if rank == late[step]:
                job.host(rank, "prepare_batch", 60 * MS, "user_annotation")
        job.collective()
        for rank in range(world):
            if rank != late[step]:
                job.host(rank, "aten::index", 65 * MS)
            job.launch(rank, "gemm", 2 * MS)
        job.end_step()
    return job.build()


def test_a_rank_for_which_all_wait_without_a_proven_cause_is_a_suspect_and_the_job_not_healthy() -> None:
    analysis = analyse(hidden_work([1] * 6))
    assert (analysis.status, analysis.culprits) == ("unknown", ())
    (finding,) = analysis.findings
    assert (finding.kind, finding.candidates, finding.root_cause) == ("straggler", (1,), False)
    assert finding.confidence == "low" and finding.next_steps
    assert re.search(r"the others wait for rank 1 for [56]\d ms \(\d\d %\) of each step, in 6 of 6", analysis.verdict)


def test_a_job_that_waits_for_another_rank_in_each_step_is_not_healthy() -> None:
    analysis = analyse(hidden_work(range(8), world=8))
    assert (analysis.status, analysis.findings) == ("unknown", ())
    assert "of each step, and it is not always the same one" in analysis.verdict


def test_waits_beside_computing_lose_nothing() -> None:
    """The kernel of a collective waits for rank 1 on its own stream, while all devices compute."""
    job = TraceBuilder(4)
    for step in range(6):
        job.begin_step(step)
        for rank in range(4):
            job.ranks[rank].device[COMM] = job.ranks[rank].host
            job.launch(rank, "gemm", 60 * MS)
        ready = {rank: job.ranks[rank].device[COMPUTE] for rank in range(4)}
        for rank in range(4):
            job.ranks[rank].device[COMPUTE] = job.ranks[rank].host + (20 * MS if rank == 1 else 0)
        job.collective(blocks=False)
        for rank in range(4):
            job.ranks[rank].device[COMPUTE] = ready[rank]
        job.end_step()
    assert TraceStory(job.build()).lost is None
