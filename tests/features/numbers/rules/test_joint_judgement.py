"""A law that breaks and a difference from the reference have one root."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis
from rankscope.features.numbers.rules.number_findings import NumbersJudgement, with_numbers
from rankscope.features.numbers.rules.reference import judge_beside
from rankscope.schema import Dataset
from tests.numbers_writer import NumbersJob, cast


def job(fault: str = "") -> NumbersJob:
    """Four steps of four ranks: an activation, its reduction, and a parameter."""
    made = NumbersJob({"dp": [0, 1, 2, 3], "pair": [0, 1]})
    for made.step in range(4):
        late = made.step > 1
        ins = [cast(np.random.default_rng((made.step, rank)).standard_normal((20, 15)), "f32") for rank in range(4)]
        ins[2] += np.float32(fault == "activation" and late)
        for rank in range(4):
            made.row(rank, "forward", "out0", ins[rank], name="block")

        def spoil(outs: dict[int, Any], _: list[Any]) -> None:
            outs[2][3, 3] += np.float32(fault == "output" and made.step == 2)

        made.all_reduce("dp", ins, spoil=spoil)
        if not (fault == "skip" and late):
            made.all_reduce("pair", ins[:2])
        for rank in range(4):
            own = cast(np.random.default_rng(made.step).standard_normal((20, 15)), "f32")
            own[0, 0] += np.float32(bool(fault) and fault != "skip" and late and rank == 2)
            made.row(rank, "parameter", "in0", own, name="weight")
    return made


def told(fault: str) -> list[tuple[str, tuple[int, ...], int | None]]:
    found = judge_beside(job(fault).dataset(), job().dataset())
    return [(cause.first.rule, cause.first.ranks, cause.explained_by) for cause in found.causes]


def test_a_first_difference_explains_the_laws_that_break_behind_it() -> None:
    assert told("activation") == [("RX", (2,), None), ("S3l", (2,), 0)]


def test_a_proof_in_the_operation_that_first_differs_is_the_root() -> None:
    (root, *rest) = told("output")
    assert root == ("E1", (2,), None) and ("RX", (2,), 0) in rest and ("S3l", (2,), 0) in rest


def test_an_operation_that_is_left_out_is_one_root() -> None:
    assert told("skip") == [("RS", (0, 1), None), ("S4", (0, 1), 0)]


def weighted(changed: tuple[int, ...] = (), scaled: bool = False) -> Dataset:
    """Two stages of two ranks: a weight, the output of its module, its gradient; weights that change between steps."""
    made = NumbersJob({"dp0": [0, 1], "dp1": [2, 3]})
    for made.step in range(4):
        late = made.step > 1
        for rank in range(4):
            name = f"stage{rank // 2}"
            out, weight, gradient, new = (
                cast(np.random.default_rng((made.step + later, rank // 2, kind)).standard_normal((20, 15)), "f32")
                for kind, later in ((0, 0), (1, 0), (2, 0), (1, 1))
            )
            off = np.float32(late and rank in changed)
            gradient *= np.float32(1 + (scaled and late))
            made.row(rank, "forward", "out0", out + off, name=name)
            made.row(rank, "gradient", "out0", gradient, name=f"{name}.weight")
            made.row(rank, "parameter", "in0", weight + off, name=f"{name}.weight")
            made.row(rank, "optimizer", "out0", new + off * (made.step > 1), name=f"{name}.weight")
    return made.dataset()


def test_a_weight_that_changed_is_the_root_of_the_outputs_that_differ() -> None:
    found = [cause for cause in judge_beside(weighted((1,)), weighted()).causes if cause.explained_by is None]
    assert [(cause.first.rule, cause.first.ranks) for cause in found] == [("S5", (1,))]


def test_gradients_that_stages_scale_at_the_same_moment_are_one_root() -> None:
    found = [cause for cause in judge_beside(weighted(scaled=True), weighted()).causes if cause.explained_by is None]
    assert [(cause.first.rule, cause.first.ranks) for cause in found] == [("RX", (0, 1, 2, 3))]
    assert "ranks 2,3 differ at the same moment in stage1.weight" in found[0].first.note


def test_a_healthy_run_breaks_nothing() -> None:
    assert told("") == []


def test_a_law_behind_the_first_difference_is_told_in_the_verdict() -> None:
    run = job("activation").dataset()
    analysis = with_numbers(Facts(run), Analysis("", "unknown"), judge_beside(run, job().dataset()))
    assert analysis.status == "suspect"
    assert analysis.verdict.startswith("rank 2 first differs from the reference in")
    assert [finding.caused_by for finding in analysis.findings] == [None, "f1"]


def test_rules_that_hold_do_not_take_back_what_was_found_before_them() -> None:
    run = job("activation").dataset()
    before = with_numbers(Facts(run), Analysis("", "unknown"), judge_beside(run, job().dataset()))
    after = with_numbers(Facts(run), before, NumbersJudgement((), ()))
    assert (after.status, after.verdict, after.findings) == (before.status, before.verdict, before.findings)
