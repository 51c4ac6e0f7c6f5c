"""Operations: what the host issued, joined to what ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.features.traces.read.documents import (
    BASE_NS,
    START_US,
    Event,
    about,
    all_reduce,
    comms,
    document,
    issued,
    kernel,
    launch,
    loaded,
    metadata,
    x,
)

KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
AT = ("created_ns", "started_ns", "completed_ns")


def ns(ts: float) -> int:
    """A time of the builder as the dataset has it."""
    return BASE_NS + round((START_US + ts) * 1000)


def traced(folder: Path, events: list[Event], head: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The rows, of which those of the sparse pass have to be the same."""
    return loaded(folder, {"rank0.json": document(events, head)}).traced.to_dicts()


def test_a_collective(tmp_path: Path) -> None:
    (row,) = traced(tmp_path, all_reduce(1000, 7, Seq=12))
    assert [row[key] for key in AT] == pytest.approx([ns(1000), ns(1050), ns(1150)], abs=2)
    assert row["duration_ns"] == row["completed_ns"] - row["started_ns"]
    said = [row[key] for key in ("op", "library", "seq", "state", "in_sizes", "in_dtypes", "coalesced", "is_p2p")]
    assert said == ["all_reduce", "nccl", 12, "completed", "[[64]]", '["Float"]', "none", False]
    assert (row["source"], row["rank"], row["thread"]) == ("profiler", 0, "493")


def test_every_span_of_it_points_at_its_row(tmp_path: Path) -> None:
    events = [*all_reduce(0, 1), *all_reduce(500, 2), kernel("gemm", 900, 5, 9)]
    spans = loaded(tmp_path, {"a.json": document(events)}).spans
    runs = spans.filter(pl.col("op").is_not_null())
    assert runs["op"].to_list() == [0, 1] and runs["category"].to_list() == ["kernel", "kernel"]


def test_notes_that_are_no_operations_are_left_out(tmp_path: Path) -> None:
    notes = [
        issued(i * 20, i, comms(name)) for i, name in enumerate(("wait", "init", "startCoalesced", "endCoalesced"))
    ]
    assert [row["op"] for row in traced(tmp_path, [*notes, *all_reduce(500, 77)])] == ["all_reduce"]


def test_before_2023_the_launch_tells(tmp_path: Path) -> None:
    """No arguments, the external id of a kernel is its correlation, waiting leaves the same note as a collective."""
    events = [
        issued(0, 42, {"Input Dims": [[], [], []]}, dur=80),
        x("user_annotation", "nccl:all_reduce", 10, 60, Input_Dims=[[394241]], Input_type=["float"]),
        launch(20, 900),
        issued(200, 43, {}, dur=3),
        kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", 30, 246, 900),
    ]
    events[-1]["args"]["External id"] = 900
    (row,) = traced(tmp_path, events, {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 8}})
    assert (row["op"], row["in_sizes"], row["in_dtypes"]) == ("all_reduce", "[[394241]]", '["Float"]')
    assert row["started_ns"] is not None and row["created_ns"] is not None


def test_an_id_is_believed_only_if_the_operation_is_the_same(tmp_path: Path) -> None:
    other = issued(0, 5, comms("broadcast"))
    run = kernel("ncclDevKernel_AllReduce_Sum", 60, 5, 81, **{"External id": 5})
    run["args"] |= comms("allreduce")
    assert [(r["op"], r["state"]) for r in traced(tmp_path, [other, run])] == [
        ("all_reduce", "completed"), ("broadcast", "unknown"),
    ]  # fmt: skip


def test_what_was_issued_before_the_window_comes_first(tmp_path: Path) -> None:
    events = [*all_reduce(2000, 6), *all_reduce(1000, 5)[3:]]
    first, second = traced(tmp_path, events)
    assert (
        first["created_ns"] is None and first["started_ns"] < second["started_ns"] and second["created_ns"] == ns(2000)
    )


