"""Who is late, why, and who is not accused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.explanations import explain_rank
from rankscope.features.traces.rules.model import TRACE_RESULTS
from rankscope.features.traces.rules.trace_story import TraceStory
from rankscope.schema import Dataset
from rankscope.schema.tables import Detail
from tests.builders import JobBuilder
from tests.traces import MS, US, TraceBuilder, paused_once, training


def accused(dataset: Dataset) -> tuple[int, ...]:
    return analyse(dataset).culprits


@pytest.mark.parametrize(
    ("planted", "cause"), [("slow_host", "host"), ("slow_kernel", "compute"), ("slow_launch", "launch")]
)
@pytest.mark.parametrize("world", [2, 5])
def test_the_late_rank_and_its_cause(planted: str, cause: str, world: int) -> None:
    late: dict[str, Any] = {planted: {1: 12 * MS}}
    analysis = analyse(training(world, 6, **late).build())
    assert (analysis.status, analysis.culprits) == ("slow", (1,))
    assert TRACE_RESULTS.find(analysis) is not None
    assert TRACE_RESULTS.of(analysis).causes[1].cause == cause
    assert TRACE_RESULTS.of(analysis).causes[1].share > 0.9


def test_the_host_is_named_with_its_stack() -> None:
    analysis = analyse(training(4, 6, slow_host={2: 30 * MS}).build())
    finding = analysis.findings[0]
    assert [frame.function for frame in finding.stack] == ["load", "step"]
    assert "sleep in load (data.py:12)" in analysis.verdict
    assert analysis.verdict.endswith("costs 30 ms of each 40 ms step")
    assert finding.evidence[0].rank == 2
    assert finding.evidence[0].file == "rank2_trace.json.gz"
    assert finding.evidence[0].time_ns is not None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("world", [2, 8])
def test_a_healthy_job_accuses_nobody(world: int, seed: int) -> None:
    analysis = analyse(training(world, 8, seed=seed, jitter_ns=2 * MS).build())
    assert (analysis.status, analysis.findings) == ("healthy", ())


def test_a_clock_that_is_off_accuses_nobody() -> None:
    assert accused(training(4, 8, clock_ns={2: 30 * MS}, hosts=1).build()) == ()


def test_two_late_ranks_are_both_named() -> None:
    assert accused(training(8, 8, slow_host={2: 20 * MS, 5: 20 * MS}).build()) == (2, 5)


def test_one_long_step_is_no_straggler() -> None:
    assert accused(paused_once(2, 4, steps=8, kernel_ns=5 * MS).build()) == ()


def now_and_then(slow: set[int], steps: int = 15, pauses: int = 0, seed: int = 1) -> Dataset:
    """Rank 1 takes 9 ms longer in some steps, and any rank pauses at times."""
    job, random = TraceBuilder(4), np.random.default_rng(seed)
    paused = {(int(random.integers(4)), int(random.integers(steps))) for _ in range(pauses)}
    for step in range(steps):
        job.begin_step(step)
        for rank in range(4):
            job.idle(rank, 15 * MS if (rank, step) in paused else 0)
            extra = 9 * MS if rank == 1 and step in slow else 0
            job.launch(rank, "gemm", 5 * MS + extra + int(random.integers(0, 100 * US)))
        job.collective()
        job.end_step()
    return job.build()


@pytest.mark.parametrize(("every", "phase"), [(2, 1), (3, 0), (3, 2)])
def test_a_rank_that_is_late_in_every_third_step_is_named(every: int, phase: int) -> None:
    slow = set(range(phase, 15, every))
    analysis = analyse(now_and_then(slow))
    assert analysis.culprits == (1,) and TRACE_RESULTS.find(analysis) is not None
    assert TRACE_RESULTS.of(analysis).causes[1].cause == "compute"
    nth = {2: "2nd", 3: "3rd"}[every]
    assert f"arrives last in {len(slow)} of {len(slow)} all_reduce" in analysis.verdict
    assert re.search(rf"in every {nth} step, by (8\.9|9)\d* ms", analysis.verdict)
    finding = analysis.findings[0]
    assert f"in {len(slow)} of 15 steps, every {nth}, it works longer" in finding.explanation
    assert (finding.confidence == "medium") == (len(slow) <= 5)
    assert len(finding.counter_evidence) == 0


@pytest.mark.parametrize("slow", [{0, 3, 6}, {0, 1, 5, 7, 12}, {2, 3, 9, 10}, {4, 8, 12}])
def test_a_rank_that_is_late_now_and_then_without_a_period_is_not_named(slow: set[int]) -> None:
    assert accused(now_and_then(slow)) == ()


@pytest.mark.parametrize("seed", range(6))
def test_pauses_of_any_rank_are_no_period(seed: int) -> None:
    assert accused(now_and_then(set(), pauses=18, seed=seed)) == ()


def test_what_comes_seldom_and_costs_next_to_nothing_on_average_is_not_named() -> None:
    job = TraceBuilder(4)
    for step in range(40):
        job.begin_step(step)
        for rank in range(4):
            job.launch(rank, "gemm", 20 * MS + (2 * MS if rank == 1 and step % 8 == 0 else 0))
        job.collective()
        job.end_step()
    assert accused(job.build()) == ()


def cascade() -> TraceBuilder:
    """Pairs of tp, then of dp: rank 3 is slow, so rank 2 waits in tp and comes late to dp."""
    groups = {"a": [0, 1], "b": [2, 3], "c": [0, 2], "d": [1, 3]}
    job = TraceBuilder(4, groups)
    random = np.random.default_rng(5)
    for step in range(8):
        job.begin_step(step)
        for rank in range(4):
            job.launch(rank, "gemm", 4 * MS + int(random.integers(0, 50 * US)) + (10 * MS if rank == 3 else 0))
        for name in ("a", "b", "c", "d"):
            job.collective(name)
        job.end_step()
    return job


def test_who_waited_for_a_late_rank_elsewhere_is_not_accused() -> None:
    story = TraceStory(cascade().build())
    late = story.last.join(
        pl.DataFrame({"group": [3], "x": [1]}, schema={"group": pl.UInt32, "x": pl.Int64}), on="group"
    )
    assert set(late["last"]) == {2}
    assert [one.rank for one in story.late] == [3]


def test_stages_of_a_pipeline_are_late_by_design() -> None:
    job = TraceBuilder(2)
    for step in range(8):
        job.begin_step(step)
        job.launch(0, "gemm", 4 * MS)
        job.p2p("0", 0, 1)
        job.launch(1, "gemm", 4 * MS)
        job.p2p("0", 1, 0)
        job.launch(0, "gemm_backward", 9 * MS)
        job.collective()
        job.end_step()
    assert accused(job.build()) == ()


def test_without_steps_parts_of_the_window_count() -> None:
    job = training(4, 20, slow_host={1: 20 * MS})
    job.spans = [span for span in job.spans if not span["name"].startswith("ProfilerStep")]
    analysis = analyse(job.build())
    assert analysis.culprits == (1,)
    assert "% of the time" in analysis.verdict


def test_one_step_is_too_little() -> None:
    analysis = analyse(training(4, 1, slow_host={1: 20 * MS}).build())
    assert (analysis.status, analysis.culprits) == ("unknown", ())
    assert "rank 1 came last in" in analysis.verdict


def test_one_rank_alone_is_said_to_tell_nothing() -> None:
    dataset = training(4, 3).build()
    one = replace(
        dataset, traced=dataset.traced.filter(pl.col("rank") == 0), traces=dataset.traces.filter(pl.col("rank") == 0)
    )
    analysis = analyse(one)
    assert (analysis.status, analysis.findings) == ("unknown", ())
    assert "only rank 0 of 4 was traced" in analysis.verdict


def with_dumps(traces: Dataset, late: int | None = None) -> Dataset:
    """The same job with dumps of all ranks, in which `late` issues late."""
    job = JobBuilder(traces.world_size)
    for _ in range(20):
        if late is not None:
            job.clock[late] = job.clock.get(late, 1_700_000_000_000_000_000) + 20 * MS
        job.collective()
        meet = max(job.clock.values())
        job.clock = dict.fromkeys(job.clock, meet)
    return joined(job.build(), traces)


def joined(dumps: Dataset, traces: Dataset) -> Dataset:
    """Both as one; a collective of the dumps ends on all when the last has come."""
    files = pl.concat([dumps.files, traces.files.with_columns(file=pl.col("file") + 100)])
    moved = {n: getattr(traces, n).with_columns(file=pl.col("file") + 100) for n in ("traced", "traces", "tracks")}
    end = pl.col("created_ns").max().over("group", "seq") + MS
    ops = dumps.ops.with_columns(completed_ns=pl.when(pl.col("completed_ns").is_not_null()).then(end))
    return replace(dumps, ops=ops, files=files, spans=traces.spans, **moved)


def test_dumps_and_traces_make_one_finding() -> None:
    dataset = with_dumps(training(4, 6, slow_host={2: 20 * MS}).build(), late=2)
    analysis = analyse(dataset)
    assert [f.culprit_ranks for f in analysis.findings if f.kind == "straggler"] == [(2,)]
    assert any("the dumps say so too" in e.text for e in analysis.findings[0].evidence)


def test_traces_name_whom_dumps_do_not_see() -> None:
    analysis = analyse(with_dumps(training(4, 6, slow_kernel={3: 20 * MS}).build()))
    assert (analysis.status, analysis.culprits) == ("slow", (3,))


def test_a_hang_stays_the_verdict() -> None:
    traces = training(4, 6, slow_host={2: 20 * MS}).build()
    job = JobBuilder(4)
    job.collective()
    job.collective(ranks=[0, 1, 2], state="scheduled")
    analysis = analyse(joined(job.build(), traces))
    assert (analysis.status, analysis.culprits) == ("hang", (3,))
    late = [f for f in analysis.findings if f.kind == "straggler"]
    assert [(f.culprit_ranks, f.root_cause) for f in late] == [((2,), False)]
    assert [f.id for f in analysis.findings] == [f"f{i}" for i in range(1, len(analysis.findings) + 1)]


def test_without_spans_the_cause_is_unknown() -> None:
    dataset = training(4, 6, slow_host={2: 20 * MS}).build()
    steps = pl.col("name").cast(pl.String).str.starts_with("ProfilerStep")
    first = replace(dataset, spans=dataset.spans.filter(steps))
    analysis = analyse(first)
    assert analysis.culprits == (2,)
    assert TRACE_RESULTS.find(analysis) is not None
    assert TRACE_RESULTS.of(analysis).causes[2].cause == "unknown"


def test_the_first_paint_names_the_rank_and_leaves_the_rest_open() -> None:
    dataset = training(4, 6, slow_host={2: 20 * MS}).build()
    first = replace(
        dataset, traces=dataset.traces.with_columns(detail=pl.lit("collectives", dtype=Detail)),
        spans=dataset.spans.filter(pl.col("op").is_not_null() | pl.col("name").cast(pl.String).str.starts_with("Prof")),
    )  # fmt: skip
    analysis = analyse(first)
    assert analysis.culprits == (2,)
    assert TRACE_RESULTS.find(analysis) is not None
    assert TRACE_RESULTS.of(analysis).causes[2].cause == "unknown"
    assert TRACE_RESULTS.of(analysis).steps["compute_ns"].null_count() == TRACE_RESULTS.of(analysis).steps.height
    assert TRACE_RESULTS.of(analysis).steps["communication_ns"].null_count() == 0


def test_why_tells_how_late_a_rank_is() -> None:
    dataset = training(4, 6, slow_host={2: 20 * MS}).build()
    analysis = analyse(dataset)
    accused_, other = explain_rank(dataset, analysis, 2), explain_rank(dataset, analysis, 1)
    assert accused_.accused
    assert any("20 ms late by itself" in line.evidence.text for line in accused_.lines)
    assert not other.accused
    assert other.finding == "f1"
    assert "late by itself in the median step, and waits 2" in other.title


def test_the_profilers_own_functions_are_not_where_it_happens() -> None:
    job = TraceBuilder(3)
    for step in range(6):
        job.begin_step(step)
        for rank in range(3):
            within = ("train.py(20): step", "torch/autograd/profiler.py(918): __enter__")
            job.host(rank, "<built-in function sleep>", (30 if rank == 1 else 1) * MS, "python_function", within)
            job.launch(rank, "gemm", MS)
        job.collective()
        job.end_step()
    dataset = job.build()
    causes = TraceStory(dataset).causes
    assert (causes[1].what, causes[1].where) == ("<built-in function sleep>", "train.py(20): step")
    assert [frame.function for frame in analyse(dataset).findings[0].stack] == ["step"]


def test_collecting_garbage_is_said() -> None:
    job = TraceBuilder(3)
    for step in range(6):
        job.begin_step(step)
        job.host(1, "<built-in function collect>", 30 * MS, "python_function", ("train.py(20): step",))
        for rank in range(3):
            job.launch(rank, "gemm", MS)
        job.collective()
        job.end_step()
    assert "because its host was in collect in step (train.py:20) (garbage collection)" in analyse(job.build()).verdict


def test_where_hosts_compute_nobody_is_sent_to_a_device() -> None:
    job = TraceBuilder(3, backend="gloo")
    for step in range(8):
        job.begin_step(step)
        for rank in range(3):
            job.host(rank, "aten::mm", (30 if rank == 1 else 5) * MS, "cpu_op")
        job.collective()
        job.end_step()
    dataset = job.build()
    hosts_alone = replace(dataset, tracks=dataset.tracks.with_columns(device=pl.lit(None, dtype=pl.Int32)))
    finding = analyse(hosts_alone).findings[0]
    assert finding.culprit_ranks == (1,) and ", because " in finding.title
    assert finding.next_steps[0].startswith("Compare the processor of rank 1")


def test_without_steps_the_title_tells_of_one_collective_and_the_text_of_a_part() -> None:
    job = training(4, 16, slow_host={2: 20 * MS})
    dataset = job.build()
    steps = pl.col("name").cast(pl.String).str.starts_with("ProfilerStep")
    finding = analyse(replace(dataset, spans=dataset.spans.filter(~steps))).findings[0]
    assert re.search(r", by (19|20)(\.\d)? ms, because", finding.title)
    assert re.search(r"in 8 of 8 parts of the window it works .* by (39|40)(\.\d)? ms in each", finding.explanation)
