"""Tracks and spans."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import polars as pl

from rankscope.assemble.load import LoadOptions
from rankscope.features.traces.rows.span_tables import _depths, by_time
from tests.features.traces.read.documents import (
    ONE_JOB,
    about,
    all_reduce,
    document,
    kernel,
    launch,
    loaded,
    metadata,
    x,
)

EVENTS = [
    metadata("thread_name", 493, 493, name="thread 493 (python)"),
    metadata("thread_sort_index", 493, 493, sort_index=493),
    metadata("thread_name", 0, 7, name="stream 7 "),
    metadata("thread_name", 0, 7, name="stream 7 (python)"),
    x("cpu_op", "aten::mm", 10, 30),
    x("user_annotation", "ProfilerStep#1", 0, 900),
    x("cpu_op", "aten::linear", 10, 50),
    launch(20, 5),
    x("cpu_op", "aten::add", 60, 40),
    kernel("gemm", 70, 10, 5),
    x("gpu_user_annotation", "ProfilerStep#1", 70, 300, pid=0, tid=7),
    x("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 70, 3, pid=0, tid=9, correlation=6),
    *all_reduce(100, 40),
    x("Trace", "PyTorch Profiler (0)", 1, 9, pid="Spans", tid="PyTorch Profiler"),
]  # fmt: skip


def test_spans_lie_in_one_another(tmp_path: Path) -> None:
    dataset = loaded(tmp_path, {"a.json": document(EVENTS)})
    host = dataset.spans.join(dataset.tracks, on="track").filter(pl.col("kind") == "host")
    shown = host.select(pl.col("name").cast(pl.String), "depth").rows()
    assert shown[:5] == [
        ("ProfilerStep#1", 0), ("aten::linear", 1), ("aten::mm", 2), ("cudaLaunchKernel", 3), ("aten::add", 1),
    ]  # fmt: skip
    device = dataset.spans.join(dataset.tracks.filter(pl.col("lane") == 7), on="track", suffix="_track")
    assert device.select(pl.col("name_track"), "depth", "correlation").rows() == [
        ("stream 7", 0, None),
        ("stream 7", 1, 5),
    ]


def test_tracks(tmp_path: Path) -> None:
    tracks = loaded(tmp_path, {"a.json": document(EVENTS)}).tracks.sort("lane")
    assert tracks.select("kind", "device", "pid", "lane", "name", "order").rows() == [
        ("compute", 0, None, 7, "stream 7", 0), ("memory", 0, None, 9, "", 0), ("communication", 0, None, 20, "", 0),
        ("host", None, 493, 493, "thread 493 (python)", 493),
    ]  # fmt: skip


def test_a_device_and_a_process_of_one_number_are_apart(tmp_path: Path) -> None:
    events = [x("cpu_op", "aten::mm", 0, 5, pid=1, tid=7), x("kernel", "gemm", 1, 5, pid=1, tid=7)]
    assert loaded(tmp_path, {"a.json": document(events)}).tracks["kind"].to_list() == ["host", "compute"]


def test_spans_are_sorted_and_tracks_are_of_their_file(tmp_path: Path) -> None:
    files = {f"rank{i}.json": document(EVENTS, about(i)) for i in range(3)}
    dataset = loaded(tmp_path, files)
    assert dataset.spans.sort("track", "start_ns", maintain_order=True).equals(dataset.spans)
    assert dataset.tracks["track"].to_list() == list(range(12))
    ops = dataset.spans.drop_nulls("op").join(dataset.tracks, on="track")
    assert ops["file"].to_list() == dataset.traced["file"].gather(ops["op"]).to_list() == [0, 1, 2]


def test_the_window_of_a_trace(tmp_path: Path) -> None:
    (row,) = loaded(tmp_path, {"a.json": document(EVENTS)}).traces.to_dicts()
    assert row["end_ns"] - row["start_ns"] == 900_000 and (row["events"], row["lost"]) == (len(EVENTS), 0)
    assert (row["detail"], row["backend"], row["resolution_ns"]) == ("all", "nccl", 1)


def test_categories_of_2021(tmp_path: Path) -> None:
    old = [x("Operator", "ProfilerStep#1", 0, 9), x("Operator", "aten::mm", 1, 2), x("Kernel", "gemm", 1, 2, pid=0),
           x("Memcpy", "Memcpy DtoD", 3, 1, pid=0), x("Runtime", "cudaLaunchKernel", 4, 1)]  # fmt: skip
    dataset = loaded(tmp_path, {"a.json": document(old)})
    assert dataset.spans["category"].to_list() == ["user_annotation", "cpu_op", "cuda_runtime", "kernel", "gpu_memcpy"]


def test_the_sparse_pass_tells_the_same_operations(tmp_path: Path) -> None:
    files = {"rank0.json": document(EVENTS)}
    full, sparse = (loaded(tmp_path, files, LoadOptions(jobs=1, detail=detail)) for detail in ("all", "collectives"))
    assert sparse.traced.equals(full.traced) and sparse.groups.equals(full.groups)
    assert sparse.traces["detail"].to_list() == ["collectives"] and 0 < sparse.spans.height < full.spans.height


def test_a_large_file_is_read_in_ranges(tmp_path: Path) -> None:
    events = [x("cpu_op", f"aten::op{i % 50}", i, 0.5, pad="x" * 2000) for i in range(18_000)]
    data = document([*events, *all_reduce(10, 4)], layout="compact")
    assert len(data) > 32 << 20
    dataset = loaded(tmp_path, {"a.json": data}, LoadOptions(jobs=2))
    assert dataset.spans.height == len(events) + 4 and dataset.traced.height == 1
    (row,) = dataset.files.to_dicts()
    assert row["problem"] is None and row["rank_source"] == "content" and ONE_JOB.detail == "all"


def test_depths_count_what_is_open() -> None:
    rng = random.Random(1)
    for _ in range(50):
        spans = sorted((rng.randrange(30), rng.randrange(8)) for _ in range(20))
        spans.sort(key=lambda span: (span[0], -span[1]))
        start = np.array([s for s, _ in spans])
        end = np.array([s + d for s, d in spans])
        before = [sum(max(e, s + 1) > start[i] for s, e in zip(start[:i], end[:i], strict=True)) for i in range(20)]
        assert _depths(start, end).tolist() == before


def test_spans_that_start_at_once_stand_with_the_longest_first_whatever_their_order_in_the_file() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        start = rng.integers(0, 12, 40)
        if rng.random() < 0.5:
            start = np.sort(start)
        end = start + rng.integers(0, 5, 40)
        assert by_time(start, end).tolist() == np.lexsort((-end, start)).tolist()
    assert by_time(np.array([4, 4, 4]), np.array([7, 9, 7])).tolist() == [1, 0, 2]
    assert by_time(np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == []
