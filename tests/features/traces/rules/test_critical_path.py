"""Critical paths of simulated jobs, whose waits are known."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from rankscope.assemble.load import LoadOptions, load
from rankscope.features.traces.rules.critical_path import path_totals, step_lengths
from rankscope.features.traces.rules.model import TraceAnalysis
from rankscope.features.traces.rules.trace_story import TraceStory
from rankscope.schema import Dataset
from tests.trace_tables import COMM, COPY, HOST
from tests.traces import MS, US, TraceBuilder, training

START, SLOW = "start_ns", {2: 40 * MS}


def analysed(dataset: Dataset) -> TraceAnalysis:
    """The results, of which the parts of each path must be its step, without a gap."""
    found = TraceStory(dataset).analysis()
    for parts in found.path.partition_by("path"):
        assert (parts["start_ns"][1:] == parts["end_ns"][:-1]).all()
    lengths, names = step_lengths(found.path), found.path_names.group_by("path").agg(pl.col("total_ns").sum())
    assert lengths.join(names, on="path").filter(pl.col("length_ns") != pl.col("total_ns")).is_empty()
    assert lengths.height == names.height
    return found


def totals(found: TraceAnalysis) -> dict[tuple[int, str], int]:
    """Nanoseconds by rank and kind, over all steps."""
    table = path_totals(found.path).group_by("rank", "kind").agg(pl.col("total_ns").sum())
    return {(rank, kind): total for rank, kind, total in table.iter_rows()}


def named(found: TraceAnalysis, name: str) -> pl.DataFrame:
    """What is on paths under a name."""
    return found.path_names.filter(pl.col("name").cast(pl.String) == name)


def test_a_slow_host_has_the_path() -> None:
    found = analysed(training(4, 5, slow_host=SLOW, clock_ns={1: 300 * US}).build())
    told = totals(found)
    assert told[2, "host"] > 4.8 * 40 * MS
    assert named(found, "<built-in function sleep>")["total_ns"].sum() == 5 * 40 * MS
    steps = found.steps.filter(rank=2)
    assert step_lengths(found.path)["length_ns"].sum() > 0.97 * (steps["end_ns"].max() - steps["start_ns"].min())  # type: ignore[operator]
    late = found.handovers.filter(pl.col("for_rank") == 2)
    assert (late["waited_ns"] > 35 * MS).sum() >= 4


def test_a_slow_kernel_has_the_path() -> None:
    found = analysed(training(4, 5, slow_kernel={1: 30 * MS}).build())
    own = named(found, "extra_gemm").filter(pl.col("kind") == "compute")
    assert own["rank"].unique().to_list() == [1]
    assert own["total_ns"].sum() == 5 * 30 * MS


def test_each_wait_is_followed() -> None:
    """A copy on its own stream is released by an event of computing, and the host waits for it."""
    job = TraceBuilder(1)
    job.begin_step(1)
    job.host(0, "aten::randn", 200 * US)
    job.launch(0, "gemm", 3 * MS)
    state = job.ranks[0]
    job.span(0, HOST, "cuda_runtime", "cudaStreamWaitEvent", state.host, US)
    state.host += 2 * US
    state.device[COPY] = max(state.device.values())
    job.launch(0, "Memcpy DtoH", 2 * MS, COPY, "gpu_memcpy")
    job.sync(0)
    job.host(0, "aten::print", 5 * MS)
    job.end_step()
    found = analysed(job.build())
    kinds = found.path["kind"].to_list()
    assert kinds == ["host", "launch", "compute", "launch", "memory", "host"]
    told = totals(found)
    assert (told[0, "compute"], told[0, "memory"]) == (3 * MS, 2 * MS)
    assert 5 * MS + 200 * US <= told[0, "host"] < 5 * MS + 210 * US
    assert 0 < told[0, "launch"] < 20 * US


def test_without_a_call_no_event_is_inferred() -> None:
    """Work that ended by chance just before other work begins did not release it."""
    job = TraceBuilder(1, jitter_ns=0)
    job.begin_step(1)
    job.launch(0, "gemm", 3 * MS)
    job.launch(0, "other", 2 * MS, COMM, delay_ns=3 * MS)
    job.span(0, HOST, "cuda_runtime", "cudaStreamWaitEvent", job.ranks[0].host, US)
    job.end_step()
    found = analysed(job.build())
    assert found.path["kind"].to_list() == ["host", "launch", "compute"]
    assert totals(found)[0, "launch"] > 2 * MS


def test_a_sender_is_followed() -> None:
    job = TraceBuilder(2, jitter_ns=0)
    for step in range(3):
        job.begin_step(step)
        job.host(0, "load", 20 * MS)
        job.collective()
        job.launch(0, "gemm", 9 * MS)
        job.p2p("0", 0, 1)
        job.end_step()
    found = analysed(job.build())
    assert named(found, "gemm").filter(pl.col("kind") == "compute")["total_ns"].sum() == 27 * MS


def test_gloo_runs_on_hosts() -> None:
    """A real trace: rank 2 sleeps 30 ms in load_batch in each step."""
    found = analysed(load([Path("sample_data/slow_loader")], LoadOptions(detail="all")))
    slept = named(found, "load_batch")
    assert slept["rank"].unique().to_list() == [2]
    assert slept.height == 6
    assert slept["total_ns"].sum() > 6 * 29 * MS
    assert found.handovers["for_rank"].mode().to_list() == [2]


def test_gloo_beside_a_device() -> None:
    told = totals(analysed(training(4, 5, slow_host=SLOW, backend="gloo").build()))
    assert told[2, "host"] > 4.8 * 40 * MS
