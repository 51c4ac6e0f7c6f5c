"""Second moments of an optimizer: a state that is lost, a negative one, and what is no fault."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rankscope.analysis.facts import Facts
from rankscope.analysis.model import Analysis
from rankscope.features.numbers.rules.number_findings import NumberCause, judge_numbers, with_numbers
from rankscope.schema import Dataset
from tests.numbers_writer import NumbersJob, cast

DECAY = 0.99


def adam(
    is_lost: Callable[[int, int], bool], *, decay: Callable[[int], float] = lambda _: DECAY, sign: float = 1
) -> Dataset:
    """Four steps of two ranks with six weights; by step and rank whether the state is lost before the step."""
    job = NumbersJob({"dp": [0, 1]})
    moments = np.zeros((2, 6, 12, 5))
    for job.step in range(4):
        for rank in range(2):
            for weight in range(6):
                gradient = cast(np.random.default_rng((job.step, weight)).standard_normal((12, 5)), "f32")
                if is_lost(job.step, rank):
                    moments[rank, weight] = 0
                own = decay(weight)
                moments[rank, weight] = own * moments[rank, weight] + (1 - own) * gradient.astype(np.float64) ** 2
                name, state = f"layers.{weight}.weight", moments[rank, weight].copy()
                state[0, 0] *= sign if rank == 1 and weight == 3 and job.step == 2 else 1
                job.row(rank, "gradient", "out0", gradient, name=name)
                job.row(rank, "optimizer", "exp_avg_sq", cast(state, "f32"), name=name)
    return job.dataset()


def causes(run: Dataset) -> list[NumberCause]:
    return [cause for cause in judge_numbers(run).causes if RULE.get(cause.first.rule)]


RULE = {"O1": "negative", "O2": "lost"}


def test_a_healthy_state_holds() -> None:
    run = adam(lambda _step, _rank: False)
    assert causes(run) == []
    assert {count.rule: count.asked for count in judge_numbers(run).counts if count.rule in RULE} == {
        "O1": 48,
        "O2": 24,
    }


def test_a_state_that_is_lost_names_its_rank_or_nobody_if_all_lost_it() -> None:
    (cause,) = causes(adam(lambda step, rank: step == 2 and rank == 1))
    assert (cause.variant, cause.first.rule, cause.first.ranks) == ("state-wrong", "O2", (1,))
    run = adam(lambda step, _rank: step == 2)
    (cause,) = causes(run)
    assert (cause.first.rule, cause.first.ranks) == ("O2", ())
    analysis = with_numbers(Facts(run), Analysis("", "unknown"))
    assert analysis.status == "suspect"
    assert (
        analysis.verdict == "exp_avg_sq of parameter layers.0.weight is not what the optimizer makes of it, in step 2"
    )


def test_a_negative_second_moment_is_proven_wrong() -> None:
    first = causes(adam(lambda _step, _rank: False, sign=-1))[0]
    assert (first.first.rule, first.first.ranks, first.proven[0]) == ("O1", (1,), True)


def test_weights_with_another_decay_are_not_asked() -> None:
    assert causes(adam(lambda _step, _rank: False, decay=lambda weight: 0.5 if weight == 0 else DECAY)) == []
