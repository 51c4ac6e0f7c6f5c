"""Which operations of different ranks are one, and on which clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from rankscope.features.traces.rules.lateness import MATCH_COLUMNS
from rankscope.features.traces.rules.matching import cluster_windows, match_rows
from rankscope.features.traces.rules.trace_story import TraceStory
from rankscope.schema import Dataset
from tests.traces import MS, US, TraceBuilder, training


def without(dataset: Dataset, rank: int, rows: list[int]) -> Dataset:
    """The trace of one rank without some of its operations."""
    own = dataset.traced.with_columns(at=pl.int_range(pl.len()).over("rank"))
    return replace(dataset, traced=own.filter((pl.col("rank") != rank) | ~pl.col("at").is_in(rows)).drop("at"))


def places(story: TraceStory) -> dict[int, list[int]]:
    """By rank the matches of its operations."""
    table = story.analysis().matched.group_by("rank", maintain_order=True).agg("match")
    return dict(table.iter_rows())


def test_every_collective_is_matched_once() -> None:
    story = TraceStory(training(4, 5).build())
    assert places(story) == {rank: list(range(15)) for rank in range(4)}
    assert story.refused() == ()


@pytest.mark.parametrize("cut", [1, 3, 4])
def test_windows_that_begin_at_different_calls_are_shifted(cut: int) -> None:
    story = TraceStory(without(training(4, 6).build(), 2, list(range(cut))))
    assert places(story)[2] == list(range(cut, 18))
    assert places(story)[0] == list(range(18))


def test_a_whole_step_of_shift_is_told_by_time() -> None:
    # every step is the same: only ends tell that rank 1 began one step later
    story = TraceStory(without(training(3, 8, jitter_ns=400 * US).build(), 1, [0, 1, 2]))
    assert places(story)[1] == list(range(3, 24))


def test_numbers_of_steps_decide_where_times_leave_several_repetitions() -> None:
    # collectives take longer than the step between them
    dataset = training(3, 8, jitter_ns=0, layers=1, hosts=1).build()
    noise = pl.Series(np.random.default_rng(1).integers(0, 2 * MS, dataset.traced.height))
    longer = dataset.traced.with_columns(pl.col("completed_ns", "duration_ns") + 5 * MS + noise)
    story = TraceStory(replace(dataset, traced=longer))
    assert places(story) == {rank: list(range(8)) for rank in range(3)} and story.refused() == ()
    unmarked = match_rows(story.executed, cluster_windows(dataset.traces))
    assert len(unmarked.refused) == 2 and "which repetition" in unmarked.refused[0][2]
    one_later = story.steps.with_columns(pl.col("step") + (pl.col("file") == 1).cast(pl.Int64) * 100)
    assert len(match_rows(story.executed, cluster_windows(dataset.traces), (), one_later).refused) == 1


def test_a_clock_that_is_seconds_off_does_not_hide_the_shift() -> None:
    story = TraceStory(without(training(3, 8, clock_ns={1: 3_000 * MS}, hosts=1).build(), 1, [0, 1, 2]))
    assert places(story)[1] == list(range(3, 24))
    assert abs(story.clocks.offsets[1] + 3_000 * MS) < 10 * US


def test_a_trace_that_left_calls_out_is_refused_with_the_reason() -> None:
    dataset = without(training(3, 8, layers=1, jitter_ns=400 * US).build(), 1, [1, 3, 4, 6])
    story = TraceStory(dataset)
    assert 1 not in places(story)
    assert "rank1_trace.json.gz" in story.refused()[0]


def test_sequence_numbers_match_whatever_is_missing() -> None:
    dataset = without(training(3, 8, layers=1, seqs=True).build(), 1, [1, 3, 4, 6])
    story = TraceStory(dataset)
    assert places(story)[1] == [0, 2, 5, 7]
    assert story.refused() == ()


def test_sends_are_matched_by_pair_and_order() -> None:
    job = TraceBuilder(2)
    for _ in range(6):
        job.launch(0, "gemm", MS)
        job.p2p("0", 0, 1)
        job.p2p("0", 1, 0)
    matched = TraceStory(job.build()).analysis().matched
    assert matched.filter("is_p2p").group_by("match").agg(pl.col("rank").sort())["rank"].to_list() == [[0, 1]] * 12


def test_batches_of_unknown_kind_do_not_disturb_collectives() -> None:
    job = TraceBuilder(4)
    for step in range(8):
        job.collective("0", "coalesced", ranks=[step % 2, 2 + step % 2])
        for rank in range(4):
            job.launch(rank, "gemm", MS)
        job.collective()
    story = TraceStory(job.build())
    whole = story.analysis().matched.filter("blocking")
    assert whole.group_by("match").len()["len"].to_list() == [4] * 8


def test_windows_of_one_rank_stay_apart() -> None:
    traces = pl.DataFrame({
        "file": [0, 1, 2, 3], "rank": [0, 0, 1, 1], "start_ns": [0, 1000, 1010, 5], "end_ns": [90, 1090, 1100, 95],
    })  # fmt: skip
    assert cluster_windows(traces) == {0: 0, 1: 1, 3: 0, 2: 1}


def test_a_window_that_overlaps_no_other_is_alone() -> None:
    traces = pl.DataFrame({
        "file": [0, 1, 2], "rank": [0, 0, 1], "start_ns": [0, 1000, 5000], "end_ns": [90, 1090, 5100],
    })  # fmt: skip
    found = cluster_windows(traces)
    assert len(set(found.values())) == 3


def test_clocks_of_hosts_are_aligned_on_ends() -> None:
    story = TraceStory(
        training(8, 6, clock_ns=dict.fromkeys(range(4, 8), 700 * US), hosts=4, slow_host={6: 20 * MS}).build()
    )
    assert [abs(story.clocks.offsets[r] + 700 * US) < 5 * US for r in range(4, 8)] == [True] * 4
    assert [story.clocks.offsets[r] for r in range(4)] == [0] * 4
    assert max(story.clocks.residuals.values()) < 10 * US
    assert story.clocks.doubts == ()


def test_clocks_reach_over_groups_that_share_a_rank() -> None:
    groups = {"tp0": [0, 1], "tp1": [2, 3], "dp0": [0, 2], "dp1": [1, 3]}
    job = TraceBuilder(4, groups, clock_ns={1: 300 * US, 2: -200 * US, 3: 90 * US}, hosts=1)
    for _ in range(10):
        for name, members in groups.items():
            for rank in members:
                job.launch(rank, "gemm", MS + rank * 10 * US)
            job.collective(name)
    dataset = job.build()
    only = dataset.traced.filter(pl.col("group") > 0)
    offsets = TraceStory(replace(dataset, traced=only)).clocks.offsets
    assert [round(offsets[r] / 10_000) for r in range(4)] == [0, -30, 20, -9]


def test_a_later_window_has_the_clock_of_its_rank() -> None:
    first = training(3, 5, clock_ns={1: 300 * US}, hosts=1).build()
    late = 60_000 * MS
    again = {
        "traced": first.traced.with_columns(pl.col("created_ns", "started_ns", "completed_ns") + late),
        "traces": first.traces.with_columns(pl.col("start_ns", "end_ns") + late),
        "tracks": first.tracks.with_columns(track=pl.col("track") + 100),
        "files": first.files,
    }
    both = {n: pl.concat([getattr(first, n), t.with_columns(file=pl.col("file") + 3)]) for n, t in again.items()}
    spans = first.spans.with_columns(
        track=pl.col("track") + 100, start_ns=pl.col("start_ns") + late, op=pl.col("op") + first.traced.height
    )
    story = TraceStory(replace(first, spans=pl.concat([first.spans, spans]), **both))
    assert [round(story.clocks.offsets[f] / 10_000) for f in range(6)] == [0, -30, 0, 0, -30, 0]
    assert story.analysis().matched["match"].n_unique() == 30
    assert story.refused() == ()


def test_ranks_of_one_host_share_its_clock_whatever_ends_say() -> None:
    story = TraceStory(training(4, 6, clock_ns={1: 500 * US}, hosts=4).build())
    assert set(story.clocks.offsets.values()) == {0}


def test_a_rank_without_anything_matched_has_no_clock() -> None:
    dataset = training(3, 4, hosts=1).build()
    alone = replace(dataset, traced=dataset.traced.filter(pl.col("rank") != 2))
    story = TraceStory(alone)
    assert sorted(story.clocks.offsets) == [0, 1]
    assert "rank2_trace.json.gz" in story.clocks.doubts[-1]


def test_ends_that_do_not_agree_leave_clocks_alone() -> None:
    story = TraceStory(training(4, 8, hosts=1, seed=3, backend="gloo").build())
    loose = replace(story.dataset, traced=_spread(story.dataset.traced))
    clocks = TraceStory(loose).clocks
    assert set(clocks.offsets.values()) == {0}
    assert "do not agree" in clocks.doubts[0]


def _spread(traced: pl.DataFrame) -> pl.DataFrame:
    """Ends that differ by milliseconds, as where devices are shared."""
    late = np.random.default_rng(0).integers(0, MS, traced.height)
    return traced.with_columns(completed_ns=pl.col("completed_ns") + pl.Series(late))


def test_last_is_sure_only_beyond_what_clocks_may_be_off() -> None:
    job = TraceBuilder(2, hosts=1, jitter_ns=2 * US)
    for step in range(12):
        job.launch(0, "gemm", MS)
        job.launch(1, "gemm", MS + (2 * MS if step == 5 else 0))
        job.collective()
    last = TraceStory(job.build()).last
    assert last.filter("sure")["match"].to_list() == [5]
    assert last["last"][5] == 1


@pytest.mark.parametrize("ahead_us", [50, 70])
def test_a_shift_within_a_step_does_not_pass_for_a_clock(ahead_us: int) -> None:
    """Collectives 40 us apart, and a device whose clock is ahead by more: only steps tell the wrong shift."""
    job = TraceBuilder(4, hosts=4, jitter_ns=300, clock_ns={3: ahead_us * US})
    for step in range(6):
        job.begin_step(step)
        for _ in range(4):
            job.collective(length_ns=20 * US)
        job.end_step()
        for rank in range(4):
            job.idle(rank, 4 * MS)
    story = TraceStory(job.build())
    assert story.matches.select(MATCH_COLUMNS).unique().height == 24
    assert abs(story.clocks.offsets[3] + ahead_us * US) < 2 * US
