"""Ranks that come to the end of their program while the others go on."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Finding
from tests.builders import JobBuilder

WARNING = "destroy_process_group() was not called before program exit"


def job(exits: dict[int, float], gave_up: dict[int, float], apart: bool = False) -> JobBuilder:
    """Ranks by the second at which they print that they exit, and that they gave up waiting."""
    made = JobBuilder(4)
    made.collective(state="scheduled", seq=11)
    said = [(at, rank, True) for rank, at in exits.items()] + [(at, rank, False) for rank, at in gave_up.items()]
    for at, rank, leaves in sorted(said):
        log = f"rank{rank}.log" if apart else "train.log"
        if leaves:
            made.known("not-destroyed", rank, "context", WARNING, seconds=at, log=log)
        else:
            made.known("watchdog-timeout", rank, seconds=at, log=log)
    return made


def left(made: JobBuilder) -> list[Finding]:
    found = analyse(made.build()).findings
    return [f for f in found if f.root_cause and "left the program" in f.title]


@pytest.mark.parametrize("apart", [False, True])
def test_who_exits_before_the_others_give_up_has_left_them(apart: bool) -> None:
    (found,) = left(job({3: 5}, {0: 20, 1: 20, 2: 21}, apart))
    assert (found.kind, found.culprit_ranks, found.waiting_ranks) == ("missing-rank", (3,), (0, 1, 2))
    assert found.evidence[0].text == WARNING


def test_its_own_watchdog_may_run_out_as_well() -> None:
    (found,) = left(job({3: 5}, {0: 20, 1: 20, 2: 21, 3: 20}))
    assert (found.culprit_ranks, found.waiting_ranks) == ((3,), (0, 1, 2))


def test_who_exits_after_the_timeout_only_follows() -> None:
    assert not left(job({3: 25}, {0: 20, 1: 20, 2: 21}))


def test_when_all_exit_nobody_has_left() -> None:
    assert not left(job({0: 5, 1: 5, 2: 5, 3: 5}, {}))
    assert not left(job({2: 5, 3: 5}, {0: 20, 1: 20}))


def test_clocks_of_two_logs_that_are_close_prove_nothing() -> None:
    assert not left(job({3: 19.9}, {0: 20, 1: 20, 2: 21}, apart=True))
