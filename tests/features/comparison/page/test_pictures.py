"""Curves, maps and scatters as data and as text."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.features.comparison.page.difference_map import (
    EQUAL,
    NOTHING,
    binned,
    difference_maps,
    look_of,
    outliers,
    time_codes,
    value_codes,
)
from rankscope.features.comparison.page.series_page import PlotArea, draw, mark_line, thinned
from rankscope.features.comparison.rules.series_comparison import (
    Curves,
    SeriesKey,
    common_series,
    compare_series,
    curves,
    series_keys,
)
from tests.features.comparison.page.views import ONSET, STEPS, losses, scalars, view_of

LOSS = SeriesKey("loss", None)


def curves_of(*runs: pl.DataFrame, baselines: int = 1) -> Curves:
    """The losses of runs in which one rank prints for all."""
    return curves(common_series(runs).tables, [LOSS], baselines)[0]


def test_series_that_differ_come_first() -> None:
    tables = common_series([losses(), losses(1.01)]).tables
    keys = series_keys(tables, compare_series(*tables))
    assert keys == (SeriesKey("loss", 1), SeriesKey("loss", 0))
    found = curves(tables, keys)[0]
    assert found.steps[found.differs].tolist() == list(range(ONSET, STEPS + 1))


def test_values_that_digits_cannot_tell_apart_are_equal_and_gaps_are_not_compared() -> None:
    found = curves_of(scalars([1.0, 2.0, 3.0]), scalars([1.0001, 2.0002]))
    assert found.differs.tolist() == [False, True, False]
    assert value_codes(found)[2] == NOTHING and value_codes(found)[0] == EQUAL


def test_the_newest_restart_counts() -> None:
    again = pl.concat([scalars([1.0, 2.0]), scalars([1.5], segment=1)])
    assert curves_of(again, scalars([1.5, 2.0])).differs.tolist() == [False, False]


def test_three_baselines_make_a_band() -> None:
    runs = [scalars([1.0, value]) for value in (2.0, 2.2, 1.8)]
    found = curves_of(*runs, scalars([1.0, 2.5]), baselines=3)
    assert found.band is not None and found.band[0].tolist() == [1.0, 1.8] and found.band[1].tolist() == [1.0, 2.2]
    assert found.b.tolist() == [1.0, 2.5] and found.differs.tolist() == [False, True]
    assert curves_of(*runs[:2], baselines=1).band is None


def test_a_spike_survives_the_thinning() -> None:
    values = np.ones(100_000)
    values[54_321] = 9.0
    steps, kept = thinned(np.arange(100_000), values, PlotArea(0, 99_999, 80, 20))
    assert 54_321 in steps and kept.max() == 9.0 and len(steps) <= 4 * 80


def test_a_plot_shows_where_runs_part_without_colours() -> None:
    found = curves_of(scalars([2.0] * 40), scalars([2.0] * 20 + [3.0] * 20))
    area = PlotArea(1, 40, 60, 10, letters=True, ascii_only=True)
    drawing = draw(found, area)
    text = "\n".join(one.plain for one in drawing.lines)
    assert text.isascii() and all(len(one.plain) <= 60 for one in drawing.lines)
    top, bottom = drawing.lines[1].plain, drawing.lines[-3].plain
    assert set(top[drawing.left :]) <= set(" B|") and "B" in top and "=" in bottom and "A" in bottom
    marks = mark_line(found, area, drawing, 30).plain
    first = drawing.column(area, 21)
    assert marks[first] == "^" and set(marks[drawing.left : first - 1]) <= {".", " "}


def test_an_infinite_loss_is_marked_and_not_drawn() -> None:
    found = curves_of(scalars([1.0, 2.0, 3.0]), scalars([1.0, float("nan"), 3.0]))
    area = PlotArea(1, 3, 40, 8, is_log=True)
    assert "N" in mark_line(found, area, draw(found, area), 1).plain
    assert look_of(int(value_codes(found)[1]), is_time=False).text == "N"


def test_a_cell_tells_the_decade_of_a_difference() -> None:
    found = curves_of(scalars([1.0] * 4), scalars([1.0, 1.002, 1.5, 40.0]))
    looks = [look_of(int(code), is_time=False).text for code in value_codes(found)]
    assert looks == [".", "3", "1", "0"]


def test_a_cell_of_time_tells_tenths_of_a_step_slower_and_faster() -> None:
    a, step = np.full(5, 10.0), np.full(5, 100.0)
    codes = time_codes(a, np.array([12.0, 45.0, 2.0, 250.0, np.nan]), step)
    assert [look_of(int(code), is_time=True).text for code in codes] == [".", "3", "a", "9", " "]


def test_a_column_of_several_steps_shows_the_worst() -> None:
    found = next(one for one in difference_maps(view_of()) if one.title == "loss by rank")
    assert found.ranks == (0, 1)
    cells = binned(found, 16)
    assert cells.steps == (1, 17, 33) and cells.codes[0].tolist() == [EQUAL] * 3
    assert cells.codes[1, 0] == EQUAL and cells.codes[1, 1] > EQUAL
    assert ONSET <= found.steps[cells.picked[1, 1]] <= 32


def test_a_rank_is_an_outlier_only_far_from_the_others() -> None:
    even = {rank: 100.0 + rank % 3 for rank in range(16)}
    assert outliers(even) == {}
    assert list(outliers({**even, 5: 160.0})) == [5]
    assert outliers({0: 1.0, 1: 9.0}) == {}
