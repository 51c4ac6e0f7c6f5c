"""Device time by annotation and module, short kernels and copies, against numbers worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.features.traces.launch_lines import copy_lines, launch_lines
from rankscope.features.traces.rules.model import TraceAnalysis
from rankscope.features.traces.rules.range_times import over_ranks
from rankscope.features.traces.rules.trace_story import TraceStory
from rankscope.report.json import render_json
from rankscope.report.text import render_text
from tests.features.traces.read.documents import document, kernel, launch, loaded, x
from tests.trace_tables import HOST
from tests.traces import MS, US, TraceBuilder

LINEAR, BLOCK = "nn.Module: Linear_", "nn.Module: Block_0"


def annotated(extra: int = 3 * MS) -> TraceBuilder:
    """Two steps of two ranks: forward holds a block of two linear layers of 2 ms, and a collective; rank 1 computes
    `extra` longer in the second layer."""
    job = TraceBuilder(2, jitter_ns=0)
    for step in (4, 5):
        job.begin_step(step)
        begins = [state.host for state in job.ranks]
        for rank in range(2):
            for layer in range(2):
                start = job.ranks[rank].host
                job.launch(rank, "gemm", 2 * MS + (extra if (rank, layer) == (1, 1) else 0))
                job.span(rank, HOST, "python_function", f"{LINEAR}{layer}", start, job.ranks[rank].host - start)
            job.span(rank, HOST, "python_function", BLOCK, begins[rank], job.ranks[rank].host - begins[rank])
        job.collective(length_ns=MS)
        for rank in range(2):
            job.span(rank, HOST, "user_annotation", "forward", begins[rank], job.ranks[rank].host - begins[rank])
            job.launch(rank, "adam", MS)
        job.end_step()
    return job


def analysed(job: TraceBuilder) -> TraceAnalysis:
    return TraceStory(job.build()).analysis()


def test_a_range_has_the_work_that_is_launched_in_it() -> None:
    traces = analysed(annotated())
    table = {(row["rank"], row["name"]): row for row in traces.ranges.to_dicts()}
    assert {name: table[0, name]["device_ns"] for name in (f"{LINEAR}0", f"{LINEAR}1", BLOCK)} == {
        f"{LINEAR}0": 4 * MS, f"{LINEAR}1": 4 * MS, BLOCK: 8 * MS,
    }  # fmt: skip
    assert (table[1, f"{LINEAR}1"]["device_ns"], table[1, BLOCK]["device_ns"]) == (10 * MS, 14 * MS)
    forward = table[0, "forward"]
    # rank 0 waits 3 ms in each collective of 1 ms
    assert (forward["communication_ns"], forward["kernels"], forward["count"]) == (
        pytest.approx(8 * MS, abs=100 * US), 6, 2,
    )  # fmt: skip
    assert forward["device_ns"] == forward["communication_ns"] + 8 * MS
    assert forward["share"] == pytest.approx(forward["device_ns"] / (forward["device_ns"] + 2 * MS))
    assert not {name for _, name in table} & {"ProfilerStep#4", "nccl:all_reduce"}


def test_instances_of_a_class_are_added_up_and_inner_ones_count_once() -> None:
    job = annotated()
    start = next(s["start_ns"] for s in job.spans if s["name"] == BLOCK)
    # a block within the block
    job.spans.append({**next(s for s in job.spans if s["name"] == f"{LINEAR}0"), "name": "nn.Module: Block_1"})
    assert any(s["start_ns"] == start for s in job.spans)
    ranges = analysed(job).ranges.filter(pl.col("rank") == 0)
    classes = {row["name"]: row for row in ranges.filter(kind="module class").to_dicts()}
    assert {name: row["device_ns"] for name, row in classes.items()} == {
        "nn.Module: Linear": 8 * MS, "nn.Module: Block": 8 * MS,
    }  # fmt: skip
    assert classes["nn.Module: Linear"]["count"] == 4 and classes["nn.Module: Block"]["count"] == 2
    assert ranges.filter(pl.col("name") == "nn.Module: Block_1")["device_ns"].to_list() == [2 * MS]


def test_ranks_are_compared_without_communication_which_waits_for_others() -> None:
    traces = analysed(annotated())
    (forward,) = over_ranks(traces.ranges, "annotation", traces.steps).to_dicts()
    assert (forward["least_ns"], forward["most_ns"], forward["most_rank"]) == (4 * MS, 7 * MS, 1)
    assert forward["ranks"] == [0, 1] and forward["times"] == 1
    dataset = annotated().build()
    text = " ".join(render_text(dataset, analyse(dataset)).split())
    assert "annotation gpu share comm least most on rank forward 8 ms" in text and "4 ms 7 ms 1" in text
    assert "module gpu share comm least most on rank" in text


def read(tmp_path: Path, *events: dict[str, Any]) -> TraceAnalysis:
    """The results of a trace of these events."""
    return TraceStory(loaded(tmp_path, {"rank0.json": document(events)})).analysis()


STEP = x("user_annotation", "ProfilerStep#1", 0, 1000)


def test_backward_is_in_the_range_of_the_thread_that_waits_for_it(tmp_path: Path) -> None:
    traces = read(
        tmp_path,
        STEP,
        x("user_annotation", "backward", 100, 500),
        x("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 200, 100, tid=900),
        launch(210, 5, tid=900), kernel("gemm", 300, 70, 5),
        # a thread that is not of autograd launches for itself
        x("cpu_op", "aten::mm", 215, 10, tid=901), launch(220, 6, tid=901), kernel("other", 400, 40, 6),
    )  # fmt: skip
    (row,) = traces.ranges.to_dicts()
    assert (row["name"], row["device_ns"], row["kernels"], row["host_ns"]) == ("backward", 70_000, 1, 500_000)


def test_an_annotation_that_only_the_device_shows_has_what_runs_in_it(tmp_path: Path) -> None:
    shown = {"pid": 0, "tid": 7}
    traces = read(
        tmp_path, STEP, kernel("a", 100, 20, 5), kernel("b", 150, 30, 6), kernel("c", 300, 10, 7),
        x("gpu_user_annotation", "only here", 100, 80, **shown),
        x("gpu_user_annotation", "ProfilerStep#1", 0, 900, **shown),
    )  # fmt: skip
    (row,) = traces.ranges.to_dicts()
    assert (row["name"], row["device_ns"], row["kernels"], row["host_ns"]) == ("only here", 50_000, 2, None)


def test_without_launches_the_time_of_a_range_is_not_known(tmp_path: Path) -> None:
    traces = read(tmp_path, STEP, x("user_annotation", "forward", 10, 100), kernel("a", 100, 20, 5))
    (row,) = traces.ranges.to_dicts()
    assert (row["device_ns"], row["share"], row["host_ns"]) == (None, None, 100_000)


def test_jobs_without_a_device_have_no_section_of_device_time() -> None:
    job = TraceBuilder(2, backend="gloo", jitter_ns=0)
    for step in (1, 2):
        job.begin_step(step)
        job.host(0, "my_range", MS, "user_annotation")
        job.collective()
        job.end_step()
    dataset = job.build()
    dataset = replace(dataset, tracks=dataset.tracks.with_columns(device=pl.lit(None, dtype=pl.Int32)))
    assert "GPU time" not in render_text(dataset, analyse(dataset))


def test_short_kernels_are_counted_by_step_without_graphs_copies_and_calls_that_wait(tmp_path: Path) -> None:
    traces = read(
        tmp_path, STEP, x("user_annotation", "ProfilerStep#2", 1000, 1000),
        launch(10, 1, dur=6), kernel("short", 20, 5, 1),
        launch(30, 2, dur=6), kernel("long", 40, 50, 2),
        launch(300, 3, dur=200), kernel("behind a full queue", 600, 50, 3),
        launch(510, 4, name="cudaGraphLaunch", dur=9), kernel("of a graph", 700, 2, 4), kernel("of a graph", 710, 2, 4),
        launch(530, 5, name="cudaMemcpyAsync", dur=9),
        x("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 800, 2, pid=0, tid=7, correlation=5),
        launch(1100, 6, dur=6), kernel("short", 1200, 1, 6),
    )  # fmt: skip
    assert traces.step_launches.select("step", "launches", "short").rows() == [(1, 2, 1), (2, 1, 1)]
    assert launch_lines(traces) == [
        "67 % of kernels take less time than the call that launches them (2 in each step; most in step 2, 100 %)"
    ]
    assert launch_lines(replace(traces, step_launches=traces.step_launches.with_columns(short=0))) == []


def test_few_short_kernels_are_told_only_beside_hosts_that_set_the_pace() -> None:
    traces = analysed(annotated())
    few = replace(traces, step_launches=traces.step_launches.with_columns(launches=100, short=5))
    assert launch_lines(few) == []
    (line,) = launch_lines(few, host_bound=True)
    assert line.startswith("5 % of kernels") and line.endswith("The hosts set the pace (host-bound)")


def copy(
    ts: float, dur: float, number: int, args: dict[str, Any], name: str = "Memcpy HtoD (Pageable -> Device)"
) -> list[Any]:
    where = {"pid": 0, "tid": 7, "correlation": number}
    event = x("gpu_memset" if "Memset" in name else "gpu_memcpy", name, ts, dur, **where)
    return [launch(ts - 5, number, name="cudaMemcpyAsync"), {**event, "args": {**event["args"], **args}}]


def test_copies_by_step_with_the_speed_of_the_profiler(tmp_path: Path) -> None:
    speed = "memory bandwidth (GB/s)"
    traces = read(
        tmp_path, STEP, x("user_annotation", "ProfilerStep#2", 1000, 1000),
        # of a duration that is cut to microseconds the speed knows more
        *copy(100, 1, 1, {"bytes": 1400, speed: 1.0}), *copy(200, 9, 2, {"bytes": 18000, speed: 2.0}),
        *copy(300, 4, 3, {"bytes": 4000}, "Memset (Device)"), *copy(400, 4, 4, {"bytes": "many"}, "Memset (Device)"),
        *copy(1100, 10, 5, {"bytes": 5000, speed: 0.5}),
    )  # fmt: skip
    rows = traces.copies.select("step", "name", "count", "bytes", "total_ns", "speed", "most").rows()
    assert rows == [
        (1, "Memcpy HtoD (Pageable -> Device)", 2, 19400, 10_000, pytest.approx(19400 / 10400), 2.0),
        # one of unknown size says nothing of the speed
        (1, "Memset (Device)", 1, 4000, 4_000, 1.0, 1.0),
        (2, "Memcpy HtoD (Pageable -> Device)", 1, 5000, 10_000, pytest.approx(0.5), 0.5),
    ]
    assert copy_lines(traces) == [
        "Memcpy HtoD (Pageable -> Device): 12 KiB in 10 us a step, 1.2 GB/s, the fastest 2; pinned memory is faster "
        "(pin_memory=True)"
    ]


def test_json_holds_launches_copies_and_ranges() -> None:
    dataset = annotated().build()
    told = json.loads(render_json(dataset, analyse(dataset)))["traces"]
    assert {row["kind"] for row in told["ranges"]} == {"annotation", "module", "module class"}
    assert len(told["step_launches"]) == 4 and told["copies"] == []
