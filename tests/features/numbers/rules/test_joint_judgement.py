"""A law that breaks and a difference from the reference have one root."""

from __future__ import annotations

from typing import Any

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis
from rankscope.features.numbers.rules.number_findings import NumbersJudgement, with_numbers
from rankscope.features.numbers.rules.reference import judge_beside
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
