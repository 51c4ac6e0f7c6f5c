"""Times of two runs: intervals, and what they are not called."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from rankscope.features.comparison.rules.schedule_comparison import GroupMatching, ScheduleComparison, ScheduleRows
from rankscope.features.comparison.rules.time_comparison import (
    block_length,
    last_ranks,
    period_of,
    step_ratio,
    time_ratio,
    warm_up,
)
from tests.features.comparison.rules.test_hypotheses import nothing


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


@pytest.mark.parametrize(("change", "stands_out"), [(0.04, False), (0.2, True)])
def test_five_steps_that_are_all_apart_differ(change: float, stands_out: bool) -> None:
    few = np.array([1.0, 1.01, 1.02, 1.1, 1.005])
    assert step_ratio("step", few, few * (1 + change) + 0.08 * (change > 0.1)).stands_out == stands_out
    assert warm_up(5) == 0 and warm_up(9) == 3 and warm_up(60) == 10


def test_a_rank_that_comes_last_to_all_collectives_of_one_run_is_named() -> None:
    even, late = (arrivals(turn) for turn in ((0, 1), (1, 1)))
    (found,) = last_ranks(schedules(even, late))
    assert (found.run, found.ranks) == ("B", (1,))
    assert found.title.startswith("rank 1 comes last to 30 of 30 collectives in B, and to 15 of 30")
    assert last_ranks(schedules(late, late)) == () == last_ranks(schedules(even, even))


def test_the_root_of_a_broadcast_that_does_not_wait_is_not_last() -> None:
    even, late = (arrivals(turn, "broadcast") for turn in ((0, 1), (1, 1)))
    assert last_ranks(schedules(even, late)) == ()


def arrivals(last: tuple[int, int], op: str = "all_reduce") -> ScheduleRows:
    """Two ranks and 40 collectives, in which the ranks of `last` come last in turn, 5 ms behind the other."""
    rows = [
        {"rank": rank, "record_id": at, "group": 0, "seq": at, "op": op, "is_p2p": False, "peer": None,
         "duration_ns": 1_000_000 if last[at % 2] == rank else 6_000_000, "started_ns": None, "completed_ns": None}
        for rank in (0, 1) for at in range(40)
    ]  # fmt: skip
    return ScheduleRows(nothing()[0], pl.DataFrame(rows, infer_schema_length=None), ())


def schedules(a: ScheduleRows, b: ScheduleRows) -> ScheduleComparison:
    nobody = np.zeros(0, np.int64)
    return ScheduleComparison(a, b, GroupMatching(nobody, nobody, (), ()), {}, ())


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
