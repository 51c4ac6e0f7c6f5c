"""Logs without a failure: a job that came to its end, or one of which nobody knows."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from tests.builders import JobBuilder


def told(states: list[str], world: int = 2) -> tuple[str, str]:
    job = JobBuilder(world)
    job.no_dump = set(range(world))
    for rank, state in enumerate(states):
        job.comm(rank, state)
    analysis = analyse(job.build())
    return analysis.status, analysis.verdict


def test_a_job_whose_ranks_took_all_communicators_down_has_ended() -> None:
    assert told(["destroyed", "destroyed"]) == (
        "healthy",
        "logs of 2 ranks: no failure, and each took down all of its communicators at the end",
    )


@pytest.mark.parametrize("states", [["destroyed", "complete"], ["destroyed", "aborted"], ["destroyed"], []])
def test_of_a_rank_that_did_not_nobody_knows(states: list[str]) -> None:
    assert told(states)[0] == "unknown"