def test_what_ran_after_the_window_is_unknown(tmp_path: Path) -> None:
    (row,) = traced(tmp_path, all_reduce(0, 5)[:3])
    assert (row["state"], row["started_ns"], row["duration_ns"]) == ("unknown", None, None)


def test_kernels_that_nobody_issued_stay_spans(tmp_path: Path) -> None:
    """A replayed graph: no arguments, no launch of its own."""
    dataset = loaded(tmp_path, {"a.json": document([kernel("ncclDevKernel_AllReduce_Sum_f32", 0, 5, 3)])})
    assert dataset.traced.is_empty() and dataset.spans["op"].to_list() == [None]
    assert dataset.tracks["kind"].to_list() == ["communication"]


def test_a_generic_kernel_is_what_was_issued(tmp_path: Path) -> None:
    run = kernel("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", 40, 9, 6)
    events = [issued(0, 3, comms("_reduce_scatter_base")), launch(5, 6, name="hipExtLaunchKernel"), run]
    (row,) = traced(tmp_path, events)
    assert (row["op"], row["started_ns"]) == ("_reduce_scatter_base", ns(40))


def sends(ts: float, external: int, name: str, place: int, **more: Any) -> list[Event]:
    arrow = "->" if name == "send" else "<-"
    said = comms(name, group="2", ranks=(4, 6), Rank=place, **more)
    return [issued(ts, external, said), x("user_annotation", f"nccl:{name} 0{arrow}{place}", ts + 1, 5)]


def test_peers_are_global_ranks(tmp_path: Path) -> None:
    events = [*sends(0, 1, "send", 1), issued(50, 2, comms("recv", group="2", ranks=(4, 6), Rank=1, Src_Rank=1))]
    rows = traced(tmp_path, events, about(4, groups=[("0", range(8)), ("2", (4, 6))]))
    assert [(r["op"], r["peer"], r["is_p2p"]) for r in rows] == [("send", 6, True), ("recv", 6, True)]


def test_a_coalesced_group(tmp_path: Path) -> None:
    begin, end = (issued(ts, i, comms(name, group="2", ranks=(4, 6))) for ts, i, name in (
        (0, 1, "startCoalesced"), (200, 4, "endCoalesced"),
    ))  # fmt: skip
    run = kernel(KERNEL, 260, 30, 8)
    events = [begin, *sends(20, 2, "send", 1), *sends(60, 3, "recv", 1), end, launch(203, 8), run]
    rows = traced(tmp_path, events, about(4, groups=[("2", (4, 6))]))
    assert [(r["op"], r["coalesced"], r["started_ns"]) for r in rows] == [
        ("send", "inner", None), ("recv", "inner", None), ("coalesced", "closer", ns(260)),
    ]  # fmt: skip


def test_a_coalesced_group_that_was_issued_before_the_window(tmp_path: Path) -> None:
    run = kernel(KERNEL, 260, 30, 8)
    run["args"] |= {"External id": 4, **comms("endCoalesced", group="2", ranks=(4, 6))}
    (row,) = traced(tmp_path, [run], about(4, groups=[("2", (4, 6))]))
    assert (row["op"], row["coalesced"], row["created_ns"], row["started_ns"]) == ("coalesced", "closer", None, ns(260))


def loops(*threads: int) -> list[Event]:
    named = [metadata("thread_name", 493, t, name=f"thread {t} (pt_gloo_runloop)") for t in threads]
    return [*named, metadata("thread_name", 493, threads[0], name=f"thread {threads[0]} (python)")]


GLOO = about(0, backend="gloo", groups=[("0", (0, 1)), ("1", (0, 1))])


def gloo(ts: float, op: str, run: str, *, tid: int, size: int = 16, wait: float = 30) -> list[Event]:
    dims = {"Input_Dims": [[[size]], []]}
    return [
        x("cpu_op", f"c10d::{op}", ts, 10, **dims),
        x("user_annotation", f"gloo:{run}", ts + wait, 200, tid=tid, Input_Dims=[[size]], Input_type=["float"]),
    ]


