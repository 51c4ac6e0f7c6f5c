"""Statistics over runs: what few runs can show, and what they are not called."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.features.comparison.rules.model import (
    ComparedPart,
    MetricEffect,
    PartState,
    RunComparison,
    RunDifference,
)
from rankscope.features.comparison.rules.run_sides import RankMetric, rank_outliers
from rankscope.features.comparison.rules.run_statistics import (
    Budget,
    RunMetric,
    Sides,
    gate_checks,
    metric_effects,
    outlying_runs,
    parse_budget,
    runs_needed,
    smallest_p,
)

NAN = float("nan")
INF = float("inf")


def sides(a: int, b: int) -> Sides:
    """The first `a` runs against the next `b`."""
    return Sides(tuple(range(a)), tuple(range(a, a + b)))


def step(*values: float, name: str = "step") -> RunMetric:
    """A metric of steps."""
    return RunMetric(name, "s", "step", values)


def effect(a: int, *values: float) -> MetricEffect:
    """The effect of one metric of which the first `a` values are those of baselines."""
    (found,) = metric_effects([step(*values)], sides(a, len(values) - a))
    return found


def test_three_against_three_runs_are_not_enough_however_far_apart() -> None:
    found = effect(3, 1.0, 1.01, 0.99, 1.3, 1.31, 1.29)
    assert found.p == pytest.approx(0.1) == smallest_p(3, 3)
    assert found.verdict == "too-few-runs"
    assert found.effect == pytest.approx(0.3, abs=1e-3)
    assert 0.2 < (found.low or 0) < found.effect < (found.high or 0) < 0.4
    assert (runs_needed(1), runs_needed(5), runs_needed(20)) == (4, 5, 6)


def test_five_against_five_runs_show_it() -> None:
    noise = [0.0, 0.01, -0.01, 0.02, -0.02]
    found = effect(5, *(1 + x for x in noise), *(1.1 + x for x in noise))
    assert found.verdict == "differs"
    assert found.p == pytest.approx(2 / 252)
    assert 0.02 < (found.smallest_effect or 0) < 0.06


def test_one_of_twenty_metrics_needs_more_runs_than_one_alone() -> None:
    rng = np.random.default_rng(1)
    apart = step(1.0, 1.01, 0.99, 1.02, 1.3, 1.31, 1.29, 1.32)
    others = [step(*np.exp(rng.normal(0, 0.01, 8)).tolist(), name=f"m{n}") for n in range(19)]
    assert metric_effects([apart], sides(4, 4))[0].verdict == "differs"
    held = metric_effects([apart, *others], sides(4, 4))[0]
    assert held.verdict == "too-few-runs"
    assert held.p == pytest.approx(2 / 70)


def test_equal_runs_without_spread_do_not_differ() -> None:
    found = effect(2, 1.0, 1.0, 1.0, 1.0)
    assert (found.effect, found.low, found.high, found.verdict) == (0.0, 0.0, 0.0, "not-shown")


def test_a_side_of_one_run_has_an_interval_and_no_p() -> None:
    found = effect(2, 1.0, 1.001, 1.5)
    assert found.p is None
    assert (found.low or 0) > 0.4


def test_missing_values_are_left_out_and_lost_ones_counted() -> None:
    found = effect(2, 1.0, NAN, 1.1, INF)
    assert (found.values_a, found.values_b, found.lost_b) == ((1.0,), (1.1,), 1)
    assert metric_effects([step(NAN, 1.0)], sides(1, 1)) == ()


def test_the_run_that_differs_from_its_peers_is_found_and_none_among_equal_ones() -> None:
    labels = {0: "B1", 1: "B2", 2: "B3", 3: "B4"}
    (found,) = outlying_runs([step(1.0, 1.001, 1.3, 0.999)], labels)
    assert (found.name, round(found.size, 2)) == ("B3", 0.3)
    rng = np.random.default_rng(2)
    equal = [step(*np.exp(rng.normal(0, 0.05, 4)).tolist()) for _ in range(50)]
    assert sum(1 for one in equal for _ in outlying_runs([one], labels)) <= 5
    assert list(outlying_runs([step(1.0, 1.5)], {0: "A1", 1: "A2"})) == []


def test_a_rank_that_is_late_in_all_candidates_only_is_named_with_its_size() -> None:
    even = {rank: 1e-4 * rank for rank in range(8)}
    late = even | {5: 0.02}
    metric = RankMetric("late at collectives", True, (even, even, late, late))
    (found,) = rank_outliers(metric, ("A1", "A2", "B1", "B2"), sides(2, 2))
    assert found.title == "rank 5 enters collectives 20 ms later than the middle rank in B; in A 150 us later"
    always = RankMetric("late at collectives", True, (late, late, late, late))
    once = RankMetric("late at collectives", True, (even, even, late, even))
    assert [*rank_outliers(always, ("A1", "A2", "B1", "B2"), sides(2, 2))] == []
    assert [*rank_outliers(once, ("A1", "A2", "B1", "B2"), sides(2, 2))] == []


# Budgets.


def checked(budget: str, *metrics: MetricEffect) -> tuple[str, str]:
    """The outcome of a budget with its reason."""
    (found,) = gate_checks([parse_budget(budget)], RunComparison("", (), (), metrics=metrics))
    return found.outcome, found.reason


def test_several_runs_fail_by_the_lower_end_of_their_interval() -> None:
    slower = effect(3, 1.0, 1.01, 0.99, 1.1, 1.11, 1.09)
    assert 0.05 < (slower.low or 0) < 0.1
    assert checked("step=5%", slower)[0] == "failed"
    assert checked("step=9%", slower)[0] == "passed"
    assert checked("step=5%", effect(3, 1.1, 1.11, 1.09, 1.0, 1.01, 0.99))[0] == "passed"


def test_two_runs_fail_from_three_percent_on() -> None:
    assert checked("step=1%", effect(1, 1.0, 1.02))[0] == "passed"
    assert checked("step=1%", effect(1, 1.0, 1.04))[0] == "failed"


@pytest.mark.parametrize(
    ("state", "differences", "outcome"),
    [
        (PartState.UNCOUNTED, (), "passed"), (PartState.NOT_COMPARED, (), "unmeasured"),
        (PartState.DIFFERS, (RunDifference("durations-differ", "step: B is 40 % slower"),), "failed"),
    ],
)  # fmt: skip
def test_the_gate_of_two_runs_agrees_with_the_answer(
    state: PartState, differences: tuple[RunDifference, ...], outcome: str
) -> None:
    part = ComparedPart("durations", state, "+40.0 %, no interval: fewer than 50 steps")
    found = RunComparison("", (), (part,), differences, metrics=(effect(1, 1.0, 1.4),))
    (check,) = gate_checks([parse_budget("step=3%")], found)
    assert check.outcome == outcome and (outcome == "failed" or "no interval" in check.reason)


def test_less_throughput_is_worse_and_a_lost_loss_fails() -> None:
    (rate,) = metric_effects([RunMetric("tokens_per_sec", "/s", "throughput", (100.0, 80.0), False)], sides(1, 1))
    assert checked("tokens=10%", rate)[0] == "failed"
    (loss,) = metric_effects([RunMetric("final loss", "", "loss", (2.0, INF))], sides(1, 1))
    assert checked("loss=1%", loss) == ("failed", "final loss is no number in 1 run of B")
    assert checked("step=1%", loss)[0] == "unmeasured"


@pytest.mark.parametrize("text", ["step", "step=", "step=3", "step=-3%", "=3%"])
def test_a_budget_is_a_percentage_or_a_respect(text: str) -> None:
    with pytest.raises(ValueError, match="neither METRIC=N% nor one of schedule"):
        parse_budget(text)
    assert parse_budget("Step = 0.5 %") == Budget("Step = 0.5 %", "step", 0.005)
