"""Ranks that came after the others had given up, and barriers that cross."""

from __future__ import annotations

from typing import Any

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis, Finding
from tests.builders import JobBuilder


def roots(analysis: Analysis) -> list[Finding]:
    return [f for f in analysis.findings if f.root_cause]


def gave_up(job: JobBuilder, rank: int, seq: int, group: int = 0) -> None:
    job.message("watchdog-timeout", rank, seq=seq, op="ALLREDUCE")
    job.message("pg-status", rank, group=group, at_work=seq, last_enqueued=seq + 1, last_completed=seq - 1)


def says(job: JobBuilder, rank: int, enqueued: int, **more: Any) -> None:
    job.message("pg-status", rank, group=0, at_work=None, last_enqueued=enqueued, last_completed=enqueued, **more)


def late(job: JobBuilder) -> list[Finding]:
    return [f for f in roots(analyse(job.build())) if f.kind == "missing-rank"]


def test_who_issued_it_after_the_others_gave_up_came_too_late() -> None:
    job = JobBuilder(4)
    # as the log ends, all have issued it
    job.collective(state="scheduled", seq=11)
    for rank in (1, 2, 3):
        gave_up(job, rank, 11)
    says(job, 0, 10)
    says(job, 0, 12)
    (found,) = late(job)
    assert (found.culprit_ranks, found.waiting_ranks, found.seq) == ((0,), (1, 2, 3), 11)
    assert found.confidence == "high"
    assert found.group and found.group.ranks == (0, 1, 2, 3)


def test_two_that_are_late_may_wait_for_each_other() -> None:
    job = JobBuilder(4)
    for rank in (2, 3):
        gave_up(job, rank, 11)
    for rank in (0, 1):
        says(job, rank, 10)
    assert not late(job)


def test_who_gave_up_elsewhere_waited_itself() -> None:
    job = JobBuilder(4)
    for rank in (1, 2):
        gave_up(job, rank, 11)
    says(job, 0, 10)
    job.message("watchdog-timeout", 0, seq=3, op="BROADCAST")
    assert not late(job)


def test_counters_from_before_the_others_gave_up_prove_nothing() -> None:
    job = JobBuilder(4)
    says(job, 0, 10)
    for rank in (1, 2, 3):
        gave_up(job, rank, 11)
    assert not late(job)


def test_clocks_of_hosts_are_not_believed_to_the_second() -> None:
    job = JobBuilder(4)
    for rank in (1, 2, 3):
        job.message("watchdog-timeout", rank, seq=11, op="ALLREDUCE", log="a.log", seconds=30)
        values: dict[str, Any] = {"at_work": 11, "last_enqueued": 12, "last_completed": 10}
        job.message("pg-status", rank, group=0, log="a.log", seconds=30, **values)
    says(job, 0, 10, log="b.log", seconds=31)
    assert not late(job)


def reached(job: JobBuilder, rank: int, inside: int) -> None:
    job.message("monitored-barrier", rank, outcome="reached", failed_ranks=[], reporter=inside, rank_in_group=None)


def test_who_waits_in_another_barrier_is_not_accused() -> None:
    job = JobBuilder(4, {"tp": [0, 1], "dp": [1, 3]})
    reached(job, 3, 1)
    reached(job, 1, 1)
    job.message("monitored-barrier", 0, outcome="failed", failed_ranks=[1, 3], reporter=0, timeout_ms=15_000)
    reached(job, 2, 2)
    job.known("gloo-timeout", 1)
    job.known("gloo-timeout", 2)
    job.known("gloo-timeout", 3)
    (found,) = roots(analyse(job.build()))
    assert (found.kind, found.culprit_ranks, found.candidates) == ("order-deadlock", (), (0, 1, 2, 3))


def test_ranks_of_a_barrier_are_those_of_the_only_group_they_fit() -> None:
    job = JobBuilder(4, {"tp": [0, 2]})
    job.message("monitored-barrier", 0, outcome="failed", failed_ranks=[3], reporter=0, timeout_ms=5000)
    (found,) = roots(analyse(job.build()))
    assert (found.culprit_ranks, found.confidence) == ((3,), "high")


def test_ranks_of_a_barrier_that_fit_two_groups_are_nobody() -> None:
    job = JobBuilder(4, {"tp": [0, 2]})
    # rank 1 of the job, or rank 2, which is the second of tp
    job.message("monitored-barrier", 0, outcome="failed", failed_ranks=[1], reporter=0, timeout_ms=5000)
    assert not analyse(job.build()).culprits
