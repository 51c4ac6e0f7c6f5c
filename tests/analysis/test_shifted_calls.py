"""Calls too many or too few of the same operation and size: the line is named, and nobody whose role it is."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.call_sites import Program
from rankscope.analysis.model import Analysis
from rankscope.analysis.shifted_calls import align
from rankscope.assemble.load import load
from tests.builders import JobBuilder
from tests.simulator.options import DumpOptions
from tests.simulator.scenario import Scenario, make
from tests.simulator.shifted_calls import finished, with_roles
from tests.simulator.stacks import STACKS

METRIC_LINE = "metrics.py:52"


def answer(scenario: Scenario, folder: Path) -> Analysis:
    scenario.write(folder, DumpOptions())
    return analyse(load([folder]))


def step(job: JobBuilder, ranks: list[int] | None = None, grads: int = 2) -> None:
    for _ in range(grads):
        job.collective(ranks=ranks, stack=[("backward", "train.py", 20)])
    job.collective(ranks=ranks, stack=[("log_loss", "train.py", 29)])


def program(tokens: list[int]) -> Program:
    """A program in which each kind of call has a family of its own."""
    places = np.arange(len(tokens))
    return Program(places, np.array(tokens), places, np.array(tokens), np.array(tokens))


@pytest.mark.parametrize("seed", [1003, 1012])
def test_a_call_too_many_that_ended_is_told_with_its_line(seed: int, tmp_path: Path) -> None:
    scenario = replace(make("healthy", seed), moment="ended")
    rank, _ = finished(scenario.outcome, random.Random(seed), extra=True)
    got = answer(scenario, tmp_path)
    assert got.status == "mismatch"
    assert got.culprits == (rank,)
    assert got.cause is not None and got.cause.kind == "extra-collective"
    assert METRIC_LINE in got.cause.title


@pytest.mark.parametrize("seed", [1003, 1012])
def test_a_call_too_few_that_ended_is_told_with_its_line(seed: int, tmp_path: Path) -> None:
    scenario = replace(make("healthy", seed), moment="ended")
    rank, call = finished(scenario.outcome, random.Random(seed), extra=False)
    got = answer(scenario, tmp_path)
    assert (got.status, got.culprits) == ("mismatch", (rank,))
    assert got.cause is not None and f":{STACKS[call.stack][2]['line']}" in got.cause.title


@pytest.mark.parametrize(("seed", "extra"), [(50000, True), (50002, False), (50005, False), (50037, True)])
def test_a_shift_whose_last_call_has_no_partner_is_told(seed: int, extra: bool, tmp_path: Path) -> None:
    scenario = replace(make("healthy", seed), moment="ended")
    rank, call = finished(scenario.outcome, random.Random(seed), extra)
    got = answer(scenario, tmp_path)
    assert (got.status, got.culprits) == ("mismatch", (rank,))
    assert got.cause is not None and f":{STACKS[call.stack][2]['line']}" in got.cause.title


def test_the_last_call_of_a_shifted_group_may_be_missing() -> None:
    aligned = align(program([5, 1, 2, 5, 1, 2, 1, 2]), program([1, 2, 5, 1, 2, 5, 1, 2]))
    assert (aligned.first, aligned.count, aligned.run, aligned.agreed, aligned.to_end) == (0, 1, 5, 7, True)
    assert not align(program([5, 1, 2, 5, 1, 2, 1, 2]), program([1, 2, 5, 1, 2, 5, 2, 1])).to_end


def test_a_call_too_many_in_a_hang_is_no_call_left_out(tmp_path: Path) -> None:
    scenario = make("extra-alike", 1)
    got = answer(scenario, tmp_path)
    assert got.cause is not None and got.cause.kind == "extra-collective"
    assert set(got.culprits) == set(scenario.truth(DumpOptions()).culprits)
    assert METRIC_LINE in got.cause.title
    # the first divergence of its group is the call itself, although it is finished
    assert any((d.group, d.seq) == (got.cause.group.key, got.cause.seq) for d in got.divergences if got.cause.group)


@pytest.mark.parametrize("seed", [1000, 1001, 1002, 1008, 1023, 1028, 50138, 60110, 60195])
def test_lines_that_differ_by_role_accuse_nobody(seed: int, tmp_path: Path) -> None:
    scenario = make("healthy", seed)
    with_roles(scenario.outcome, random.Random(seed))
    assert not answer(scenario, tmp_path).is_critical


def test_a_branch_of_one_rank_that_all_join_is_no_shift() -> None:
    job = JobBuilder(4)
    for number in range(6):
        step(job, grads=1)
        job.collective(ranks=[1, 2, 3], stack=[("save", "save.py", 7)])
        job.collective(ranks=[0], stack=[("save_first", "save.py", 3)] if number % 2 else [("save", "save.py", 7)])
    assert not analyse(job.build()).findings


def test_a_call_that_one_rank_tries_again_is_told_as_such() -> None:
    job = JobBuilder(4)
    for number in range(6):
        step(job)
        if number == 2:
            job.collective(ranks=[1], stack=[("log_loss", "train.py", 29)])
    cause = analyse(job.build()).cause
    assert cause is not None and (cause.kind, cause.culprit_ranks, cause.seq) == ("extra-collective", (1,), 10)
    assert "at train.py:29 that the others did not: their #10" in cause.explanation
    assert "train.py:20" in cause.explanation


def test_of_two_ranks_alone_both_are_named_by_low_confidence() -> None:
    job = JobBuilder(2)
    for number in range(4):
        step(job)
        if number == 1:
            job.collective(ranks=[1], stack=[("log_metric", "metrics.py", 52)])
    got = analyse(job.build())
    assert got.status == "mismatch"
    assert got.cause is not None and (got.culprits, got.cause.confidence) == ((0, 1), "low")


def test_a_mismatch_leads_back_to_the_branch() -> None:
    job = JobBuilder(4)
    for _ in range(3):
        step(job)
    job.collective(ranks=[0, 1, 3], stack=[("backward", "train.py", 20), ("main", "train.py", 40)])
    job.collective(ranks=[2], stack=[("forward", "model.py", 8), ("main", "train.py", 41)])
    job.collective(ranks=[0, 1, 3], state="scheduled", stack=[("log_loss", "train.py", 29)])
    job.collective(ranks=[2], state="scheduled", op="all_gather", stack=[("log_loss", "train.py", 29)])
    cause = analyse(job.build()).cause
    assert cause is not None
    assert (cause.kind, cause.culprit_ranks, cause.seq) == ("collective-mismatch", (2,), 10)
    assert "train.py:41, not train.py:40" in cause.title
    assert "#11" in cause.title


@pytest.mark.parametrize(
    ("one", "other", "shift"),
    [
        ([1, 9, 2, 3, 4], [1, 2, 3, 4], (1, 3)),
        ([1, 3, 4, 5], [1, 2, 3, 4, 5], (-1, 3)),
        ([1, 9, 3, 4], [1, 2, 3, 4], (0, 2)),
        ([1, 3, 2, 4, 1, 2, 3, 4], [1, 2, 3, 4, 1, 2, 3, 4], (0, 5)),
    ],
    ids=["too many", "too few", "another one", "in another order"],
)
def test_the_shift_is_the_one_behind_which_most_agree(one: list[int], other: list[int], shift: tuple[int, int]) -> None:
    aligned = align(program(one), program(other))
    assert (aligned.first, (aligned.count, aligned.run)) == (1, shift)
