"""The heat map, the breakdown and the critical path as tables."""

from __future__ import annotations

import polars as pl
import pytest

from rankscope.analysis.model import Analysis
from rankscope.features.traces.page.breakdown_page import breakdown, cells, heading_text
from rankscope.features.traces.page.heat_page import MISSING, build_heat
from rankscope.features.traces.page.path_page import PatternScreen, path_rows, path_strip, rank_marks
from rankscope.features.traces.rules.model import COUNTERS, METRICS, PATH, PATTERNS, STEPS, TraceAnalysis
from rankscope.tui.detail.screens.grid_page import fold_ranks
from tests.features.traces.page.jobs import traced

MS = 1_000_000
LATE, STEP_TIME = METRICS[0], METRICS[1]


def steps(*rows: tuple[int, int, int, int]) -> pl.DataFrame:
    """A table of steps of (rank, step, milliseconds, milliseconds late); half of each is compute, half idle."""
    made = [
        {
            "rank": rank, "file": rank, "step": step, "start_ns": step * 1000 * MS,
            "end_ns": (step * 1000 + length) * MS, "compute_ns": length * MS // 2, "communication_ns": 0,
            "exposed_ns": 0, "overlap_ns": 0, "memory_ns": 0, "idle_ns": length * MS // 2, "host_gap_ns": 0,
            "late_ns": late * MS, "waited_ns": 0,
        }
        for rank, step, length, late in rows
    ]  # fmt: skip
    return pl.DataFrame(made, schema=dict(STEPS))


def test_digits_go_from_the_least_to_the_most() -> None:
    heat = build_heat(steps((0, 3, 100, 0), (1, 3, 150, 5), (2, 3, 200, 10)), STEP_TIME)
    assert (heat.ranks, heat.steps) == ((0, 1, 2), (3,))
    assert heat.digits[:, 0].tolist() == [0, 4, 9]
    assert (heat.low, heat.high) == (100 * MS, 200 * MS)


def test_lateness_begins_at_nothing() -> None:
    heat = build_heat(steps((0, 3, 100, 8), (1, 3, 100, 10)), LATE)
    assert heat.low == 0
    assert heat.digits[:, 0].tolist() == [7, 9]


def test_noise_does_not_look_like_heat() -> None:
    heat = build_heat(steps((0, 3, 1000, 0), (1, 3, 1000, 5), (2, 3, 1000, 10)), LATE)
    assert heat.digits[:, 0].tolist() == [0, 0, 1]
    assert heat.high == 50 * MS


def test_what_is_equal_is_nothing_special() -> None:
    assert build_heat(steps((0, 3, 100, 0), (1, 3, 100, 0)), STEP_TIME).digits.tolist() == [[0], [0]]


def test_steps_that_a_trace_does_not_hold_are_missing() -> None:
    heat = build_heat(steps((0, 3, 100, 0), (0, 4, 100, 0), (1, 4, 200, 0)), STEP_TIME)
    assert heat.digits.tolist() == [[0, 0], [MISSING, 9]]
    assert heat.starts[1].tolist() == [-1, 4000 * MS]


def test_a_step_that_is_there_twice_counts_with_its_worst() -> None:
    assert build_heat(steps((0, 3, 100, 1), (0, 3, 300, 2)), STEP_TIME).values.tolist() == [[300 * MS]]


@pytest.mark.parametrize("metric", METRICS)
def test_without_a_step_there_is_nothing(metric: object) -> None:
    heat = build_heat(steps(), metric)  # type: ignore[arg-type]
    assert (heat.ranks, heat.digits.shape) == ((), (0, 0))


def test_ranks_of_equal_digits_share_a_row_unless_one_is_to_blame() -> None:
    heat = build_heat(steps(*((rank, 3, 100, 0) for rank in range(5)), (5, 3, 100, 9)), LATE)
    assert [row.ranks for row in fold_ranks(heat.ranks, heat.digits, frozenset())] == [(0, 1, 2, 3, 4), (5,)]
    assert [row.ranks for row in fold_ranks(heat.ranks, heat.digits, frozenset({2}))] == [(0, 1), (2,), (3, 4), (5,)]


def test_the_breakdown_weighs_steps_by_their_length() -> None:
    traces = TraceAnalysis(steps=steps((0, 3, 100, 10), (0, 4, 300, 30), (1, 3, 100, 0)))
    first, second = breakdown(traces)
    assert [first[name] for name in ("rank", "steps", "step", "late")] == [0, 2, 200 * MS, 20 * MS]
    assert [first[name] for name in ("compute", "idle", "exposed")] == [0.5, 0.5, 0.0]
    assert second["rank"] == 1
    assert [row["rank"] for row in breakdown(traces, "late")] == [0, 1]
    assert [row["rank"] for row in breakdown(traces, "step")] == [0, 1]


def test_its_lines_fit_into_80_columns() -> None:
    row = breakdown(TraceAnalysis(steps=steps((99999, 3, 100, 10))))[0]
    assert len(heading_text()) == len(" ".join(cells(row))) <= 79


def test_a_path_as_a_row_and_over_time() -> None:
    parts = [(0, "host", 0, 60), (0, "launch", 60, 61), (12, "compute", 61, 81), (1, "communication", 81, 100)]
    rows = [
        {"path": 0, "step": 4, "rank": rank, "file": rank, "kind": kind, "row": None, "start_ns": begin, "end_ns": end}
        for rank, kind, begin, end in parts
    ]
    path = pl.DataFrame(rows, schema=dict(PATH))
    assert path_rows(TraceAnalysis(path=path)) == [
        (0, 4, 100, (0.2, 0.19, 0.0, 0.01, 0.6), ((0, 0.61), (12, 0.2), (1, 0.19)))
    ]
    strip = path_strip(path, 10)
    assert [kind for kind, _ in strip] == ["host"] * 6 + ["compute"] * 2 + ["communication"] * 2
    assert rank_marks([rank for _, rank in strip]) == "0     12  "
    assert rank_marks([rank for _, rank in path_strip(path, 20)]) == "0           12  1   "


def test_patterns_and_counters_are_listed_and_found() -> None:
    patterns = [
        {"rank": rank, "operator": "aten::linear", "kernels": "void gemm<4>(int)\nbias", "length": 2, "count": 3,
         "total_ns": MS} for rank in (0, 1)
    ]  # fmt: skip
    counted = {"rank": 1, "operator": None, "kernel": "evil\x1b[2J", "counter": "flops", "count": 4, "total": 8.0,
               "mean": 2.0}  # fmt: skip
    traces = TraceAnalysis(
        patterns=pl.DataFrame(patterns, schema=dict(PATTERNS)), counters=pl.DataFrame([counted], schema=dict(COUNTERS))
    )
    page = PatternScreen(traced()[0], Analysis(verdict="", status="unknown", parts={"traces": traces}))
    assert page.search("") == 2
    assert page.entry_line(0, 80).plain == "       6     2 ms       2  linear"
    assert [line.plain for line in page.entry_text(0, 80)] == ["ranks 0,1: gemm > bias"]
    assert "\x1b" not in page.entry_line(1, 80).plain
    assert (page.search("flops"), page.entry_text(0, 80)[0].plain) == (1, "flops 8")
