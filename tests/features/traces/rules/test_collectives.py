"""Collectives by type and size over ranks, against numbers that are worked out without tables."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from statistics import median
from typing import Any

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.features.traces.collectives_section import MOST_SIZES, size_rows
from rankscope.features.traces.rules.collective_costs import COLLECTIVE_RESULTS, CollectiveCosts
from rankscope.features.traces.rules.trace_story import TraceStory
from rankscope.report.json import render_json
from rankscope.report.text import render_text
from rankscope.schema import Dataset
from tests.builders import JobBuilder
from tests.features.traces.read.documents import all_reduce, document, loaded
from tests.traces import MS, US, TraceBuilder, training

SIZES = [[0, 100, 300], [100, 0, 100], [600, 200, 0]]
"""What each of three ranks sends to each, in rows."""


def costs_of(job: TraceBuilder) -> CollectiveCosts:
    return TraceStory(job.build()).collectives


@pytest.mark.parametrize(
    ("op", "factor"),
    [("all_reduce", 1.5), ("_all_gather_base", 0.75), ("_reduce_scatter_base", 0.75), ("all_to_all", 0.75)],
)
def test_bandwidth_is_that_of_nccl_tests(op: str, factor: float) -> None:
    job = TraceBuilder(4, jitter_ns=0)
    for _ in range(3):
        job.launch(1, "gemm", 5 * MS)
        job.collective(op=op, nelems=1 << 20, length_ns=MS)
    (row,) = costs_of(job).sizes.to_dicts()
    assert (row["bytes"], row["count"], row["median_ns"], row["dtype"]) == (4 << 20, 3, MS, "Float")
    assert (row["members"], row["ranks"]) == (4, 4)
    assert row["algbw"] == pytest.approx((4 << 20) / 1e6)
    assert row["busbw"] == pytest.approx(row["algbw"] * factor)


def test_the_time_of_an_operation_that_one_may_finish_alone_is_not_known() -> None:
    job = TraceBuilder(4, jitter_ns=0)
    job.collective(op="broadcast", length_ns=MS)
    (row,) = costs_of(job).sizes.to_dicts()
    assert row["count"] == 1
    assert [row[name] for name in ("median_ns", "busbw", "waited_ns")] == [None] * 3


def test_a_send_takes_from_the_arrival_of_both() -> None:
    job = TraceBuilder(2, jitter_ns=0)
    job.host(1, "late", 20 * MS)
    job.p2p("0", 0, 1, nelems=1 << 20, length_ns=2 * MS)
    (row,) = costs_of(job).sizes.filter(pl.col("op").cast(pl.String) == "send").to_dicts()
    assert row["median_ns"] == pytest.approx(2 * MS, abs=10 * US)
    assert row["busbw"] == pytest.approx((4 << 20) / (2 * MS), rel=0.01)


def test_tables_agree_with_a_count_by_hand() -> None:
    job = training(4, 6, slow_host={2: 30 * MS}, slow_kernel={1: 6 * MS})
    met = defaultdict(list)
    for row in job.rows:
        met[row["group"], row["in_sizes"], sum(row["rank"] == other["rank"] and other["number"] < row["number"]
                                              for other in job.rows)].append(row)  # fmt: skip
    by_size: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    waited: dict[int, int] = defaultdict(int)
    last: dict[int, int] = defaultdict(int)
    for (_, size, _), rows in met.items():
        starts = {row["rank"]: row["started_ns"] for row in rows}
        late = max(starts.values())
        by_size[4 * json.loads(size)[0][0]].append(
            (
                min(row["duration_ns"] for row in rows),
                late - min(starts.values()),
                sum(late - s for s in starts.values()),
            )
        )
        for rank, start in starts.items():
            waited[rank] += late - start
            last[rank] += start == late
    costs = costs_of(job)
    assert costs.sizes.height == len(by_size) == 3
    for row in costs.sizes.iter_rows(named=True):
        took, skew, waits = zip(*by_size[row["bytes"]], strict=True)
        assert row["count"] == len(took) == 6
        assert row["median_ns"] == pytest.approx(median(took), abs=1)
        assert (row["most_skew_ns"], row["waited_ns"]) == (max(skew), sum(waits))
        assert row["skew_ns"] == pytest.approx(median(skew), abs=1)
    assert dict(costs.ranks.select("rank", "waited_ns").iter_rows()) == waited
    assert dict(costs.ranks.select("rank", "last").iter_rows()) == {rank: last[rank] for rank in range(4)}
    assert costs.ranks["count"].to_list() == [18] * 4


def exchanging(sizes: list[list[int]], calls: int = 2) -> Dataset:
    """Ranks that exchange rows of 8 floats, as `sizes` says who sends how many to whom."""
    world = len(sizes)
    job = TraceBuilder(world, jitter_ns=0)
    for _ in range(calls):
        job.collective(op="all_to_all", length_ns=MS)
    dataset = job.build()
    got = [[sizes[a][b] for a in range(world)] for b in range(world)]
    rows = pl.DataFrame(
        {"rank": range(world), "in_splits": map(json.dumps, sizes), "out_splits": map(json.dumps, got),
         "in_sizes": [f"[[{8 * sum(row)}]]" for row in sizes], "out_sizes": [f"[[{8 * sum(row)}]]" for row in got]},
        schema_overrides={"rank": pl.Int32},
    )  # fmt: skip
    traced = dataset.traced.drop("in_splits", "out_splits", "in_sizes", "out_sizes").join(rows, on="rank")
    return replace(dataset, traced=traced.select(dataset.traced.columns))


def test_a_map_of_pairs_holds_who_sends_how_much_to_whom() -> None:
    costs = TraceStory(exchanging(SIZES)).collectives
    pairs = {(rank, peer): bytes_ for rank, peer, bytes_ in costs.pairs.select("rank", "peer", "bytes").iter_rows()}
    assert pairs == {(a, b): 2 * 32 * SIZES[a][b] for a in range(3) for b in range(3)}
    assert set(costs.pairs["count"]) == {2}


def test_what_an_untraced_rank_sends_is_known_from_those_who_get_it() -> None:
    dataset = exchanging(SIZES)
    lost = dataset.traced.with_columns(in_splits=pl.when(pl.col("rank") != 1).then("in_splits"))
    costs = TraceStory(replace(dataset, traced=lost)).collectives
    pairs = {(rank, peer): bytes_ for rank, peer, bytes_ in costs.pairs.select("rank", "peer", "bytes").iter_rows()}
    assert [pairs[1, b] for b in range(3)] == [2 * 32 * SIZES[1][b] for b in range(3)]


def test_uneven_loads_name_the_busiest_rank_in_each_direction() -> None:
    costs = TraceStory(exchanging(SIZES)).collectives
    sent, received = costs.loads.sort("direction", descending=True).to_dicts()
    assert (sent["direction"], sent["rank"], sent["times"], sent["count"]) == ("sent", 2, 2, 2)
    assert sent["imbalance"] == pytest.approx(800 / (1400 / 3))
    assert (received["rank"], received["imbalance"]) == (0, pytest.approx(700 / (1400 / 3)))
    assert received["mean_bytes"] == round(32 * 1400 / 3)


def test_even_loads_name_nobody() -> None:
    dataset = exchanging([[5, 5], [5, 5]])
    (row, _) = TraceStory(dataset).collectives.loads.to_dicts()
    assert (row["imbalance"], row["rank"], row["times"]) == (1.0, None, 0)
    assert "busiest" not in render_text(dataset, analyse(dataset))


def test_the_report_shows_a_small_map_and_of_a_large_one_the_largest_pairs() -> None:
    dataset = exchanging(SIZES)
    text = " ".join(render_text(dataset, analyse(dataset)).split())
    assert "the busiest rank sends 1.7 times the mean" in text and "rank 2 in 2" in text
    assert "from to 0 to 1 to 2 0 0 B 6.2 KiB 19 KiB 1 6.2 KiB 0 B 6.2 KiB 2 38 KiB 12 KiB 0 B" in text
    large = exchanging([[9 if (a, b) == (7, 3) else 1 for b in range(12)] for a in range(12)])
    text = " ".join(render_text(large, analyse(large)).split())
    assert "from to bytes 7 3 576 B" in text and "and 141 more pairs" in text


def test_splits_are_read_and_cut_lists_are_unknown(tmp_path: Any) -> None:
    cases = {"[1, 63]": "[1,63]", "[]": None, "[1, 2, ..., 9]": None, "x": None, "[1, -2]": None, "[1, 1e400]": None}
    events = [
        event
        for at, splits in enumerate(cases)
        for event in all_reduce(1000 * at, 7 + at, name="all_to_allv", In_split_size=splits, Out_split_size=[3, 61])
    ]
    traced = loaded(tmp_path, {"trace.json": document(events)}).traced.sort("created_ns")
    assert traced["in_splits"].to_list() == list(cases.values())
    assert traced["out_splits"].to_list() == ["[3,61]"] * len(cases)


def test_many_sizes_share_rows_and_few_do_not() -> None:
    job = TraceBuilder(2, jitter_ns=0)
    for at in range(20):
        job.collective(op="all_to_all", nelems=1000 + 10 * at, length_ns=MS)
        job.collective(nelems=1 << (10 + at % 2), length_ns=MS)
    dataset = job.build()
    rows = size_rows(dataset, TraceStory(dataset).collectives)
    found = {(row["op"], row["alike"], row["count"], row["bytes"]) for row in rows.iter_rows(named=True)}
    # 4000, 4040 and 4080 bytes lie below a power of two, and 17 sizes up to 4760 above it
    assert found == {
        ("all_reduce", 1, 10, 4096), ("all_reduce", 1, 10, 8192), ("all_to_all", 3, 3, 4040),
        ("all_to_all", 17, 17, 4440),
    }  # fmt: skip


def test_rows_beyond_the_first_are_counted() -> None:
    job = TraceBuilder(2, jitter_ns=0)
    for at in range(MOST_SIZES + 3):
        job.collective(op=("all_reduce", "all_to_all", "_all_gather_base", "_reduce_scatter_base")[at % 4],
                       nelems=1 << (8 + at), length_ns=MS)  # fmt: skip
    dataset = job.build()
    assert "and 3 more rows; the JSON report has all sizes" in render_text(dataset, analyse(dataset))


def test_json_holds_groups_by_names_and_null_for_what_is_not_known() -> None:
    dataset = exchanging(SIZES)
    report = json.loads(render_json(dataset, analyse(dataset)))
    told = report["collectives"]
    assert told["origin"] == "traces" and {row["group"] for row in told["sizes"]} == {"0"}
    assert len(told["pairs"]) == 9 and len(told["loads"]) == 2 and len(told["ranks"]) == 3
    assert report["traces"]["bandwidth"][0]["busbw"] == told["sizes"][0]["busbw"]


# Dumps.


def timed(durations: list[list[int | None]]) -> Dataset:
    """Dumps of all-reduces: of each the duration on each rank."""
    job = JobBuilder(len(durations[0]))
    for of_ranks in durations:
        job.collective(sizes="[[1048576]]")
        for rank, took in enumerate(of_ranks):
            own = [row for row in job.rows if row["rank"] == rank]
            own[-1]["duration_ns"] = took
    return job.build()


def test_dumps_with_durations_tell_the_same() -> None:
    dataset = timed([[3 * MS, MS, 2 * MS]] * 4)
    analysis = analyse(dataset)
    costs = COLLECTIVE_RESULTS.of(analysis)
    assert costs.origin == "dumps"
    (row,) = costs.sizes.to_dicts()
    assert (row["count"], row["bytes"], row["median_ns"], row["skew_ns"], row["waited_ns"]) == (
        4, 4 << 20, MS, 2 * MS, 12 * MS,
    )  # fmt: skip
    assert row["busbw"] == pytest.approx((4 << 20) / MS * 4 / 3)
    assert costs.ranks.select("rank", "waited_ns", "last").rows() == [(0, 8 * MS, 0), (1, 0, 4), (2, 4 * MS, 0)]
    assert "Collectives by type and size, from dumps" in render_text(dataset, analysis)
    assert json.loads(render_json(dataset, analysis))["collectives"]["origin"] == "dumps"


def test_an_operation_of_which_a_member_has_no_duration_is_left_out() -> None:
    costs = COLLECTIVE_RESULTS.of(analyse(timed([[3 * MS, MS], [MS, None], [2 * MS, MS]])))
    assert costs.sizes["count"].to_list() == [2]


def test_dumps_without_durations_say_nothing_of_it() -> None:
    dataset = timed([[None, None]] * 3)
    analysis = analyse(dataset)
    assert COLLECTIVE_RESULTS.find(analysis) is None
    assert "collectives" not in json.loads(render_json(dataset, analysis))


def test_a_job_that_hangs_is_not_told_how_fast_it_was() -> None:
    job = JobBuilder(2)
    for _ in range(3):
        job.collective()
    for row in job.rows:
        row["duration_ns"] = MS
    job.collective(ranks=[0], state="scheduled")
    dataset = job.build()
    analysis = analyse(dataset)
    assert analysis.is_critical and COLLECTIVE_RESULTS.find(analysis) is not None
    assert "Collectives by type" not in render_text(dataset, analysis)
