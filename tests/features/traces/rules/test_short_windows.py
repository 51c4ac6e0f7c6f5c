"""Who is late in short windows and among part of the ranks, and delays that count once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.features.traces.rules.model import TRACE_RESULTS
from rankscope.schema import Dataset
from rankscope.text.wording import rank_ranges
from tests.traces import MS, US, TraceBuilder, paused_once, training


def only_ranks(dataset: Dataset, ranks: Collection[int]) -> Dataset:
    """What is left if only some ranks were traced."""
    kept = pl.col("rank").is_in(list(ranks))
    tracks = dataset.tracks.filter(kept)
    return replace(
        dataset, traced=dataset.traced.filter(kept), traces=dataset.traces.filter(kept), tracks=tracks,
        spans=dataset.spans.join(tracks.select("track"), on="track", how="semi", maintain_order="left"),
    )  # fmt: skip


@pytest.mark.parametrize("traced", [(0, 1, 2), (1, 3), (1, 2, 4, 5)])
def test_of_the_traced_ranks_the_late_one_is_told(traced: tuple[int, ...]) -> None:
    some = only_ranks(training(6, 6, slow_host={1: 20 * MS}).build(), traced)
    analysis = analyse(some)
    assert (analysis.status, analysis.culprits) == ("slow", (1,))
    finding = analysis.findings[0]
    missing = rank_ranges(set(range(6)) - set(traced))
    assert finding.confidence == "medium" and f"ranks {missing} were not traced" in " ".join(finding.confidence_reasons)
    assert some.seen_ranks == traced and rank_ranges(some.unseen_ranks) == missing


def test_whoever_may_wait_for_a_rank_that_was_not_traced_is_not_accused() -> None:
    """Rank 1 is later than 0 and 2, and rank 3, which was not traced, is later still."""
    some = only_ranks(training(4, 6, slow_host={1: 10 * MS, 3: 40 * MS}).build(), (0, 1, 2))
    analysis = analyse(some)
    assert (analysis.status, analysis.culprits) == ("unknown", ())
    assert "rank 3 was not traced" in analysis.verdict and "3 of 4 traced" in analysis.verdict


@pytest.mark.parametrize("delays", [(9, 50, 61), (40, 8, 95), (12, 12, 70, 30)])
def test_a_few_steps_with_unequal_delays_are_told_with_low_confidence(delays: tuple[int, ...]) -> None:
    job = TraceBuilder(4)
    for step, late in enumerate(delays):
        job.begin_step(step)
        for rank in range(4):
            job.host(rank, "aten::randn", (rank * 7 + step * 3) % 5 * MS // 2)
        job.host(2, "load", late * MS)
        for rank in range(4):
            job.launch(rank, "gemm", 60 * MS)
        job.collective()
        job.end_step()
    analysis = analyse(job.build())
    assert (analysis.status, analysis.culprits) == ("slow", (2,))
    assert analysis.findings[0].confidence == "low"


@pytest.mark.parametrize("delays", [(0, 120, 110), (0, 80, 0, 0, 90, 0, 0, 0, 200)])
def test_a_job_that_loses_much_is_not_called_healthy(delays: tuple[int, ...]) -> None:
    job = TraceBuilder(4)
    for step, late in enumerate(delays):
        job.begin_step(step)
        job.idle(1, late * MS)
        for rank in range(4):
            job.launch(rank, "gemm", 100 * MS)
        job.collective()
        job.end_step()
    analysis = analyse(job.build())
    assert (analysis.status, analysis.culprits) == ("unknown", ())
    assert "rank 1 comes late in" in analysis.verdict


def test_one_pause_makes_nobody_late_and_is_told() -> None:
    analysis = analyse(paused_once(1, 2, steps=3, kernel_ns=100 * MS).build())
    assert (analysis.status, analysis.culprits) == ("healthy", ()) and "rank 1 once, by 300 ms" in analysis.verdict


@pytest.mark.parametrize("buckets", [2, 4])
def test_one_delay_counts_once_however_many_collectives_it_holds_up(buckets: int) -> None:
    """Ranks compute while they wait in the first collective, and the late rank computes the same behind it."""
    job = TraceBuilder(4)
    for step in range(6):
        job.begin_step(step)
        job.host(2, "my::wait_for_data", 18 * MS)
        job.collective(blocks=False)
        for _ in range(buckets - 1):
            for rank in range(4):
                job.launch(rank, "gemm", 22 * MS)
            job.collective(blocks=False)
        job.end_step()
    analysis = analyse(job.build())
    assert analysis.culprits == (2,) and TRACE_RESULTS.find(analysis) is not None
    assert TRACE_RESULTS.of(analysis).causes[2].cause == "host" and "my::wait_for_data" in analysis.verdict
    late = TRACE_RESULTS.of(analysis).steps.filter(pl.col("rank") == 2)["late_ns"]
    assert 17 * MS < late.median() < 19 * MS  # type: ignore[operator]


def test_delays_before_each_of_two_collectives_both_count() -> None:
    job = TraceBuilder(4)
    for step in range(6):
        job.begin_step(step)
        for _ in range(2):
            job.host(2, "my::wait", 10 * MS)
            for rank in range(4):
                job.launch(rank, "gemm", 5 * MS)
            job.collective()
            for rank in range(4):
                job.sync(rank)
        job.end_step()
    analysis = analyse(job.build())
    assert TRACE_RESULTS.find(analysis) is not None and analysis.culprits == (2,)
    late = TRACE_RESULTS.of(analysis).steps.filter(pl.col("rank") == 2)["late_ns"]
    assert 19 * MS < late.median() < 22 * MS  # type: ignore[operator]


def test_a_rank_that_spins_in_a_kernel_for_another_does_not_work() -> None:
    """Rank 0 is late; rank 1 waits for it in an all-reduce of their own that no process group issues."""
    job = TraceBuilder(4)
    for step in range(6):
        job.begin_step(step)
        job.host(0, "my::wait_for_data", 20 * MS)
        for rank in range(4):
            length = 20 * MS if rank == 1 else MS
            job.launch(rank, "void vllm::cross_device_reduce_1stage()", length, category="collective_comm")
        job.collective()
        job.end_step()
    analysis = analyse(job.build())
    assert analysis.culprits == (0,)


@pytest.mark.parametrize("ahead_us", [30, 70, 150])
def test_clocks_of_devices_of_one_host_that_differ_make_nobody_late(ahead_us: int) -> None:
    dataset = training(4, 6, jitter_ns=5_000, clock_ns={3: ahead_us * US}, seed=3).build()
    analysis = analyse(dataset)
    assert TRACE_RESULTS.find(analysis) is not None and analysis.status == "healthy"
    assert abs(TRACE_RESULTS.of(analysis).offsets[3] + ahead_us * US) < 10 * US
    assert any("device" in line for line in TRACE_RESULTS.of(analysis).refused)
    sure = TRACE_RESULTS.of(analysis).last.filter("sure")
    assert sure.filter(pl.col("last") == 3).height <= sure.height / 2
