"""Times of two runs: intervals, and what they are not called."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.features.comparison.rules.time_comparison import block_length, period_of, step_ratio, time_ratio


def times(
    seed: int, count: int = 200, correlation: float = 0.0, level: float = 1.0
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Times around `level` with noise of 3 % that is correlated over neighbours."""
    rng = np.random.default_rng(seed)
    noise = np.zeros(count)
    for i, shock in enumerate(rng.normal(0, 0.03 * np.sqrt(1 - correlation**2), count)):
        noise[i] = correlation * noise[i - 1] + shock if i else shock
    return level * np.exp(noise)


def test_fewer_than_fifty_values_give_no_interval() -> None:
    found = time_ratio("step", times(1, 49), times(2, 300, level=2.0))
    assert found.low is None and not found.stands_out


@pytest.mark.parametrize(
    ("count", "level", "stands_out"), [(20, 1.7, True), (20, 1 / 1.7, True), (20, 1.0, False), (12, 1.3, True)]
)
def test_few_steps_stand_apart_though_some_are_pauses(count: int, level: float, stands_out: bool) -> None:
    a, b = times(1, count), times(2, count, level=level)
    a[3], b[5] = 3.0 * a[3], 3.0 * b[5]
    found = step_ratio("step", a, b)
    assert found.low is None and found.stands_out == stands_out


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_few_steps_of_equal_runs_do_not_stand_apart(correlation: float) -> None:
    pairs = [(times(2 * n, 20, correlation), times(2 * n + 1, 20, correlation)) for n in range(200)]
    assert sum(step_ratio("step", *pair).stands_out for pair in pairs) <= 1


@pytest.mark.parametrize(("level", "stands_out"), [(1.0, False), (1.02, False), (1.08, True), (0.9, True)])
def test_a_change_stands_out_from_three_percent_on(level: float, stands_out: bool) -> None:
    assert time_ratio("step", times(1), times(2, level=level)).stands_out == stands_out


def test_intervals_of_equal_runs_rarely_exclude_equality() -> None:
    found = [time_ratio("step", times(2 * n), times(2 * n + 1)) for n in range(100)]
    assert sum(not (one.low or 0) <= 1 <= (one.high or 0) for one in found) <= 10
    assert not any(one.stands_out for one in found)


def test_an_interval_is_the_same_each_time() -> None:
    assert time_ratio("step", times(1), times(2)) == time_ratio("step", times(1), times(2))


def test_blocks_grow_with_correlation_up_to_an_eighth() -> None:
    assert block_length(times(1)) == 1
    assert 2 < block_length(times(1, correlation=0.6)) < block_length(times(1, correlation=0.9)) <= 25
    assert block_length(np.ones(100)) == 1


def test_the_period_is_that_of_the_loop() -> None:
    assert period_of(np.array([9, 9, *[1, 2, 3, 4, 5] * 8])) == 5
    assert period_of(np.arange(60)) == 0


def test_a_change_within_the_drift_of_both_runs_is_none() -> None:
    drifting = times(1) * np.repeat([1.0, 1.2, 1.3, 1.1], 50)
    assert time_ratio("step", drifting, drifting * 1.2).stands_out is False
    assert time_ratio("step", times(2), drifting * 1.2).stands_out is True
