"""Summaries of tensors of two runs: the first operation that differs, its cause, and what is noise of reruns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rankscope.analysis.model import Analysis
from rankscope.features.comparison.rules.model import ComparedRun, RunComparison
from rankscope.features.comparison.rules.run_comparison import compare_runs
from rankscope.features.comparison.rules.run_sides import compare_sides
from rankscope.features.comparison.rules.tensor_differences import compare_tensors
from tests.features.comparison.rules.test_series_choice import told
from tests.numbers_writer import NumbersJob, cast

RANKS = 4


def job(place: str = "", by: float = 1.5, at: int = 0, rank: int = 1, swap: bool = False) -> NumbersJob:
    """Three steps of a model with one layer, a dropout, a reduction and an optimizer; at one place it differs."""
    made = NumbersJob({"dp": list(range(RANKS))})

    def changed(name: str, values: Any, own: int) -> Any:
        hit = name == place and made.step >= at and own in (rank, -1)
        return values * np.float32(by) if hit else values

    for made.step in range(3):
        grads = []
        for own in range(RANKS):
            source = own ^ 1 if swap and made.step >= at else own
            x = cast(np.random.default_rng([made.step, source]).standard_normal((6, 12)), "f32")
            made.row(own, "batch", "in0", changed("batch", x, own), name="tokens")
            made.row(own, "forward", "in0", x, name="layer")
            y = changed("layer", np.tanh(x), own)
            made.row(own, "forward", "out0", y, name="layer")
            made.row(own, "forward", "in0", y, name="dropout")
            z = changed("dropout", y * np.float32(2), own)
            made.row(own, "forward", "out0", z, name="dropout")
            grads.append(z)

        def sums(outs: dict[int, Any], _: object) -> None:
            outs.update({one: changed("sum", values, -1) for one, values in outs.items()})

        made.all_reduce("dp", grads, spoil=sums)
        for own in range(RANKS):
            made.row(own, "gradient", "out0", grads[0], name="w")
            made.row(own, "optimizer", "out0", changed("update", grads[0] + 1, own), name="w")
    return made


def run(made: NumbersJob, title: str = "run") -> ComparedRun:
    return ComparedRun(title, made.dataset(), Analysis("", "unknown"))


def compared(made: NumbersJob) -> RunComparison:
    return compare_runs(run(job()), run(made))


def test_equal_runs_have_no_difference() -> None:
    found = compared(job())
    assert found.is_same and found.headline.startswith("no difference between A and B in settings and values")
    assert found.parts[2].summary == "all 108 tensors equal"


LAST_BIT = 1 + 2.0**-23


@pytest.mark.parametrize(
    ("made", "title", "kinds", "reason"),
    [
        (job("layer", at=1), "the output of layer on rank 1 in step 1: relative difference 0.5 of the samples; all",
         ("initial-values", "dropout", "kernel"), "its weights are not recorded"),
        (job("layer", LAST_BIT), "the output of layer on rank 1 in step 0", ("kernel",), "as small as rounding"),
        (job("dropout"), "the output of dropout on rank 1 in step 0", ("dropout",), "draws random numbers"),
        (job("sum", LAST_BIT, at=2), "the output of all_reduce #3 of dp on ranks 0-3 in step 2", ("order",), "a sum"),
        (job("sum", 1.1), "the output of all_reduce #1 of dp on ranks 0-3 in step 0", (), "no order of sums"),
        (job("update", rank=2), "the new parameter w on rank 2 in step 0", ("optimizer", "lr"), "the gradient of this"),
        (job("batch"), "the batch tokens on rank 1 in step 0", ("data",), "A has this batch in no recorded step"),
        (job(swap=True, at=1), "the batch tokens on ranks 0-3 in step 1", ("data",), "rank 0 has the batch that"),
    ],
)  # fmt: skip
def test_the_first_operation_and_its_kinds_of_cause(
    made: NumbersJob, title: str, kinds: tuple[str, ...], reason: str
) -> None:
    found = compared(made)
    first = found.differences[0]
    assert first.kind == "values-differ" and first.title.startswith(title)
    assert found.hypotheses[0].kinds == kinds
    assert any(reason in line for line in first.details) and first.stacks.in_b[0].file == "train.py"


def test_what_follows_is_no_further_difference() -> None:
    found = compared(job("layer", at=1))
    assert len(found.differences) == 1
    assert found.parts[2].summary == "16 of 108 tensors differ, from step 1 on"
    assert "before it in0 of forward layer is equal" in found.differences[0].details


def test_a_series_that_differs_in_an_earlier_step_comes_first() -> None:
    def with_loss(one: ComparedRun, step: int) -> ComparedRun:
        return replace(one, series=told([1.0 + (k >= step) for k in range(3)], first=0))

    base = with_loss(run(job()), 9)
    for step, kinds in ((0, ["loss", "the output"]), (1, ["the output", "loss"])):
        found = compare_runs(base, with_loss(run(job("layer", at=1)), step)).differences
        assert [one.title.startswith(kind) for one, kind in zip(found, kinds, strict=True)] == [True, True]


def test_what_differs_between_reruns_is_noise() -> None:
    baselines = [run(job(), "a1"), run(job("sum", LAST_BIT), "a2")]
    found = compare_sides(baselines, [run(job("sum", LAST_BIT * LAST_BIT), "b1")])
    assert found.is_same and found.groups is not None
    assert [one.title for one in found.groups.also_between_baselines] == ["tensors from step 0 on"]
    real = compare_sides(baselines, [run(job("layer"), "b1")])
    assert [one.title[:19] for one in real.differences] == ["the output of layer"]


def test_without_hashes_statistics_count_up_to_their_printed_digits() -> None:
    def rounded(digits: int, by: float = 1.0) -> NumbersJob:
        made = job()
        for line in (line for lines in made.lines for line in lines if "site" in line):
            line["hash"] = None
            for name in ("sum", "l2", "min", "max"):
                line[name] = float(f"{line[name] * by:.{digits}g}")
        return made

    exact = rounded(17).dataset()
    for made, equal in ((rounded(6), 108), (rounded(6, 1.001), 0)):
        found = compare_tensors(exact, made.dataset())
        assert found is not None and found.equal == equal


def test_an_operation_that_one_run_leaves_out_comes_first() -> None:
    less = job()
    for lines in less.lines:
        lines[:] = [line for line in lines if (line.get("seq"), line.get("site")) != (2, "collective")]
    found = compared(less)
    title = "only A recorded all_reduce of 72 elements of dp on ranks 0-3 in step 1"
    assert [(one.kind, one.title, one.ranks) for one in found.differences] == [
        ("schedule-differs", title, (0, 1, 2, 3))
    ]
    assert "8 tensors, only in A" in found.parts[2].left
