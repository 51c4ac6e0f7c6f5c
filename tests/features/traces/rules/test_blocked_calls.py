"""Each kind of call that holds a host, as the profiler of torch writes it, in lateness, cause and critical path alike.

The hosts go on HELD_US after their device, so that nothing but the kind of the call tells that they waited.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.features.traces.rules.device_spans import SpanIndex
from rankscope.features.traces.rules.host_pieces import host_pieces
from rankscope.features.traces.rules.model import TRACE_RESULTS
from rankscope.features.traces.rules.path_nodes import path_nodes
from tests.features.traces.read.documents import (
    Event,
    about,
    all_reduce,
    document,
    kernel,
    launch,
    loaded,
    x,
)
from tests.traces import US

RANKS, STEPS, LATE = 3, 6, 1
STEP_US, LATE_US = 90_000.0, 50_000.0
HELD_US = 400.0
Blocked = Callable[[float, float, int], tuple[list[Event], float]]
"""From the begin of a call, the time when the device is done, and a correlation: the events and the end of the call."""


def in_operators(*operators: str, call: str = "", category: str = "cuda_runtime") -> Blocked:
    """A call inside of operators that returns behind the device."""

    def events(begin: float, done: float, correlation: int) -> tuple[list[Event], float]:
        end = done + HELD_US
        around = [x("cpu_op", name, begin + n, end - begin - 2 * n) for n, name in enumerate(operators)]
        inside = begin + len(operators)
        span = x(category, call, inside, end - inside - len(operators), correlation=correlation)
        return ([*around, span] if call else around), end

    return events


def pageable(call: str, kind: str) -> Blocked:
    """A copy of pageable memory: the call returns 30 us before the end of the transfer."""

    def events(begin: float, done: float, correlation: int) -> tuple[list[Event], float]:
        end = done + HELD_US
        copied = {"pid": 0, "tid": 7, "stream": 7, "correlation": correlation}
        return [
            x("cpu_op", "aten::copy_", begin, end - begin + 5),
            x("cuda_runtime", call, begin + 1, end - begin - 1, correlation=correlation),
            x("gpu_memcpy", f"Memcpy {kind}", done + 5, HELD_US + 25, **copied),
        ], end + 5

    return events


def full_queue(call: str) -> Blocked:
    """A launch that returns when the device has done part of its work, since there is room in its queue again."""

    def events(begin: float, done: float, correlation: int) -> tuple[list[Event], float]:
        end = done + 10
        return [
            launch(begin, 1_000 + correlation, name=call, dur=5), kernel("queued", done + 2, 900, 1_000 + correlation),
            x("cpu_op", "aten::mul", begin + 6, end - begin - 6),
            launch(begin + 8, correlation, name=call, dur=end - begin - 10), kernel("mul", done + 903, 3, correlation),
        ], end  # fmt: skip

    return events


BLOCKED: dict[str, Blocked] = {
    "item": in_operators("aten::item", "aten::_local_scalar_dense", call="cudaStreamSynchronize"),
    "item without its calls": in_operators("aten::item", "aten::_local_scalar_dense"),
    "cudaMemcpy": in_operators("aten::to", "aten::copy_", call="cudaMemcpy"),
    "cudaMemcpyAsync from pageable memory": pageable("cudaMemcpyAsync", "HtoD (Pageable -> Device)"),
    "cudaMemcpyAsync to pageable memory": pageable("cudaMemcpyAsync", "DtoH (Device -> Pageable)"),
    "cudaDeviceSynchronize": in_operators("aten::index", call="cudaDeviceSynchronize"),
    "cudaEventSynchronize": in_operators("aten::index", call="cudaEventSynchronize"),
    "cudaMalloc": in_operators("aten::empty", call="cudaMalloc"),
    "cudaFree": in_operators("aten::cat", call="cudaFree"),
    "cuMemCreate": in_operators("aten::empty", call="cuMemCreate", category="cuda_driver"),
    "cuMemUnmap": in_operators("aten::cat", call="cuMemUnmap", category="cuda_driver"),
    "cudaLaunchKernel": full_queue("cudaLaunchKernel"),
    "cuLaunchKernelEx": full_queue("cuLaunchKernelEx"),
    "hipLaunchKernel": full_queue("hipLaunchKernel"),
    "hipMemcpyWithStream": in_operators("aten::copy_", call="hipMemcpyWithStream"),
    "hipStreamSynchronize": in_operators("aten::item", call="hipStreamSynchronize"),
    "hipMalloc": in_operators("aten::empty", call="hipMalloc"),
    "hipFree": in_operators("aten::cat", call="hipFree"),
    "hipMemUnmap": in_operators("aten::cat", call="hipMemUnmap"),
}


def job(folder: Path, blocked: Blocked, *, computes: bool) -> Analysis:
    """Hosts block behind their collective; a rank enters it late: its host prepares a batch, or blocks until its device
    has computed."""
    files = {}
    for rank in range(RANKS):
        events: list[Event] = []
        for step in range(STEPS):
            begin, number = step * STEP_US, 100 * step
            now = begin + 100
            # the host of rank 0 ends the step
            events.append(x("user_annotation", f"ProfilerStep#{step}", begin, STEP_US - (0 if rank == 0 else 200)))
            for n in range(20):
                events += [launch(now + 4 * n, number + n), kernel("add", now + 4 * n + 6, 3, number + n)]
            now += 200
            if rank == LATE and computes:
                events += [launch(now, number + 30), kernel("extra_gemm", now + 10, LATE_US, number + 30)]
                made, now = blocked(now + 20, now + 10 + LATE_US, number + 31)
                events += made
            elif rank == LATE:
                events.append(x("user_annotation", "prepare_batch", now, LATE_US))
                now += LATE_US
            met = begin + LATE_US + 2_500
            now += 10
            events += all_reduce(now, number + 40, ranks=range(RANKS), dur=met - now - 50)
            made, now = blocked(now + 20, met, number + 50)
            events += made
            events += [launch(now + 10, number + 60), kernel("gemm", max(now, met) + 20, 9_000, number + 60)]
        files[f"rank{rank}.json"] = document(events, about(rank, groups=(("0", range(RANKS)),)))
    return analyse(loaded(folder, files))


@pytest.mark.parametrize("computes", [False, True])
@pytest.mark.parametrize("way", BLOCKED)
def test_a_late_rank_its_cause_and_the_path_are_known_however_hosts_block(
    way: str, computes: bool, tmp_path: Path
) -> None:
    analysis = job(tmp_path, BLOCKED[way], computes=computes)
    assert (analysis.status, analysis.culprits) == ("slow", (LATE,))
    found = TRACE_RESULTS.of(analysis)
    expected = ("compute", "extra_gemm") if computes else ("host", "prepare_batch")
    assert (found.causes[LATE].cause, found.causes[LATE].what) == expected
    on_path = found.path_names.filter(
        pl.col("name").cast(pl.String) == expected[1], pl.col("kind") == expected[0], pl.col("rank") == LATE
    )
    assert on_path["total_ns"].sum() > 0.95 * STEPS * LATE_US * US


def test_a_launch_that_returns_behind_its_own_kernel_waits_for_it(tmp_path: Path) -> None:
    """CUDA_LAUNCH_BLOCKING=1: nothing was handed over before."""
    events = [launch(0, 1, dur=5_000), kernel("gemm", 20, 4_900, 1), launch(6_000, 2, dur=4)]
    pieces = host_pieces(SpanIndex(loaded(tmp_path, {"r.json": document(events)})), 0)
    assert (pieces.wait_ends - pieces.wait_begins).tolist() == [5_000 * US]


def test_a_launch_that_loads_a_module_works_though_its_kernel_ends_within_it(tmp_path: Path) -> None:
    events = [launch(0, 1, dur=500_000), kernel("offsets", 499_980, 5, 1), launch(600_000, 2, dur=4)]
    pieces = host_pieces(SpanIndex(loaded(tmp_path, {"r.json": document(events)})), 0)
    assert len(pieces.wait_begins) == 0
    assert pieces.work.ends[0] - pieces.work.starts[0] == 500_000 * US


def test_a_short_copy_that_happens_to_end_after_its_call_holds_nobody(tmp_path: Path) -> None:
    copied = {"pid": 0, "tid": 7, "stream": 7, "correlation": 1}
    events = [launch(0, 1, name="cudaMemcpyAsync", dur=6), x("gpu_memcpy", "Memcpy HtoD", 5, 4, **copied)]
    assert len(host_pieces(SpanIndex(loaded(tmp_path, {"r.json": document(events)})), 0).wait_begins) == 0


def test_the_path_goes_from_a_blocking_copy_to_its_transfer(tmp_path: Path) -> None:
    """The transfer ends behind the call; what ended before it is not what the host waited for last."""
    events = [launch(0, 1), kernel("gemm", 10, 1_000, 1)]
    events += pageable("cudaMemcpyAsync", "HtoD")(20, 1_010, 2)[0]
    spans = SpanIndex(loaded(tmp_path, {"r.json": document(events)}))
    nodes = path_nodes(spans, 0, 0)
    names = spans.dataset.spans["name"].cast(pl.String).gather(nodes.rows[np.array(nodes.awaited)])
    assert names.to_list() == ["Memcpy HtoD"]