def test_gloo_in_order_of_issue_with_the_groups_of_its_loops(tmp_path: Path) -> None:
    events = [
        *loops(501, 503, 511, 512), *gloo(0, "allreduce_", "all_reduce", tid=501, wait=90),
        *gloo(40, "allreduce_", "all_reduce", tid=511, size=4, wait=5),
        *gloo(100, "_allgather_base_", "all_gather", tid=503),
    ]  # fmt: skip
    rows = traced(tmp_path, events, GLOO)
    assert [(r["op"], r["group"], r["library"]) for r in rows] == [
        ("all_reduce", 0, "gloo"), ("all_reduce", 1, "gloo"), ("all_gather", 0, "gloo"),
    ]  # fmt: skip
    assert [r["started_ns"] for r in rows] == pytest.approx([ns(90), ns(45), ns(130)], abs=2)
    assert [r["in_sizes"] for r in rows] == ["[[16]]", "[[4]]", "[[16]]"]


@pytest.mark.parametrize("threads", [(501, 511), (501, 502, 511), (101, 102, 511, 512), (501, 502, 511, 512, 513, 514)])
def test_groups_of_gloo_that_cannot_be_told(tmp_path: Path, threads: tuple[int, ...]) -> None:
    dataset = loaded(
        tmp_path, {"a.json": document([*loops(*threads), *gloo(0, "allreduce_", "all_reduce", tid=511)], GLOO)}
    )
    assert [dataset.group_list[group].name for group in dataset.traced["group"]] == [""]


def test_groups_of_gloo_are_told_of_all_ranks_or_of_none(tmp_path: Path) -> None:
    files = {
        f"{i}.json": document([*loops(*range(501, 505 - i)), *gloo(i, "allreduce_", "all_reduce", tid=502)], GLOO)
        for i in range(2)
    }
    dataset = loaded(tmp_path, files)
    assert [dataset.group_list[group].name for group in dataset.traced["group"]] == ["", ""]


def test_a_run_of_gloo_from_before_the_window(tmp_path: Path) -> None:
    early = gloo(0, "allreduce_", "all_reduce", tid=511)[1:]
    first, second = traced(tmp_path, [*gloo(1000, "allreduce_", "all_reduce", tid=511), *early], GLOO)
    assert first["created_ns"] is None and first["state"] == "completed"
    assert second["started_ns"] - second["created_ns"] == pytest.approx(30_000, abs=2)


def test_gloo_beside_nccl(tmp_path: Path) -> None:
    events = [x("cpu_op", "c10d::allreduce_", -1, 20), *all_reduce(0, 7), *gloo(600, "barrier", "barrier", tid=511)]
    assert [(r["library"], r["op"]) for r in traced(tmp_path, events)] == [("nccl", "all_reduce"), ("gloo", "barrier")]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (2297668046887139545, 2297668046887139545),
        (2**64 - 5, -5),
        ("-7", -7),
        ("12x", None),
        (2**64, None),
        (1.5, None),
    ],
)
def test_the_id_that_members_share_is_kept(tmp_path: Path, written: object, read: int | None) -> None:
    (row,) = traced(tmp_path, all_reduce(1000, 7, Comms_Id=written))
    assert row["comms_id"] == read and row["seq"] is None


def test_a_kernel_of_any_name_that_says_which_collective_it_is(tmp_path: Path) -> None:
    args = comms()
    events = all_reduce(1000, 7)
    run = kernel("all_reduce_of_some_library", 1050, 100, 7, stream=20)
    events[-1] = {**run, "cat": "mtia_ccp_events", "args": {**run["args"], "External id": 7, **args}}
    (row,) = traced(tmp_path, events)
    assert (row["op"], row["state"], row["duration_ns"]) == ("all_reduce", "completed", 100_000)
