"""Several runs compared: what reruns show as well does not count, and one run of many is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rankscope.analysis import analyse
from rankscope.features.comparison.rules.model import ComparedRun, RunComparison
from rankscope.features.comparison.rules.run_comparison import NothingComparableError
from rankscope.features.comparison.rules.run_sides import compare_sides, compare_sides_in_full
from tests.builders import JobBuilder
from tests.features.comparison.rules.pairs import trained_run
from tests.features.comparison.rules.test_settings import run_with


def reruns(first: int, count: int, **change: float) -> list[ComparedRun]:
    """Reruns with seeds of their own: their losses are apart from the first step on."""
    return [trained_run(seed, "seeds", **change) for seed in range(first, first + count)]


def titles(found: RunComparison) -> list[str]:
    """The titles of all differences up to their numbers."""
    return [one.title.partition(":")[0] for one in found.differences]


def test_values_that_reruns_of_the_baseline_change_too_do_not_count() -> None:
    found = compare_sides(reruns(0, 3), reruns(10, 3))
    assert found.is_same
    assert found.groups is not None
    assert {one.title.split()[0] for one in found.groups.also_between_baselines} == {"loss", "grad_norm"}
    assert "so nothing can be significant; 5 of each side would do for 3 metrics (4 for one)" in found.groups.power
    assert found.headline.startswith(
        "no difference between A and B in durations; what differs in values does not count"
    )


def test_a_slower_step_is_found_over_runs_and_significant_from_enough_runs_on() -> None:
    few, many = (compare_sides(reruns(0, n), reruns(10, n, slower=1.2)) for n in (3, 5))
    assert titles(few) == titles(many) == ["step, as logged"]
    assert "too few runs to call it significant" in few.headline
    assert "significant" not in many.headline
    assert {one.verdict for one in many.metrics if one.kind == "step"} == {"differs"}


def test_a_loss_that_leaves_the_range_of_the_baselines_is_found_at_its_step() -> None:
    found = compare_sides(reruns(0, 4), reruns(10, 2, loss=0.3))
    assert found.differences[0].title == "loss leaves the range of the 4 baselines at step 41"
    assert found.differences[0].runs == ("B1", "B2")
    one_only = compare_sides(reruns(0, 4), [*reruns(10, 2), *reruns(20, 1, loss=0.3)])
    assert one_only.is_same
    values = next(part for part in one_only.parts if part.name == "values")
    assert "loss leaves the range of the 4 baselines at step 41 in B3 only" in values.lines


def test_equal_values_of_all_baselines_make_an_exact_difference_count() -> None:
    same, other = [trained_run(1, "same")] * 2, trained_run(1, "seeds")
    found = compare_sides(same, [other])
    assert found.differences[0].kind == "values-differ"
    assert compare_sides([*same, other], [other, other]).is_same


def settings(*values: str) -> list[ComparedRun]:
    """Runs that set an algorithm."""
    return [run_with({"NCCL_ALGO": value, "NCCL_PROTO": "Simple"}) for value in values]


def test_settings_that_vary_among_baselines_do_not_count() -> None:
    assert not compare_sides(settings("Ring", "Ring"), settings("Tree")).is_same
    assert compare_sides(settings("Ring", "Tree"), settings("Tree")).is_same


@pytest.mark.parametrize(
    ("values", "headline"),
    [
        (("Ring", "Ring", "Tree", "Ring"), "B2 differs from the 3 others, which agree: "),
        (("Tree", "Ring", "Ring", "Ring"), "A differs from the 3 others, which agree: "),
        (("Ring", "Ring", "Tree", "Tree"), "B2, B3 of 3 runs differ from A: "),
    ],
)
def test_single_candidates_are_each_compared_with_a(values: Sequence[str], headline: str) -> None:
    baseline, *others = settings(*values)
    found = compare_sides([baseline], others, pooled=False)
    assert found.headline.startswith(headline)
    assert found.groups is not None
    assert not found.groups.pooled
    sizes = {one.aspect: [len(cluster) for cluster in one.clusters] for one in found.groups.agreement}
    assert sizes == {"schedule": [4], "settings": [3, 1] if "the 3 others" in headline else [2, 2], "outcome": [4]}


def test_the_slow_run_of_equal_ones_is_named() -> None:
    found = compare_sides(reruns(0, 1), [*reruns(10, 3), *reruns(20, 1, slower=1.4)], pooled=False)
    assert found.groups is not None
    assert [(one.name, one.metric) for one in found.groups.outlier_runs] == [("B4", "step, as logged")]


def waiting(late: int | None = None) -> ComparedRun:
    """A run of four ranks, one of which enters each collective 20 ms behind the others, which wait for it."""
    job = JobBuilder(4)
    for turn in range(5):
        for rank in range(4):
            wait = 20_000_000 if late is not None and rank != late else 0
            job.collective("0", ranks=[rank], duration_ns=1_000_000 + turn + 1_000 * rank + wait)
    dataset = job.build()
    return ComparedRun("run", dataset, analyse(dataset))


def test_a_rank_that_is_late_in_each_candidate_is_named() -> None:
    found = compare_sides([waiting(), waiting()], [waiting(2), waiting(2)])
    assert found.groups is not None
    assert [(one.name, one.runs) for one in found.groups.outlier_ranks] == [("rank 2", ("B1", "B2"))]
    assert found.groups.outlier_ranks[0].size == pytest.approx(0.02, rel=0.01)


def test_two_runs_are_compared_as_before_with_their_metrics() -> None:
    found = compare_sides(reruns(0, 1), reruns(1, 1, slower=1.2))
    assert found.groups is None
    step = found.metrics[0]
    assert (step.kind, step.p) == ("step", None)
    assert 0.1 < (step.low or 0) < 0.3


def test_runs_without_anything_in_common_are_named() -> None:
    empty = replace(trained_run(1), series=trained_run(1).series.clear())
    with pytest.raises(NothingComparableError, match="run-1"):
        compare_sides([trained_run(1)], [empty, empty])


def test_the_screen_shows_the_first_candidate_that_can_be_compared() -> None:
    apart, same = replace(trained_run(1), series=trained_run(1).series.clear()), waiting()
    whole = compare_sides_in_full([same], [apart, waiting(2)])
    assert whole.pair[1] is whole.runs[2]
    assert whole.found.groups is not None
