"""Training series of two runs, in frames made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest

from rankscope.features.comparison.rules.series_comparison import beyond_noise, compare_series, recomputed

NAN = float("nan")


def series(
    values: Sequence[float], name: str = "loss", digit: float = 0.0, first: int = 1, segment: int = 0
) -> pl.DataFrame:
    """One series of an unknown rank, printed with a last digit of this size."""
    count = len(values)
    return pl.DataFrame(
        {
            "segment": [segment] * count, "rank": pl.Series([None] * count, dtype=pl.Int64),
            "step": range(first, first + count), "step_hi": pl.Series([None] * count, dtype=pl.Int64),
            "name": [name] * count, "value": pl.Series(values, dtype=pl.Float64), "resolution": [digit / 2] * count,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "resolution", "equal"),
    [
        (1.4, 1.3, 0.1, True), (1.4, 1.2, 0.1, False), (2.5, 2.5, 0.0, True), (2.5, 2.5000001, 0.0, False),
        (NAN, NAN, 0.0, True), (NAN, 1.0, 0.1, False), (float("inf"), float("inf"), 0.0, True),
    ],
)  # fmt: skip
def test_equal_is_within_half_a_last_digit_of_both(a: float, b: float, resolution: float, equal: bool) -> None:
    found = compare_series(series([a], digit=resolution), series([b], digit=resolution))
    assert (not found.differences) == equal


@pytest.mark.parametrize(
    ("relative", "resolution", "onset"),
    [
        (1e-7, 0.0, "rounding"), (3e-5, 0.0, "undecided"), (5e-3, 0.0, "real"), (5e-3, 1e-4, "unresolved"),
        (5e-3, 1e-5, "real"), (1e-4, 1e-5, "unresolved"),
    ],
)  # fmt: skip
def test_the_size_of_the_first_difference_tells_its_kind(relative: float, resolution: float, onset: str) -> None:
    a, b = [2.0, 1.0, 0.5], [2.0, 1.0 + relative, 0.9]
    (found,) = compare_series(series(a, digit=resolution), series(b, digit=resolution)).differences
    assert (found.onset, found.step, found.last_equal) == (onset, 2, 1)


def test_the_gradient_norm_comes_before_the_loss_of_the_same_step() -> None:
    a = pl.concat([series([1.0, 2.0]), series([5.0, 6.0], "grad_norm")])
    b = pl.concat([series([1.0, 2.1]), series([5.0, 6.1], "grad_norm")])
    assert [one.name for one in compare_series(a, b).differences] == ["grad_norm", "loss"]


def test_a_constant_ratio_is_told_as_a_factor() -> None:
    norms = [3.0, 2.5, 2.7, 2.1, 1.9, 1.8]
    (found,) = compare_series(series(norms, "grad_norm"), series([0.99 * x for x in norms], "grad_norm")).differences
    assert found.ratio == pytest.approx(0.99)
    assert found.is_first


def test_only_common_steps_with_a_certain_number_count() -> None:
    rounded = series([9.0], first=3).with_columns(step_hi=pl.lit(5, pl.Int64))
    found = compare_series(pl.concat([series([1.0, 2.0]), rounded]), series([1.0, 2.0, 3.0, 4.0]))
    assert (found.differences, found.steps, found.rounded_steps) == ((), 2, 1)


def test_the_newest_segment_counts_and_is_compared_with_the_older_one() -> None:
    run = pl.concat([series([4.0, 3.0, 2.0, 1.0]), series([2.5, 1.5], first=3, segment=1)])
    assert compare_series(run, series([4.0, 3.0, 2.5, 1.5])).differences == ()
    (again,) = recomputed(run).differences
    assert (again.step, again.value_a, again.value_b) == (3, 2.0, 2.5)
    (found,) = compare_series(series([4.0, 3.0, 2.0, 1.0]), run).differences
    assert found.after_restart


def test_noise_is_known_from_three_baselines_on() -> None:
    baselines = [series([1.0, 1.0 + noise, 1.0 - noise, 1.0, 1.0 + noise, 1.0]) for noise in (0.0, 0.01, 0.02)]
    within, outside = series([1.0, 1.03, 0.99, 1.0, 1.02, 1.0]), series([1.0, 1.01, 1.0, 1.1, 1.2, 1.3])
    assert list(beyond_noise(baselines, within)) == []
    assert list(beyond_noise(baselines, outside)) == [("loss", 4)]
    assert list(beyond_noise(baselines[:2], outside)) == []


def test_a_spike_that_goes_back_is_noise_and_a_loss_that_is_lost_is_not() -> None:
    baselines = [series([1.0 + noise] * 12) for noise in (0.0, 0.01, 0.02)]
    spike, lost = [1.0] * 4 + [2.0] * 3 + [1.0] * 5, [1.0] * 8 + [NAN] * 4
    assert list(beyond_noise(baselines, series(spike))) == []
    assert list(beyond_noise(baselines, series(lost))) == [("loss", 9)]
