"""The axis of time: clocks brought together, starts and ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from rankscope.tui.clocks import align_clocks
from rankscope.tui.letters import SHIFT, Mark
from rankscope.tui.model import build_model
from rankscope.tui.times import FOREVER, build_times
from tests.builders import START_NS, STEP_NS, JobBuilder
from tests.tui.jobs import hang, healthy


def shifted(dataset: Dataset, by: dict[str, int]) -> Dataset:
    """The dataset with the clocks of some hosts set forward."""
    offset = pl.col("host").cast(pl.String).replace_strict(by, default=0, return_dtype=pl.Int64)
    times = ["created_ns", "started_ns", "completed_ns"]
    return replace(dataset, ops=dataset.ops.with_columns([pl.col(name) + offset for name in times]))


def three_hosts() -> Dataset:
    job = JobBuilder(24)
    for _ in range(20):
        job.collective("0")
    return job.build()


def test_hosts_that_run_ahead_are_brought_back() -> None:
    clocks = align_clocks(shifted(three_hosts(), {"node01": 5_000_000, "node02": -3_000_000}))
    assert clocks.offsets[8] - clocks.offsets[0] == 5_000_000
    assert clocks.offsets[16] - clocks.offsets[0] == -3_000_000
    assert clocks.residual_ns == 0
    assert "moved" in clocks.note


def test_clocks_that_agree_are_left_alone() -> None:
    clocks = align_clocks(three_hosts())
    assert set(clocks.offsets.values()) == {0}
    assert clocks.note == "clocks agree, ends differ by 0 s"


def test_an_offset_within_the_scatter_is_none() -> None:
    dataset = three_hosts()
    rng = np.random.default_rng(0)
    noise = pl.Series(rng.integers(0, 100_000_000, dataset.ops.height))
    noisy = replace(dataset, ops=dataset.ops.with_columns(completed_ns=pl.col("completed_ns") + noise))
    clocks = align_clocks(noisy)
    assert set(clocks.offsets.values()) == {0}
    assert clocks.residual_ns is not None
    assert 1_000_000 < clocks.residual_ns < 100_000_000


def test_without_completions_the_clocks_stay_as_written() -> None:
    job = JobBuilder(4)
    job.collective("0", completed_ns=None, host=None)
    clocks = align_clocks(job.build())
    assert (clocks.offsets, clocks.residual_ns) == ({}, None)
    assert clocks.note == "clocks as written"


def test_ranks_are_compared_where_no_host_is_known() -> None:
    job = JobBuilder(3)
    for _ in range(9):
        job.collective("0", host=None)
    ops = job.build().ops
    late = pl.when(pl.col("rank") == 2).then(7_000_000).otherwise(0)
    clocks = align_clocks(replace(job.build(), ops=ops.with_columns(completed_ns=pl.col("completed_ns") + late)))
    assert clocks.offsets == {0: 0, 1: 0, 2: 7_000_000}


def test_everything_has_a_start_and_an_end() -> None:
    times = build_times(build_model(*healthy(steps=2)))
    assert times.low == START_NS + STEP_NS
    assert (times.end > times.start).all()
    assert times.end[0] - times.start[0] == STEP_NS // 2
    assert times.high > int(times.end.max())


def test_what_never_completed_goes_on_for_ever() -> None:
    model = build_model(*hang(8, 1))
    times = build_times(model)
    assert (times.end == FOREVER).sum() == 7
    lane = np.array([model.lane_of[5]])
    edges = np.array([times.high - 2, times.high - 1, times.high])
    running, position = times.running(lane, edges)
    assert (running >> SHIFT).tolist() == [[Mark.SCHEDULED] * 2]
    assert times.end[position[0, 0]] == FOREVER


def test_a_long_operation_is_seen_behind_short_ones() -> None:
    job = JobBuilder(1)
    job.collective("0", completed_ns=START_NS + 50 * STEP_NS)
    job.collective("0", op="broadcast")
    times = build_times(build_model(job.build(), Analysis("", "healthy")))
    running, _ = times.running(np.array([0]), np.array([START_NS + 30 * STEP_NS, START_NS + 31 * STEP_NS]))
    assert running[0, 0] == times.code[0]


def test_a_measured_duration_counts_more_than_when_it_was_noticed() -> None:
    job = JobBuilder(1)
    job.collective("0", duration_ns=99_000, completed_ns=START_NS + 100 * STEP_NS)
    times = build_times(build_model(job.build(), Analysis("", "healthy")))
    assert int(times.end[0] - times.start[0]) == 99_000


def test_a_completion_without_a_time_ends_where_the_next_begins() -> None:
    job = JobBuilder(1)
    job.collective("0", completed_ns=None)
    job.collective("0", completed_ns=None)
    times = build_times(build_model(job.build(), Analysis("", "healthy")))
    assert times.end.tolist() == [int(times.start[1]), int(times.start[1]) + 1]


def test_rows_without_any_time_are_left_out() -> None:
    job = JobBuilder(2)
    job.collective("0", created_ns=None, started_ns=None, completed_ns=None)
    times = build_times(build_model(job.build(), Analysis("", "healthy")))
    assert len(times.start) == 0
    assert times.running(np.array([0]), np.array([0, 1]))[0].tolist() == [[0]]
