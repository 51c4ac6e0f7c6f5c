"""Times of two runs from traces: what became slower, what is in one run only, and which rank is slow in one only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.features.comparison.rules.model import ComparedRun, RunComparison
from rankscope.features.comparison.rules.run_comparison import compare_runs
from rankscope.features.comparison.rules.step_costs import StepCosts, step_costs
from rankscope.features.comparison.rules.traced_times import kernel_labels
from rankscope.features.traces.rules.model import TRACE_RESULTS
from tests.trace_tables import COMPUTE
from tests.traces import MS, US, TraceBuilder, training


def run_of(job: TraceBuilder) -> ComparedRun:
    dataset = job.build()
    return ComparedRun("run", dataset, analyse(dataset))


@cache
def baseline() -> ComparedRun:
    """Eight steps of four ranks on two hosts."""
    return run_of(training(4, 8, seed=1, hosts=2))


def against_baseline(seed: int = 2, **planted: Any) -> RunComparison:
    return compare_runs(baseline(), run_of(training(4, 8, seed=seed, hosts=2, **planted)))


def durations(found: RunComparison) -> tuple[str, ...]:
    return next(part.lines for part in found.parts if part.name == "durations")


def apart(steps: int, excess: Mapping[int, int], *, ranks: int = 4, seed: int = 0) -> ComparedRun:
    """Ranks that wait for nobody; some have a longer kernel, by so many ns."""
    job = TraceBuilder(ranks, hosts=2, seed=seed, jitter_ns=20 * US)
    for number in range(steps):
        job.begin_step(number)
        for rank in range(ranks):
            job.launch(rank, "gemm", 5 * MS + excess.get(rank, 0))
        job.end_step()
    return run_of(job)


@pytest.mark.parametrize("seed", [2, 3])
def test_equal_runs_do_not_differ(seed: int) -> None:
    found = against_baseline(seed)
    assert found.is_same
    assert any(line.startswith("kernel gemm_128x64 (3 a step): 6.3 ms -> 6.") for line in durations(found))


def test_a_step_that_is_longer_on_all_ranks_differs_and_shows_the_kernel() -> None:
    found = against_baseline(slow_kernel=dict.fromkeys(range(4), 3 * MS))
    (one,) = found.differences
    assert one.title.startswith("profiled step: B is 3")
    assert one.title.endswith(" % slower within these two runs") and not one.ranks
    assert "kernel extra_gemm (3 a step): only in B, 3 ms a step" in one.details
    assert not any("gemm_128x64" in detail for detail in one.details)


@pytest.mark.parametrize("planted", ["slow_host", "slow_kernel"])
def test_a_rank_that_is_slow_in_one_run_is_a_straggler_of_that_run(planted: str) -> None:
    late: dict[str, Any] = {planted: {2: 6 * MS}}
    slow = run_of(training(4, 8, seed=2, hosts=2, **late))
    for found, label in ((compare_runs(baseline(), slow), "B"), (compare_runs(slow, baseline()), "A")):
        first = found.differences[0]
        assert first.ranks == (2,)
        assert first.title.startswith(f"rank 2 on node01 is a straggler of {label} only: late by itself for ")
        assert [one.cause for one in found.hypotheses] == ["one rank or one host alone, and no setting"]


def test_a_rank_that_is_slow_in_both_runs_is_none_of_one() -> None:
    slow = [run_of(training(4, 8, seed=seed, hosts=2, slow_host={2: 6 * MS})) for seed in (2, 3)]
    assert compare_runs(*slow).is_same


def test_all_ranks_of_a_host_are_one_straggler() -> None:
    first = against_baseline(slow_host={2: 8 * MS, 3: 8 * MS}).differences[0]
    assert first.title.startswith("host node01 (ranks 2,3) is a straggler of B only: ") and first.ranks == (2, 3)
    assert len(first.details) == 2


def test_a_rank_that_waits_for_nobody_is_told_by_its_steps() -> None:
    one, other = apart(8, {}), apart(8, {3: 2 * MS}, seed=1)
    (found,) = compare_runs(one, other).differences
    title = "rank 3 on node01 is a straggler of B only: its steps take 7 ms, in A 5 ms; those of the other ranks 5 ms"
    assert found.title == f"{title} and 5 ms"
    assert "kernel gemm, on rank 3: 5 ms -> 7 ms a step, +40.0 %" in durations(compare_runs(one, other))


@pytest.mark.parametrize(("steps", "excess"), [(4, 2 * MS), (8, MS // 3)])
def test_few_steps_and_small_changes_accuse_nobody(steps: int, excess: int) -> None:
    assert compare_runs(apart(steps, {}), apart(steps, {3: excess}, seed=1)).is_same


def test_runs_of_another_size_are_compared_without_their_ranks() -> None:
    slow = run_of(training(2, 8, seed=2, hosts=2, slow_host={1: 6 * MS}))
    found = compare_runs(baseline(), slow)
    times = [one.title for one in found.differences if one.kind == "durations-differ"]
    assert len(times) == 1 and times[0].startswith("profiled step: ")


def test_without_marked_steps_a_call_of_each_kernel_is_compared() -> None:
    runs = []
    for length in (2 * MS, 3 * MS):
        job = TraceBuilder(1, jitter_ns=0)
        for _ in range(4):
            job.launch(0, "gemm", length)
            job.host(0, "aten::mm", 10 * US)
        runs.append(run_of(job))
    found = compare_runs(*runs)
    assert found.is_same
    assert durations(found) == ("kernel gemm: 2 ms -> 3 ms a call, +50.0 %",)


def test_a_group_whose_collective_became_slower_is_listed() -> None:
    runs = []
    for slow in (0, 2 * MS):
        pairs = {"1": [0, 1], "2": [2, 3], "3": [4, 5]}
        job = TraceBuilder(6, pairs)
        job.descriptions |= dict.fromkeys(pairs, "dp")
        for number in range(6):
            job.begin_step(number)
            for name in pairs:
                job.collective(name, length_ns=MS + (slow if name == "2" else 0))
            job.end_step()
        runs.append(run_of(job))
    found = compare_runs(*runs)
    line = "all_reduce [1048576] f32 in dp, on ranks 2,3: 1 ms -> 3 ms a step, +"
    assert any(one.startswith(line) for one in durations(found))
    assert not any(one.ranks for one in found.differences)


def test_a_damaged_trace_is_told() -> None:
    dataset = baseline().dataset
    problem = pl.when(pl.col("rank") == 1).then(pl.lit("cut off")).alias("problem")
    cut = replace(baseline(), dataset=replace(dataset, files=dataset.files.with_columns(problem)))
    note = "B: traces of rank 1 are damaged, so times of kernels and phases may be too short there"
    assert note in durations(compare_runs(baseline(), cut))


def test_a_profiler_that_records_python_functions_of_one_run_is_told() -> None:
    runs = [apart(1, {}), baseline()]
    told = [durations(compare_runs(one, other)) for one, other in (runs, runs[::-1])]
    for label, lines in zip("BA", told, strict=True):
        note = f"only {label} was profiled with_stack: to record Python functions makes its host slower"
        assert note in lines


def test_sizes_that_one_profiler_does_not_record_are_no_other_sizes() -> None:
    run = baseline()
    bare = run.dataset.traced.with_columns(
        pl.lit(None, run.dataset.traced.schema[name]).alias(name) for name in ("in_sizes", "out_sizes")
    )
    found = compare_runs(run, replace(run, dataset=replace(run.dataset, traced=bare)))
    assert found.is_same and found.parts[0].summary.startswith("equal: ")
    assert "sizes, which one of the runs does not record" in found.parts[0].left


# Phases.


def marked_costs(*, forward: bool = True) -> StepCosts:
    """Three steps of one rank whose host marks phases; its device runs behind it, over the end of the steps."""
    job = TraceBuilder(1, jitter_ns=0)
    names = ("enumerate(DataLoader)#_Iter.__next__", "forward" if forward else "part", "## backward ##")
    for number in range(3):
        job.begin_step(number)
        for name, length in zip((*names, "Optimizer.step#AdamW.step"), (0, 4 * MS, 9 * MS, MS), strict=True):
            start = job.ranks[0].host
            if length:
                job.launch(0, f"kernel of {name}", length, COMPUTE)
            job.idle(0, 50 * US)
            job.span(0, 0, "user_annotation", name, start, job.ranks[0].host - start)
        job.end_step(sync=False)
    dataset = job.build()
    traces = TRACE_RESULTS.find(analyse(dataset))
    assert traces is not None
    found = step_costs(dataset, traces)
    assert found is not None
    return found


def test_work_belongs_to_the_phase_that_launched_it() -> None:
    phases = marked_costs().phases
    assert phases["step"].unique().sort().to_list() == [0, 1, 2]
    times = dict(phases.filter(phases["step"] == 2).select("name", "ns").iter_rows())
    assert times == {
        "data loading, on the host": 50 * US, "forward, on the device": 4 * MS, "backward, on the device": 9 * MS,
        "optimizer, on the device": MS,
    }  # fmt: skip


def test_what_no_phase_marks_is_the_rest_of_the_step() -> None:
    times = dict(marked_costs(forward=False).phases.select("name", "ns").iter_rows())
    assert times["the rest of the step, on the device"] == 4 * MS and "forward, on the device" not in times


# Names of kernels.


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("triton_poi_fused_add_3", "triton_poi_fused_add_17"),
        ("cutlass_80_tensorop_s1688gemm_128x128_32x4_nn", "cutlass_80_tensorop_s1688gemm_256x64_16x4_nn"),
        ("graph_5f3a9c0e12_run", "graph_77ab01dd34_run"),
        ("void at::reduce_kernel<512, Sum<float>>(char*)", "void at::reduce_kernel<512, Sum<half>>(int)"),
    ],
)  # fmt: skip
def test_a_kernel_that_was_renamed_is_the_same(ours: str, theirs: str) -> None:
    a, b = kernel_labels([ours, "gemm"], [theirs, "gemm"])
    assert a[ours] == b[theirs] and a[ours].endswith("(other names in B)")
    assert a["gemm"] == b["gemm"] == "gemm"


def test_an_exact_name_comes_before_one_that_is_alike() -> None:
    a, b = kernel_labels(["triton_add_1", "triton_add_2"], ["triton_add_2", "triton_mul_1"])
    assert a["triton_add_2"] == b["triton_add_2"] == "triton_add_2"
    assert a["triton_add_1"] not in b.values() and b["triton_mul_1"] not in a.values()


def test_kernels_with_one_short_name_are_told_apart() -> None:
    names = [
        f"void at::native::vectorized_elementwise_kernel<4, at::native::{op}<float>>(int)" for op in ("Add", "Mul")
    ]
    a, _ = kernel_labels(names, names)
    assert list(a.values()) == [f"vectorized_elementwise_kernel<4, {op}<float>>(int)" for op in ("Add", "Mul")]
