"""What operators launch again and again, counters of devices, and waits for events, in traces as files."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from rankscope.features.traces.path_section import counter_lines, pattern_lines
from rankscope.features.traces.rules.host_time import counter_table, kernel_patterns
from rankscope.features.traces.rules.model import TraceAnalysis
from rankscope.features.traces.rules.trace_story import TraceStory
from rankscope.schema import Dataset
from tests.features.traces.read.documents import (
    Event,
    decoded,
    document,
    in_ranges,
    kernel,
    launch,
    loaded,
    x,
)

COUNTERS = {"dram__bytes_read.sum": 4096, "sm__throughput.avg.pct": 12.5}


def linear(at: float, number: int) -> list[Event]:
    """An operator that launches two kernels from an inner operator."""
    return [
        x("cpu_op", "aten::linear", at, 100), x("cpu_op", "aten::addmm", at + 10, 60), launch(at + 20, number),
        launch(at + 30, number + 1), kernel("void gemm<4>(int)", at + 50, 20, number),
        kernel("void bias<4>(int)", at + 75, 5, number + 1),
    ]  # fmt: skip


def ranges(*names: str) -> list[Event]:
    """What a profiler of counters writes: ranges without times of their own."""
    return [
        {**x("cuda_profiler_range", name, 1000 * i, 1000, pid=0, tid=0), "args": {"device": 0, **COUNTERS}}
        for i, name in enumerate(names)
    ]


def test_patterns_of_kernels(tmp_path: Path) -> None:
    events = [*linear(0, 1), *linear(200, 3), x("cpu_op", "aten::relu", 400, 50), launch(410, 5)]
    dataset = loaded(tmp_path, {"a.json": document([*events, kernel("relu", 420, 9, 5)])})
    table = kernel_patterns(TraceStory(dataset).spans).with_columns(pl.col("operator").cast(pl.String))
    assert table.rows() == [(0, "aten::linear", "void gemm<4>(int)\nvoid bias<4>(int)", 2, 2, 50_000)]
    assert pattern_lines(TraceAnalysis(patterns=table)) == ["linear, 2 times on rank 0, 50 us: gemm > bias"]


def test_counters_are_of_the_operators_of_launches(tmp_path: Path) -> None:
    """The n-th range is the n-th launch; without a range for each launch nobody knows."""
    launches = [event for event in [*linear(0, 1), *linear(200, 3)] if event["cat"] != "kernel"]
    names = ["gemm", "bias"] * 2
    table = _counters(loaded(tmp_path, {"a.json": document([*launches, *ranges(*names)])}))
    assert table.rows() == [
        (0, "aten::addmm", "bias", "dram__bytes_read.sum", 2, 8192.0, 4096.0),
        (0, "aten::addmm", "gemm", "dram__bytes_read.sum", 2, 8192.0, 4096.0),
        (0, "aten::addmm", "bias", "sm__throughput.avg.pct", 2, 25.0, 12.5),
        (0, "aten::addmm", "gemm", "sm__throughput.avg.pct", 2, 25.0, 12.5),
    ]
    assert counter_lines(TraceAnalysis(counters=table), 1) == [
        "addmm, bias, 2 times: dram__bytes_read.sum 8192, sm__throughput.avg.pct 12.5 (mean)",
        "and 1 more kernel; the JSON report has them",
    ]


def test_counters_of_unknown_operators(tmp_path: Path) -> None:
    table = _counters(loaded(tmp_path, {"a.json": document([*linear(0, 1), *ranges("gemm")])}))
    assert table["operator"].to_list() == [None, None]
    assert table["kernel"].to_list() == ["gemm", "gemm"]


def _counters(dataset: Dataset) -> pl.DataFrame:
    names = pl.col("operator", "kernel", "counter").cast(pl.String)
    return counter_table(TraceStory(dataset).spans).with_columns(names)


def test_numbers_of_spans_are_the_same_by_ranges() -> None:
    """Only numbers count: a text, infinity, or a place is none."""
    odd = x("cuda_profiler_range", "odd", 0, 1, pid=0, tid=0, device=0, a="7", b=[1], c=True, d=None)
    data = document([*linear(0, 1), *ranges("gemm", "bias"), odd])
    whole, parts = decoded(data), in_ranges(data, 3)
    told = [
        [(content.names[content.code("name")[span]], content.value_names[name], value)
         for span, name, value in zip(*content.value_numbers.tolist(), content.values[0].tolist(), strict=True)]
        for content in (whole, parts)
    ]  # fmt: skip
    assert told[0] == told[1] == [(name, *one) for name in ("gemm", "bias") for one in COUNTERS.items()]


def test_a_wait_for_an_event_is_followed(tmp_path: Path) -> None:
    """The kernel on stream 9 waits for the copy on stream 8, which ended long before it, and not for the gemm."""
    wait = {
        "correlation": 4, "wait_on_stream": 8, "wait_on_cuda_event_record_corr_id": 2, "wait_on_cuda_event_id": 5,
    }  # fmt: skip
    events = [
        x("user_annotation", "ProfilerStep#1", 0, 1000),
        launch(10, 1, name="cudaMemcpyAsync"), x("gpu_memcpy", "Memcpy", 100, 300, pid=0, tid=8, correlation=1),
        x("cuda_runtime", "cudaEventRecord", 20, 2, correlation=2), launch(30, 3), kernel("gemm", 100, 410, 3),
        x("cuda_runtime", "cudaStreamWaitEvent", 40, 2, correlation=4),
        {**x("cuda_sync", "Stream Wait Event", 41, 0, pid=0, tid=9), "args": wait}, launch(50, 5),
        kernel("late", 520, 580, 5, stream=9),
    ]  # fmt: skip
    path = TraceStory(loaded(tmp_path, {"a.json": document(events)})).analysis().path
    assert path.select("kind", (pl.col("end_ns") - pl.col("start_ns")) // 1000).rows() == [
        ("host", 10), ("launch", 90), ("memory", 300), ("launch", 120), ("compute", 580),
    ]  # fmt: skip
