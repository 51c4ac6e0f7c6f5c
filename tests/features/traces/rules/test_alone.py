"""Traces and dumps of one rank: nothing is compared, and nobody is called healthy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from tests.builders import JobBuilder
from tests.features.traces.read.documents import about, all_reduce, comms, document, kernel, loaded, x

STEP = x("user_annotation", "ProfilerStep#3", 0, 900)


def of_one(folder: Path, events: list[Any], info: dict[str, Any] | None = None) -> Analysis:
    """The analysis of the trace of rank 0, which tells no world size unless `info` does."""
    head = {**about(None), "distributedInfo": {"rank": 0, **(info or {})}}
    return analyse(loaded(folder, {"rank0.json": document([STEP, *events], head)}))


def test_collectives_show_that_there_are_others(tmp_path: Path) -> None:
    bare = x("user_annotation", "nccl:all_reduce", 10, 5)
    analysis = of_one(tmp_path, [bare, kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", 20, 90, 7, stream=20)])
    assert analysis.status == "unknown"
    assert "it communicates with ranks that have no trace" in analysis.verdict
    assert "record all ranks in the same steps" in analysis.verdict


@pytest.mark.parametrize("ranks", [(0, 1, 2, 3), range(64)])
def test_groups_in_arguments_tell_how_many_there_are(tmp_path: Path, ranks: Any) -> None:
    analysis = of_one(tmp_path, all_reduce(10, 7, ranks=ranks))
    assert analysis.status == "unknown"
    assert f"only rank 0 of {len(ranks)} was traced: no wait can be seen" in analysis.verdict


def test_a_long_list_of_members_that_is_cut_still_tells_their_number(tmp_path: Path) -> None:
    said = {**comms(ranks=range(64)), "Process Group Ranks": "[0, 1, ..., 63]"}
    events = [{**event, "args": {**event["args"], **said}} for event in all_reduce(10, 7)]
    assert "only rank 0 of 64 was traced" in of_one(tmp_path, events).verdict


def test_groups_larger_than_what_was_traced_are_not_healthy(tmp_path: Path) -> None:
    def trace(rank: int) -> bytes:
        events = [x("user_annotation", f"ProfilerStep#{n}", 1000 * n, 900) for n in range(6)]
        for n in range(6):
            events += all_reduce(1000 * n + 100, 7 + n, ranks=range(4))
            events.append(kernel("gemm", 1000 * n + 300, 500, 100 + n))
        return document(events, {**about(None), "distributedInfo": {"rank": rank}})

    analysis = analyse(loaded(tmp_path, {f"rank{rank}.json": trace(rank) for rank in range(2)}))
    assert analysis.status == "unknown"
    assert "2 of 4 traced" in analysis.verdict and "ranks 2,3 were not traced" in analysis.verdict


@pytest.mark.parametrize("info", [{}, {"world_size": 1}])
def test_who_communicates_with_nobody_is_compared_with_nobody(tmp_path: Path, info: dict[str, Any]) -> None:
    analysis = of_one(tmp_path, [kernel("gemm", 20, 90, 7)], info)
    assert analysis.status == "unknown"
    assert analysis.verdict.endswith("it communicates with nobody: there is nothing to compare")


@pytest.mark.parametrize(("membership", "status"), [("inferred", "unknown"), ("config", "healthy")])
def test_a_lone_dump_that_does_not_tell_its_groups_is_not_healthy(membership: str, status: str) -> None:
    job = JobBuilder(1)
    for _ in range(3):
        job.collective()
    dataset = job.build()
    groups = dataset.groups.with_columns(membership=pl.lit(membership, dtype=dataset.groups["membership"].dtype))
    analysis = analyse(replace(dataset, groups=groups))
    assert analysis.status == status
    assert ("does not tell who else is in its groups" in analysis.verdict) == (membership == "inferred")
