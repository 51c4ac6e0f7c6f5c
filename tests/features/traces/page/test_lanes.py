"""The arrays behind the lanes: clocks, waiting, several windows of one rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from rankscope.analysis.model import Analysis
from rankscope.features.traces.page.activity import (
    COMPUTE,
    DATA,
    LAUNCH,
    MOVING,
    NAMED,
    NOTHING,
    OP,
    SYNC,
    WAITING,
    activities,
)
from rankscope.features.traces.page.lanes import TraceLanes, build_lanes
from rankscope.features.traces.page.trace_board import TraceBoard
from rankscope.features.traces.page.trace_paint import compose, gutter_for
from rankscope.features.traces.rules.model import TraceAnalysis
from rankscope.schema import Dataset
from rankscope.tui.letters import letter_number
from rankscope.tui.model import build_model
from tests.features.traces.page.jobs import traced
from tests.traces import MS, training

AR = letter_number("all_reduce")
LATER = 1_000 * MS
"""When the second window begins."""


def total(lanes: TraceLanes, rank: int, activity: int) -> int:
    """Nanoseconds that a rank spends so."""
    key = int(lanes.key_of[lanes.lane_of[rank], activity])
    if key < 0:
        return 0
    first, last = lanes.cover.bounds[key], lanes.cover.bounds[key + 1]
    return int(lanes.cover.before[last] - lanes.cover.before[first])


def lanes_of(dataset: Dataset, analysis: Analysis) -> TraceLanes:
    return build_lanes(dataset, analysis)


def test_waiting_lasts_until_the_last_one_comes() -> None:
    lanes = lanes_of(*traced())
    matched = lanes.traces.matched
    for rank in range(4):
        last = pl.col("arrived_ns").max().over("match")
        own = matched.with_columns(last=last).filter(rank=rank)
        waited = (own["last"] - own["arrived_ns"]).sum()
        assert total(lanes, rank, WAITING + AR) == pytest.approx(waited, abs=2_000 * len(own))
        moved = (own["ended_ns"] - own["last"]).sum()
        assert total(lanes, rank, MOVING + AR) == pytest.approx(moved, abs=2_000 * len(own))
    assert total(lanes, 2, WAITING + AR) < total(lanes, 0, WAITING + AR) / 10


def test_without_a_match_nobody_is_said_to_wait() -> None:
    dataset, analysis = traced()
    lanes = lanes_of(dataset, replace(analysis, parts={"traces": TraceAnalysis()}))
    assert total(lanes, 0, WAITING + AR) == 0
    assert total(lanes, 0, MOVING + AR) > 100 * MS
    assert lanes.clock_words == "clocks as written"


def test_clocks_are_brought_together() -> None:
    dataset = training(2, 3, hosts=1, clock_ns={1: 7 * MS}).build()
    offsets = {0: 0, 1: -7 * MS}
    lanes = lanes_of(
        dataset, Analysis("", "unknown", parts={"traces": TraceAnalysis(offsets=offsets, residuals={0: 1, 1: 900})})
    )
    starts = [lanes.spans.times(int(lanes.spans.bounds[track]))[0] for track in (0, 3)]
    assert abs(starts[0] - starts[1]) < MS
    assert lanes.clock_words == "clocks within 900 ns"
    loose = lanes_of(
        dataset, Analysis("", "unknown", parts={"traces": TraceAnalysis(offsets={0: 0}, residuals={0: 900})})
    )
    assert loose.clock_words == "clocks within 900 ns, 1 not aligned"


def two_windows() -> Dataset:
    """A job of two ranks that was traced twice: the second time is the first again, a second later."""
    dataset = training(2, 2).build()
    tracks, spans, traces = dataset.tracks, dataset.spans, dataset.traces
    again = [
        tracks.with_columns(pl.col("track") + 100, pl.col("file") + 10),
        spans.with_columns(pl.col("track") + 100, pl.col("start_ns") + LATER, op=pl.lit(None, pl.UInt32)),
        traces.with_columns(pl.col("file") + 10, pl.col("start_ns") + LATER, pl.col("end_ns") + LATER),
    ]
    return replace(
        dataset, tracks=pl.concat([tracks, again[0]]), spans=pl.concat([spans, again[1]]),
        traces=pl.concat([traces, again[2]]),
    )  # fmt: skip


def test_windows_of_one_rank_share_their_rows() -> None:
    model = build_model(two_windows(), Analysis("", "unknown"))
    lanes = model.traces
    assert lanes is not None
    assert lanes.ranks.tolist() == [0, 1]
    assert [(s.lane, s.name, len(s.tracks)) for s in lanes.strands][:3] == [
        (0, "thread 100 (python)", 2), (0, "stream 7", 2), (0, "stream 20", 2),
    ]  # fmt: skip
    board = TraceBoard(lanes, model, 64, 12)
    board.place()
    text = compose(board, gutter_for(80, 2))[0][1].text.decode()
    assert "   " in text.strip(), "between the windows nothing is known"
    board.go_row(1)
    board.zoom(4)
    seen = 0
    while board.go_neighbour(1):
        seen += 1
        assert seen < 100
    assert board.unit > lanes.low + LATER


@pytest.mark.parametrize(
    ("category", "name", "activity"),
    [
        ("cpu_op", "aten::mm", OP), ("kernel", "gemm", COMPUTE), ("cuda_runtime", "cudaLaunchKernel", LAUNCH),
        ("cuda_runtime", "hipDeviceSynchronize", SYNC), ("cuda_sync", "Context Sync", SYNC),
        ("user_annotation", "forward", NAMED), ("user_annotation", "ProfilerStep#3", NOTHING),
        ("user_annotation", "nccl:all_reduce", NOTHING), ("gpu_user_annotation", "forward", NOTHING),
        ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", DATA),
        ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", MOVING + AR),
        ("python_function", "vllm/pynccl.py(7): ncclKernel", 1), ("overhead", "x", NOTHING), ("new", "x", NOTHING),
    ],
)  # fmt: skip
def test_what_a_span_is(category: str, name: str, activity: int) -> None:
    dataset, _ = traced()
    one = dataset.spans.head(1).with_columns(
        category=pl.lit(category, pl.Categorical), name=pl.lit(name, pl.Categorical), op=pl.lit(None, pl.UInt32)
    )
    assert activities(one, dataset.traced).tolist() == [activity]


def test_spans_around_a_span_and_at_a_moment() -> None:
    lanes = lanes_of(*traced())
    spans = lanes.spans
    deep = np.flatnonzero(spans.depth == 3)[:5].tolist()
    assert len(deep) == 5
    for span in deep:
        around = spans.around(span)
        assert [int(spans.depth[at]) for at in around] == [2, 1, 0]
        assert all(spans.start[at] <= spans.start[span] and spans.end[at] >= spans.end[span] for at in around)
        track = spans.track_of(span)
        middle = (spans.times(span)[0] + spans.times(span)[1]) // 2
        assert spans.active(track, middle)[0] == span
        assert spans.active(track, lanes.high + 1) == []
