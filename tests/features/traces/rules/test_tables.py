"""Breakdowns and links against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.features.traces.rules.device_spans import BusyIntervals
from rankscope.features.traces.rules.host_time import span_text
from rankscope.features.traces.rules.model import TraceAnalysis
from rankscope.features.traces.rules.trace_story import TraceStory
from rankscope.schema import Dataset
from tests.trace_tables import COMM, COMPUTE, COPY, HOST
from tests.traces import US, TraceBuilder


def analysed(job: TraceBuilder) -> TraceAnalysis:
    return TraceStory(job.build()).analysis()


def one_step() -> TraceBuilder:
    """A step of 100 us: computing 10-40, communication 30-60, a copy 55-70, launches on the host 0-5 and 80-85."""
    job = TraceBuilder(1)
    job.span(0, HOST, "user_annotation", "ProfilerStep#7", 0, 100 * US)
    job.span(0, HOST, "cuda_runtime", "cudaLaunchKernel", 0, 5 * US, correlation=1)
    job.span(0, HOST, "cuda_runtime", "cudaLaunchKernel", 80 * US, 5 * US, correlation=9)
    job.span(0, HOST, "cuda_runtime", "cudaDeviceSynchronize", 85 * US, 15 * US)
    job.span(0, COMPUTE, "kernel", "gemm", 10 * US, 30 * US, correlation=1)
    job.span(0, COMM, "collective_comm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 30 * US, 30 * US)
    job.span(0, COPY, "gpu_memcpy", "Memcpy HtoD", 55 * US, 15 * US)
    return job


def test_a_step_is_parted_into_what_ran() -> None:
    step = analysed(one_step()).steps.row(0, named=True)
    parts = {name: step[f"{name}_ns"] // US for name in (
        "compute", "communication", "exposed", "overlap", "memory", "idle", "host_gap",
    )}  # fmt: skip
    assert step["step"] == 7
    assert parts == {
        "compute": 30, "communication": 30, "exposed": 20, "overlap": 10, "memory": 10, "idle": 40, "host_gap": 30,
    }  # fmt: skip
    assert parts["compute"] + parts["exposed"] + parts["memory"] + parts["idle"] == 100


def test_without_steps_the_window_is_one() -> None:
    job = one_step()
    job.spans = job.spans[1:]
    steps = analysed(job).steps
    assert steps.select("step", pl.col("compute_ns") // US).rows() == [(0, 30)]


def behind(*, before: bool = False) -> TraceBuilder:
    """Two steps of 100 us, whose host launches in the first 20 us what the device does from 70 us on: it computes for
    60 us, then communicates for 30 us. `before`: it still has work from before the trace."""
    job = TraceBuilder(1)
    for step in range(2):
        begin = 100 * US * step
        job.span(0, HOST, "user_annotation", f"ProfilerStep#{step}", begin, 100 * US)
        for number, (stream, category, name, start, length) in enumerate(
            [(COMPUTE, "kernel", "gemm", 70, 60), (COMM, "collective_comm", "ncclDevKernel_AllReduce", 130, 30)]
        ):
            call = {"correlation": 10 * step + number + 1}
            job.span(0, HOST, "cuda_runtime", "cudaLaunchKernel", begin + (5 + 10 * number) * US, 5 * US, **call)
            job.span(0, stream, category, name, begin + start * US, length * US, **call)
    if before:
        job.span(0, COMPUTE, "kernel", "gemm", 0, 65 * US, correlation=99)
    return job


@pytest.mark.parametrize(("before", "idle"), [(False, [70, 10]), (True, [5, 10])])
def test_steps_are_cut_where_the_device_begins_what_the_next_launched(before: bool, idle: list[int]) -> None:
    steps = analysed(behind(before=before)).steps
    us = steps.select(pl.col("compute_ns", "exposed_ns", "idle_ns") // US)
    assert us.rows() == [(60, 30, idle[0]), (60, 30, idle[1])]
    assert (steps["start_ns"][1] - steps["end_ns"][0], steps["end_ns"][1] - steps["start_ns"][1]) == (0, 100 * US)


def test_copies_for_the_next_step_do_not_begin_it() -> None:
    """They run at once on their own stream, while the device still computes."""
    job = behind()
    job.span(0, HOST, "cuda_runtime", "cudaMemcpyAsync", 101 * US, US, correlation=50)
    job.span(0, COPY, "gpu_memcpy", "Memcpy HtoD", 103 * US, 5 * US, correlation=50)
    assert (analysed(job).steps["compute_ns"] // US).to_list() == [60, 60]


def test_work_of_a_step_that_outlasts_the_first_of_the_next_does_not_delay_it() -> None:
    job = behind()
    job.span(0, HOST, "cuda_runtime", "cudaMemcpyAsync", 50 * US, US, correlation=50)
    job.span(0, COPY, "gpu_memcpy", "Memcpy DtoH", 60 * US, 500 * US, correlation=50)
    assert (analysed(job).steps["compute_ns"] // US).to_list() == [60, 60]


def test_kinds_of_idle_time() -> None:
    job = TraceBuilder(1)
    # launched after the one before ended; right behind it; and held up although launched
    for number, (call, start, length) in enumerate([(0, 10, 10), (50, 60, 10), (52, 71, 10), (53, 131, 5)]):
        job.span(0, HOST, "cuda_runtime", "cudaLaunchKernel", int(call * US), US, correlation=number)
        job.span(0, COMPUTE, "kernel", "gemm", int(start * US), int(length * US), correlation=number)
    idle = {r["kind"]: r["idle_ns"] for r in analysed(job).idle.iter_rows(named=True)}
    assert idle == {"host wait": 40_000, "kernel wait": 1_000, "other": 50_000}


def test_queues_and_launches() -> None:
    job = TraceBuilder(1)
    for number, (call, start, length) in enumerate([(0, 10, 100), (2, 110, 100), (4, 210, 1)]):
        job.span(0, HOST, "cuda_runtime", "cudaLaunchKernel", call * US, 2 * US, correlation=number)
        job.span(0, COMPUTE, "kernel", "gemm", start * US, length * US, correlation=number)
    traces = analysed(job)
    assert traces.queues.select("mean", "median", "max").rows() == [(1.5, 1.5, 3)]
    assert traces.launches.select("launches", "delay_ns", "runtime_ns", "short", "late").rows() == [
        (3, 106_000, 2_000, 1, 2)
    ]


def test_kernels_by_time() -> None:
    kernels = analysed(one_step()).kernels.with_columns(pl.col("name").cast(pl.String))
    assert kernels.select("kind", "name", "count", "total_ns", "share").rows() == [
        ("communication", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1, 30_000, 1.0),
        ("compute", "gemm", 1, 30_000, 1.0),
        ("memory", "Memcpy HtoD", 1, 15_000, 1.0),
    ]


def pairs(slow: dict[str, int]) -> TraceBuilder:
    """Eight ranks in pairs, each with all-reduces of two sizes; those in `slow` take so many times as long."""
    groups = {f"dp{a}_{b}": [a, b] for a in range(8) for b in range(a + 1, 8)}
    job = TraceBuilder(8, groups, hosts=2)
    job.descriptions.update(dict.fromkeys(groups, "dp"))
    for _ in range(8):
        for name in groups:
            for nelems, length in ((1 << 18, 200 * US), (1 << 20, 600 * US)):
                job.collective(name, nelems=nelems, length_ns=length * slow.get(name, 1))
    return job


def test_a_slow_rank_is_what_slow_pairs_share() -> None:
    slow = {f"dp{min(3, other)}_{max(3, other)}": 3 for other in range(8) if other != 3}
    found = [f for f in analyse(pairs(slow).build()).findings if f.kind == "slow-link"]
    assert [(f.culprit_ranks, f.severity, f.root_cause) for f in found] == [((3,), "warning", False)]
    assert "7 links of 28 of dp" in found[0].title


def test_one_slow_pair_names_both_as_candidates() -> None:
    found = [f for f in analyse(pairs({"dp2_6": 3}).build()).findings if f.kind == "slow-link"]
    assert [(f.culprit_ranks, f.candidates) for f in found] == [((), (2, 6))]


def test_links_alike_are_not_named() -> None:
    assert analyse(pairs({}).build()).findings == ()


def test_slow_for_one_size_only_is_not_the_link() -> None:
    job = TraceBuilder(8, {f"dp{i}": [2 * i, 2 * i + 1] for i in range(4)})
    job.descriptions.update({f"dp{i}": "dp" for i in range(4)})
    for _ in range(9):
        for i in range(4):
            job.collective(f"dp{i}", nelems=1 << 18, length_ns=200 * US)
            job.collective(f"dp{i}", nelems=1 << 20, length_ns=(3 if i == 2 else 1) * 600 * US)
    assert analyse(job.build()).findings == ()


def sisters(slow: int, groups: dict[str, list[int]], hosts: int = 8, times: int = 9) -> Dataset:
    """Groups of one kind with an all-reduce of two sizes each; the last takes `slow` times as long."""
    job = TraceBuilder(8, groups, hosts=hosts)
    job.descriptions.update(dict.fromkeys(groups, "tp"))
    for _ in range(times):
        for nelems, length in ((1 << 18, 200 * US), (1 << 20, 600 * US)):
            for name in groups:
                job.collective(name, nelems=nelems, length_ns=length * (slow if name == list(groups)[-1] else 1))
    return job.build()


def on_host(dataset: Dataset) -> Dataset:
    """The same of hosts that communicate themselves."""
    return replace(dataset, tracks=dataset.tracks.with_columns(device=pl.lit(None, pl.Int32)))


TWO = {"tp0": [0, 1, 2, 3], "tp1": [4, 5, 6, 7]}


def test_of_two_groups_the_slow_one_is_told_and_nobody_is_accused() -> None:
    analysis = analyse(sisters(3, TWO))
    (found,) = [f for f in analysis.findings if f.kind == "slow-link"]
    assert (found.culprit_ranks, found.candidates, found.confidence) == ((), (4, 5, 6, 7), "low")
    assert "1 group of 2 of tp 3 times as slow" in found.title
    assert "only 1 to compare with" in found.confidence_reasons
    assert analysis.status == "slow" and analysis.culprits == ()


@pytest.mark.parametrize(
    "dataset",
    [
        sisters(1, TWO),
        sisters(3, TWO, times=7),
        sisters(3, {"tp0": [0, 1, 2, 3], "dp0": [0, 4, 5, 6]}),  # of different kinds, for all their names say
        sisters(3, {"tp0": [0, 1], "tp1": [1, 2]}),
        sisters(3, {"tp0": [0, 1], "tp1": [3, 4]}, hosts=4),  # over the network, by design
        on_host(sisters(3, TWO)),  # in less than processes wait for their turn
    ],
)  # fmt: skip
def test_what_may_be_so_by_design_or_chance_is_not_told(dataset: Dataset) -> None:
    assert [f for f in analyse(dataset).findings if f.kind == "slow-link"] == []


@pytest.mark.parametrize("path", ["/home/me/data.py", "C:\\\\Users\\\\me\\\\data.py"])
def test_a_function_is_named_with_its_file_alone(path: str) -> None:
    assert span_text(f"{path}(12): load") == "load (data.py:12)"


def test_busy_counts_what_lies_within() -> None:
    busy = BusyIntervals.of(np.array([10, 0, 30]), np.array([20, 12, 40]))
    assert (busy.starts.tolist(), busy.ends.tolist()) == ([0, 30], [20, 40])
    within = busy.within(np.array([0, 5, 15, 20, 45]), np.array([50, 10, 35, 30, 60]))
    assert within.tolist() == [30, 5, 10, 0, 0]
    assert BusyIntervals.of(np.array([], np.int64), np.array([], np.int64)).within(
        np.array([0]), np.array([9])
    ).tolist() == [0]
