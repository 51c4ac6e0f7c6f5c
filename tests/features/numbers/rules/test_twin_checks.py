"""Tied weights, activations that are computed again, weights of a rank that are not updated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from rankscope.features.numbers.rules.number_findings import NumberCause, judge_numbers
from tests.numbers_writer import NumbersJob, cast


def values(*seed: int) -> Any:
    return cast(np.random.default_rng(seed).standard_normal((12, 5)), "f32")


def causes(job: NumbersJob) -> list[NumberCause]:
    return list(judge_numbers(job.dataset()).causes)


def steps(job: NumbersJob, count: int = 4) -> Iterator[int]:
    """The ranks of each step in turn."""
    for job.step in range(count):
        yield from range(job.world)


def tied(change: Callable[[int, str], int]) -> list[NumberCause]:
    """Two ranks with a head that has the weights of the embedding, up to a change of seed by step and name."""
    job = NumbersJob({"dp": [0, 1]})
    for rank in steps(job):
        for name in ("embedding.weight", "head.weight"):
            job.row(rank, "parameter", "in0", values(job.step, change(job.step, name)), name=name)
    return causes(job)


def test_weights_that_are_tied_at_first_stay_tied() -> None:
    assert tied(lambda _, __: 0) == []
    (cause,) = tied(lambda step, name: int(step > 1 and name == "head.weight"))
    assert (cause.variant, cause.first.rule, cause.first.ranks) == ("replicas-differ", "S3t", ())
    assert cause.first.candidates == (0, 1) and "embedding.weight and head.weight held" in cause.first.note


def test_a_copy_that_no_update_confirms_is_not_tied() -> None:
    assert tied(lambda step, name: int(step > 0 and name == "head.weight")) == []


def recomputed(off: Callable[[int, int], float], noise: float = 0.0) -> list[NumberCause]:
    """Two ranks with a block that is computed again, up to a difference by step and rank."""
    job = NumbersJob({"dp": [0, 1]})
    for rank in steps(job):
        for again in (False, True):
            out = values(job.step, rank) * np.float32(1 + again * (off(job.step, rank) + noise))
            job.row(rank, "forward", "out0", out, name="blocks.1", recompute=again)
    return causes(job)


@pytest.mark.parametrize(("share", "everywhere"), [(0.5, False), (1e-6, False), (0.5, True)])
def test_what_is_computed_again_differs(share: float, everywhere: bool) -> None:
    (cause,) = recomputed(lambda step, rank: share * (everywhere or (step == 2 and rank == 1)))
    assert (cause.variant, cause.first.rule) == ("recompute-differs", "S6")
    assert cause.first.ranks == (() if everywhere else (1,))


def test_a_kernel_that_is_never_deterministic_is_no_fault() -> None:
    assert recomputed(lambda _, __: 0.0, noise=2.0**-22) == []


def sent(seed: Callable[[int, int], int]) -> list[NumberCause]:
    """Two ranks that own three weights each and broadcast them, of a seed by step and owner."""
    job = NumbersJob({"dp": [0, 1]})
    for job.step in range(4):
        for owner in (0, 1):
            for weight in range(3):
                own = values(seed(job.step, owner), owner, weight)
                outs = {rank: own.copy() for rank in (0, 1)}
                job.collective("broadcast", "dp", {owner: own}, outs, root=owner)
    return causes(job)


def test_a_rank_that_sends_old_weights_lost_its_update() -> None:
    assert sent(lambda step, _: step) == []
    (cause,) = sent(lambda step, owner: step - (owner == 1 and step == 3))
    assert (cause.variant, cause.first.rule, cause.first.ranks) == ("stale-input", "S1", (1,))
    assert "all 3 tensors that rank 1 sends there" in cause.first.note


def test_a_step_without_an_update_and_frozen_weights_are_no_fault() -> None:
    assert sent(lambda step, _: min(step, 2)) == []
    assert sent(lambda step, owner: 0 if owner == 1 else step) == []
