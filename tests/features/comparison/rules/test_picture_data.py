"""Data of the pictures of a comparison: thinned, and with nothing lost that differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from rankscope.features.comparison.rules.model import CellKind, ComparisonPictures, LaneCell
from rankscope.features.comparison.rules.picture_data import (
    MOST_COLUMNS,
    MOST_POINTS,
    comparison_pictures,
)
from rankscope.features.comparison.rules.schedule_comparison import compare_schedules
from rankscope.features.comparison.rules.series_comparison import compare_series
from rankscope.features.comparison.rules.settings_differences import SettingsComparison
from rankscope.features.comparison.rules.time_comparison import LEAST_MATCHED
from rankscope.schema import Dataset
from tests.builders import JobBuilder
from tests.features.comparison.rules.test_series import NAN, series

NO_SETTINGS = SettingsComparison((), 0)


def of_series(*runs: tuple[str, pl.DataFrame]) -> ComparisonPictures:
    sides = {label[0]: table for label, table in reversed(runs)}
    return comparison_pictures(None, NO_SETTINGS, compare_series(sides["A"], sides["B"]), None, runs)


def of_schedules(a: Dataset, b: Dataset) -> ComparisonPictures:
    return comparison_pictures(compare_schedules(a, b), NO_SETTINGS, compare_series(*[pl.DataFrame()] * 2), None, ())


def test_steps_that_one_run_lacks_have_no_value_and_numbers_that_are_none_are_infinitely_far() -> None:
    (drawn,) = of_series(("A", series([1.0, 2.0, 3.0])), ("B", series([2.5, NAN], first=2))).series
    assert drawn.steps == (1, 2, 3) and drawn.first == 2
    assert drawn.lines[1].values[0] is None and drawn.differs == (False, True, True)
    assert drawn.relative == (None, 0.25, float("inf"))


def test_a_difference_within_the_printed_digits_is_none() -> None:
    found = of_series(("A", series([1.4, 1.5], digit=0.1)), ("B", series([1.3, 1.5], digit=0.1)))
    assert found.series[0].relative == (0.0, 0.0) and found.series[0].first is None and found.heat_maps == ()


def test_a_thinned_series_keeps_its_extremes_and_its_first_difference() -> None:
    values = np.sin(np.arange(20_000) / 900)
    other = values.copy()
    values[7_001], other[13_000] = 9.0, -9.0
    (drawn,) = of_series(("A", series(values.tolist())), ("B", series(other.tolist()))).series
    assert drawn.count == 20_000 and len(drawn.steps) <= 6 * MOST_POINTS
    assert max(v for v in drawn.lines[0].values if v is not None) == 9.0
    assert min(v for v in drawn.lines[1].values if v is not None) == -9.0
    assert drawn.first == 7_002 and [s for s, d in zip(drawn.steps, drawn.differs, strict=True) if d] == [7_002, 13_001]


def test_all_baselines_are_drawn_and_the_first_of_each_side_is_compared() -> None:
    runs = [(label, series([1.0, value])) for label, value in (("A1", 2.0), ("A2", 2.5), ("B", 3.0))]
    (drawn,) = of_series(*runs).series
    assert [line.label for line in drawn.lines] == ["A1", "A2", "B"] and drawn.relative == (0.0, 0.5)


def test_with_three_baselines_only_what_stays_out_of_their_range_differs() -> None:
    baselines = [(f"A{i}", series([1.0, 2.0 + i / 10, 3.0, 4.0, 5.0 + i / 10, 6.0])) for i in range(3)]
    (drawn,) = of_series(*baselines, ("B", series([1.0, 2.5, 3.0, 4.1, 7.0, 6.5]))).series
    assert drawn.first == 4 and drawn.differs == (False, False, False, True, True, True)


def test_ranks_that_are_alike_share_a_row_of_the_map() -> None:
    def run(last: float) -> pl.DataFrame:
        ranks = [series([1.0, 2.0, last if rank == 2 else 3.0]) for rank in range(4)]
        return pl.concat([one.with_columns(pl.lit(rank, pl.Int64).alias("rank")) for rank, one in enumerate(ranks)])

    found = of_series(("A", run(3.0)), ("B", run(3.3)))
    (drawn,) = found.heat_maps
    assert [row.label for row in drawn.rows] == ["loss, rank 2", "loss, ranks 0,1,3"]
    assert drawn.rows[0].cells[:2] == (0.0, 0.0) and drawn.rows[1].cells == (0.0, 0.0, 0.0)
    assert [one.rank for one in found.series] == [2]


def job(extra: tuple[int, ...] = (), count: int = 30, late: int | None = None) -> Dataset:
    """Four ranks with `count` collectives; at the tenth some issue another one before, and one may come late."""
    built = JobBuilder(4)
    for number in range(count):
        if number == 10 and extra:
            built.collective(op="broadcast", ranks=extra, state="started")
        for rank in range(4):
            built.collective(ranks=[rank], duration_ns=1_000 if rank == late else 9_000_000)
    return built.build()


def kinds(cells: tuple[LaneCell, ...]) -> list[CellKind]:
    return [cell.kind for cell in cells]


def test_lanes_show_the_gap_of_one_run_and_the_equal_operations_on_both_sides() -> None:
    found = of_schedules(job(), job(extra=(1, 3)))
    (lane,) = found.lanes
    assert lane.ranks == (1, 3) and lane.operation == 7
    assert kinds(lane.in_a) == [*["equal"] * 3, "absent", *["equal"] * 3]
    assert kinds(lane.in_b) == [*["equal"] * 3, "differs", *["equal"] * 3]
    assert lane.in_b[3] == LaneCell("differs", "broadcast", "[64] f32", "default_pg #11", is_open=True)


def test_the_schedule_map_marks_where_ranks_differ() -> None:
    (drawn,) = (one for one in of_schedules(job(), job(extra=(1,))).heat_maps if one.kind == "schedule")
    assert [row.label for row in drawn.rows] == ["rank 1", "ranks 0,2,3"] and (drawn.first, drawn.last) == (0, 29)
    assert [place for place, cell in enumerate(drawn.rows[0].cells) if cell] == [10]
    assert not any(drawn.rows[1].cells) and len(drawn.rows[0].cells) <= MOST_COLUMNS


def test_a_rank_that_no_longer_waits_stands_apart() -> None:
    found = of_schedules(job(), job(late=2))
    assert found.scatter is not None and found.scatter.is_wait
    assert [one.in_b < one.in_a for one in found.scatter.dots] == [False, False, True, False]
    (drawn,) = found.heat_maps
    assert drawn.kind == "times"
    assert all(cell is not None and cell < -0.008 for cell in drawn.rows[2].cells)


def test_without_durations_lateness_counts_and_few_collectives_tell_nothing() -> None:
    untimed = [pl.lit(None, pl.Int64).alias(name) for name in ("duration_ns", "started_ns")]
    a, b = (replace(run, ops=run.ops.with_columns(untimed)) for run in (job(), job()))
    b = replace(b, ops=b.ops.with_columns(pl.col("created_ns") + 5_000_000 * (pl.col("rank") == 3)))
    found = of_schedules(a, b).scatter
    assert found is not None and not found.is_wait
    assert [round(one.in_b - one.in_a, 6) for one in found.dots] == [0.0, 0.0, 0.0, 0.005]
    assert of_schedules(job(count=LEAST_MATCHED - 1), job(count=LEAST_MATCHED - 1)).scatter is None
