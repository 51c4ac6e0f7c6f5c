"""A run against its reference of the same layout: where it first differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rankscope.features.numbers.rules.number_findings import NumbersJudgement
from rankscope.features.numbers.rules.reference import compare_numbers
from rankscope.features.numbers.rules.tensor_matching import compared_tensors
from tests.numbers_writer import NumbersJob, cast

Change = Callable[[str, int, Any], Any]


def nothing(place: str, rank: int, values: Any) -> None:
    """No fault."""


def job(change: Change = nothing, skip: str = "", ranks: int = 2, scale: float = 0.0) -> NumbersJob:
    """Two steps of two layers and a reduction of each gradient; values follow from those before them."""
    made = NumbersJob({"dp": list(range(ranks))})
    for made.step in range(2):
        rng = np.random.default_rng(made.step)
        x = [rng.standard_normal((8, 12)) * (1 + scale * rng.standard_normal((8, 12))) for _ in range(ranks)]
        for name in ("layers.0", "layers.1"):
            for rank in range(ranks):
                own = cast(x[rank], "f32")
                made.row(rank, "forward", "in0", own, name=name)
                out = cast(np.tanh(own.astype(np.float64) * 1.5), "f32")
                change(name, rank, out)
                made.row(rank, "forward", "out0", out, name=name)
                x[rank] = out
        grads = [cast(one, "f32") for one in x]
        for name in ("layers.1.weight", "layers.0.weight"):
            if name != skip:
                for rank in range(ranks):
                    change(name, rank, grads[rank])
                made.all_reduce("dp", grads, spoil=lambda outs, _: [change("sum", r, one) for r, one in outs.items()])
            grads = [cast(one * 2, "f32") for one in grads]
    return made


def judged(one: NumbersJob, other: NumbersJob, *perturbed: NumbersJob) -> NumbersJudgement:
    return compare_numbers(one.dataset(), other.dataset(), [each.dataset() for each in perturbed])


def test_a_run_equals_itself() -> None:
    found = judged(job(), job())
    assert found.causes == () and found.counts[0].asked > 0 == found.counts[0].broken
    assert "equal bit for bit" in found.notes[0]


def test_the_operation_with_equal_inputs_and_another_output_is_the_root() -> None:
    def change(place: str, rank: int, values: Any) -> None:
        values[0, 0] += 0.5 * (place == "layers.1" and rank == 1)

    one = job(change)
    (cause,) = judged(one, job()).causes
    row = one.dataset().tensors.row(cause.first.row, named=True)
    assert (row["name"], row["slot"], row["step"], cause.first.ranks) == ("layers.1", "out0", 0, (1,))
    assert "all of its recorded inputs are equal" in cause.first.note


def test_what_another_member_brought_into_a_collective_is_its_fault() -> None:
    def change(place: str, rank: int, values: Any) -> None:
        values[0, 0] += 0.5 * (place == "layers.1.weight" and rank == 0)

    (cause,) = judged(job(change), job()).causes
    assert cause.first.ranks == (0,) and "at it or before it: before it out0 of forward layers.1" in cause.first.note


def test_a_collective_with_equal_inputs_is_named_with_its_group() -> None:
    def change(place: str, rank: int, values: Any) -> None:
        values[0, 0] += np.spacing(values[0, 0]) * (place == "sum")

    (cause,) = judged(job(change), job()).causes
    assert cause.first.ranks == (0, 1) and "another order of additions" in cause.first.note


def test_a_schedule_that_parts_comes_first() -> None:
    schedule, values = judged(job(skip="layers.1.weight"), job()).causes
    assert (schedule.variant, schedule.first.ranks, values.explained_by) == ("schedule-differs", (0, 1), 0)
    (schedule, *_) = judged(job(), job(skip="layers.0.weight")).causes
    assert schedule.variant == "schedule-differs" and "the reference has no such tensor" in schedule.first.note


def test_one_of_several_alike_that_is_left_out_is_placed_where_it_was() -> None:
    runs = []
    for left_out in ((), (1,)):
        made = NumbersJob({"dp": [0, 1]})
        for made.step in range(2):
            for k in range(4):
                if not (made.step and k in left_out):
                    rng = np.random.default_rng((made.step, k))
                    made.all_reduce("dp", [rng.standard_normal((8, 12)) for _ in range(2)])
        runs.append(made.dataset())
    schedule, *_ = compare_numbers(runs[1], runs[0]).causes
    row, after = (runs[1].tensors.row(at, named=True) for at in (schedule.first.row, schedule.first.after))
    assert (row["step"], row["seq"], after["step"], after["seq"]) == (1, 6, 1, 5)
    assert "the reference recorded in0 of all_reduce in step 1, and this run did not" in schedule.first.note


def test_twice_the_response_to_a_perturbation_is_the_limit() -> None:
    reference, runs = job(), [job(scale=2.0**-24) for _ in range(2)]
    healthy = judged(job(scale=-(2.0**-24)), reference, *runs)
    assert healthy.causes == () and healthy.counts[1].asked > 0

    def change(place: str, rank: int, values: Any) -> None:
        values *= 1.001 if place == "layers.1" and rank == 1 else 1

    (cause,) = judged(job(change, scale=-(2.0**-24)), reference, *runs).causes
    assert cause.first.rule == "RP" and cause.first.ranks == (1,) and cause.first.value > cause.first.limit > 0


def sharded(parts: int, change: Any = None) -> NumbersJob:
    """A gradient of a weight of 6 x 10 in shards of rows, and a replicated norm."""
    made = NumbersJob({"tp": list(range(parts))})
    whole = cast(np.random.default_rng(3).standard_normal((12, 10)), "f32")
    if change is not None:
        change(whole)
    size = 12 // parts
    for rank in range(parts):
        own = whole[rank * size : (rank + 1) * size]
        place: dict[str, Any] = (
            {"offsets": [rank * size, 0], "whole": [12, 10], "placements": "S(0)"} if parts > 1 else {}
        )
        made.row(rank, "gradient", "out0", own, name="up.weight", **place)
        made.row(rank, "gradient", "out0", cast(np.ones(5), "f32"), name="norm.weight")
    return made


def test_shards_are_merged_to_whole_tensors() -> None:
    for parts in (2, 4):
        found = compared_tensors(sharded(parts).dataset(), sharded(1).dataset())
        assert not found.is_ranked and found.table["equal"].to_list() == [True, True]
        assert found.table["off"].to_list() == [0.0, 0.0]


def test_a_check_that_shuffled_samples_pass_says_so() -> None:
    def equal(place: str, rank: int, values: Any) -> None:
        values[:] = 1

    found = judged(job(equal), job(equal), job(equal))
    assert any("this check cannot tell" in note for note in found.notes)
