"""Whom c10d, the setup of communicators and RAS name."""

from __future__ import annotations

from typing import Any

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis, Finding
from tests.analysis.hosts import missing_one
from tests.builders import JobBuilder


def roots(analysis: Analysis) -> list[Finding]:
    return [f for f in analysis.findings if f.root_cause]


def call(op: str, shape: str = "[4]", dtype: str = "Float") -> list[Any]:
    return [3, op, shape, dtype, "cpu"]


def quarrel(job: JobBuilder, rank: int, other: int, own: list[Any], others: list[Any]) -> None:
    job.message(
        "fingerprint-mismatch", rank, ranks=[rank, other], fingerprints=[own, others], rank_in_group=rank, aspects=[]
    )


@pytest.mark.parametrize(
    ("odd", "kind"),
    [
        (call("BROADCAST"), "collective-mismatch"),
        (call("ALLREDUCE", "[8]"), "size-mismatch"),
        (call("ALLREDUCE", dtype="Half"), "dtype-mismatch"),
    ],
)
def test_the_odd_one_of_all_lines_is_accused(odd: list[Any], kind: str) -> None:
    job = JobBuilder(4)
    for rank in (0, 1, 3):
        quarrel(job, rank, 2, call("ALLREDUCE"), odd)
    quarrel(job, 2, 0, odd, call("ALLREDUCE"))
    analysis = analyse(job.build())
    (found,) = roots(analysis)
    assert (found.kind, found.culprit_ranks, found.seq) == (kind, (2,), 3)
    assert (analysis.status, found.waiting_ranks) == ("mismatch", (0, 1, 3))


def test_what_a_rank_says_of_itself_counts_more_than_what_others_read_of_it() -> None:
    job = JobBuilder(4)
    barrier, misread = [3, "BARRIER", None, None, None], [0, "GATHER", None, None, None]
    for rank in (0, 2, 3):
        quarrel(job, rank, 1, call("ALLGATHER"), misread)
    quarrel(job, 1, 0, barrier, misread)
    (found,) = roots(analyse(job.build()))
    assert found.culprit_ranks == (1,) and found.title.startswith("rank 1 called barrier #3, the others allgather #3")


def test_where_operations_lie_on_no_lane_a_mismatch_of_unknown_speakers_accuses_nobody() -> None:
    job = JobBuilder(4)
    job.message("log-unplaced", None)
    for rank in (0, 1):
        prints = [call("ALLREDUCE"), call("BROADCAST")]
        job.message("fingerprint-mismatch", None, ranks=[rank, 2], fingerprints=prints, aspects=[])
    (found,) = roots(analyse(job.build()))
    assert (found.culprit_ranks, found.candidates, found.confidence) == ((), (), "low")


def test_two_that_disagree_are_only_candidates() -> None:
    job = JobBuilder(4)
    quarrel(job, 1, 0, call("ALLREDUCE"), call("BROADCAST"))
    (found,) = roots(analyse(job.build()))
    assert (found.culprit_ranks, found.candidates, found.confidence) == ((), (0, 1), "low")
    assert found.op == "allreduce", "the words of the rank that speaks come first"


def quarrel_in_a_group(job: JobBuilder, rank: int, own: int, other: int, ops: tuple[str, str]) -> None:
    """What a rank says whose group no line names: it and the other are told by their ranks in that group."""
    job.message("fingerprint-mismatch", rank, ranks=[own, other], fingerprints=[call(op) for op in ops], aspects=[])


def test_ranks_of_a_group_are_told_by_the_processes_that_speak() -> None:
    job = JobBuilder(8)
    for own, rank in enumerate((4, 5, 6)):
        quarrel_in_a_group(job, rank, own, 3, ("ALLREDUCE", "BROADCAST"))
    quarrel_in_a_group(job, 7, 3, 0, ("BROADCAST", "ALLREDUCE"))
    (found,) = roots(analyse(job.build()))
    assert (found.culprit_ranks, found.waiting_ranks) == ((7,), (4, 5, 6))


def test_in_a_job_of_several_groups_a_mismatch_of_unknown_speakers_accuses_nobody() -> None:
    job = JobBuilder(8, {"tp": [4, 5, 6, 7]})
    for rank in (0, 1, 3):
        prints = [call("ALLREDUCE"), call("BROADCAST")]
        job.message("fingerprint-mismatch", None, ranks=[rank, 2], fingerprints=prints, aspects=[])
    (found,) = roots(analyse(job.build()))
    assert (found.culprit_ranks, found.candidates, found.confidence) == ((), (), "low")
    assert "ranks 0,1,3 of it called allreduce" in found.explanation


def test_in_a_job_of_several_groups_the_odd_one_that_speaks_for_itself_is_accused() -> None:
    job = JobBuilder(8, {"tp": [4, 5, 6, 7]})
    for rank in (0, 1, 3):
        quarrel(job, rank, 2, call("ALLREDUCE"), call("BROADCAST"))
    quarrel(job, 2, 0, call("BROADCAST"), call("ALLREDUCE"))
    (found,) = roots(analyse(job.build()))
    assert (found.culprit_ranks, found.confidence) == ((2,), "medium")


def test_a_rank_of_a_group_is_not_taken_for_a_rank_of_the_job() -> None:
    job = JobBuilder(8)
    quarrel_in_a_group(job, 5, 1, 0, ("ALLREDUCE", "BROADCAST"))
    assert not {0, 1} & {rank for f in analyse(job.build()).findings for rank in (*f.culprit_ranks, *f.candidates)}


def test_who_ended_in_a_mismatch_is_not_missed_at_the_next_barrier() -> None:
    job = JobBuilder(4)
    quarrel_in_a_group(job, 2, 0, 1, ("ALLGATHER", "BROADCAST"))
    quarrel_in_a_group(job, 3, 1, 0, ("BROADCAST", "ALLGATHER"))
    job.message("monitored-barrier", 0, outcome="failed", failed_ranks=[2, 3], reporter=0, timeout_ms=8000)
    (found,) = roots(analyse(job.build()))
    assert (found.kind, found.culprit_ranks, found.candidates) == ("collective-mismatch", (), (2, 3))


def test_a_desync_report_names_who_never_joined() -> None:
    job = JobBuilder(8)
    states = [[315, "started", "ALLREDUCE", [0, 1, 2]], [317, "started", "_ALLGATHER_BASE", [3, 4, 5, 6]]]
    job.message(
        "desync", 0, reporter=0, op="ALLREDUCE", seq=315, lagging=[[7, "finished", 182]], states=states, group=0
    )
    (found,) = roots(analyse(job.build()))
    assert (found.kind, found.culprit_ranks, found.seq) == ("missing-rank", (7,), 183)
    assert found.waiting_ranks == tuple(range(7))
    assert (found.group and found.group.description) == "default_pg"


def test_ranks_of_a_group_become_global_ones() -> None:
    job = JobBuilder(8, {"tp": [4, 5, 6, 7]})
    job.message("monitored-barrier", 4, outcome="failed", failed_ranks=[2], reporter=0, timeout_ms=5000, group=1)
    (found,) = roots(analyse(job.build()))
    assert found.culprit_ranks == (6,)


def test_ranks_of_an_unknown_group_are_not_guessed() -> None:
    job = JobBuilder(8)
    job.message("monitored-barrier", 4, outcome="failed", failed_ranks=[2], reporter=0, timeout_ms=5000, pg_guid="9")
    assert not roots(analyse(job.build()))


def test_in_a_job_of_several_groups_ranks_of_a_line_without_one_are_nobodys() -> None:
    job = JobBuilder(4)
    # rank 3 is the first of a group of which nothing else is known, so there is more than the group of all
    for rank in (0, 3):
        job.message("monitored-barrier", rank, outcome="failed", failed_ranks=[1], reporter=0, timeout_ms=5000)
    assert not roots(analyse(job.build()))


def test_who_waits_in_the_barrier_of_another_group_went_another_way() -> None:
    job = JobBuilder(4, {"tp": [2, 3]})
    job.message("monitored-barrier", 0, outcome="failed", failed_ranks=[2], reporter=0, timeout_ms=5000, group=0)
    job.message("monitored-barrier", 2, outcome="failed", failed_ranks=[1], reporter=0, timeout_ms=5000, group=1)
    analysis = analyse(job.build())
    assert analysis.culprits == (3,)


def test_a_barrier_names_who_did_not_come_though_torchrun_names_another() -> None:
    job = JobBuilder(4)
    job.known("monitored-barrier-late", 0, "root", accuses="named", named=[1])
    job.message("monitored-barrier", 0, outcome="failed", failed_ranks=[1], reporter=0, timeout_ms=5000)
    for rank in (2, 3):
        job.message("monitored-barrier", rank, outcome="reached", failed_ranks=[], reporter=rank)
    job.message("torchrun-failure", 0, exitcode=1, pid=10, first=True)
    (found,) = roots(analyse(job.build()))
    assert (found.kind, found.culprit_ranks, found.waiting_ranks) == ("missing-rank", (1,), (0, 2, 3))


def test_c10d_and_the_dumps_give_one_root() -> None:
    job = missing_one(8, 3)
    job.message("monitored-barrier", 0, outcome="failed", failed_ranks=[3], reporter=0, timeout_ms=5000, group=0)
    (found,) = roots(analyse(job.build()))
    assert found.culprit_ranks == (3,)
    assert any(e.line == 1 for e in found.evidence)


def test_c10d_against_the_dumps_is_counter_evidence() -> None:
    job = missing_one(8, 3)
    job.message("monitored-barrier", 0, outcome="failed", failed_ranks=[5], reporter=0, timeout_ms=5000, group=0)
    (found,) = roots(analyse(job.build()))
    assert found.culprit_ranks == (3,)
    assert any("names rank 5" in e.text for e in found.counter_evidence)


def test_who_never_came_to_set_up_a_communicator() -> None:
    job = JobBuilder(4)
    for rank in (0, 1, 3):
        job.comm(rank, "start")
        job.known("store-wait", rank)
    job.setting(2, "NCCL_DEBUG", "INFO")
    analysis = analyse(job.build())
    (found,) = roots(analysis)
    assert (found.kind, found.culprit_ranks, found.waiting_ranks) == ("init-hang", (2,), (0, 1, 3))
    assert (analysis.status, found.group and found.group.id) == ("hang", "0")


def test_who_is_not_in_the_logs_is_only_a_candidate() -> None:
    job = JobBuilder(4)
    for rank in (0, 1, 3):
        job.comm(rank, "start")
        job.known("store-wait", rank)
    (found,) = roots(analyse(job.build()))
    assert (found.kind, found.culprit_ranks, found.candidates) == ("init-hang", (), (2,))


def test_a_log_that_ends_in_the_setup_is_no_hang() -> None:
    job = JobBuilder(4)
    for rank in (0, 1):
        job.comm(rank, "start")
    analysis = analyse(job.build())
    assert not roots(analysis)
    assert [f.severity for f in analysis.findings if f.kind == "init-hang"] == ["warning"]


def test_communicators_that_are_set_up_are_no_finding() -> None:
    job = JobBuilder(4)
    for rank in range(4):
        job.comm(rank, "complete")
        job.no_dump.add(rank)
    analysis = analyse(job.build())
    assert (analysis.findings, analysis.status) == ((), "unknown")


def test_a_dead_peer_of_ras_is_named() -> None:
    job = JobBuilder(4)
    for rank in range(4):
        job.ras(rank, status="DEAD" if rank == 2 else "RUNNING")
    (found,) = roots(analyse(job.build()))
    assert (found.kind, found.culprit_ranks) == ("missing-rank", (2,))


def test_laggards_of_ras_are_named_not_the_few_ahead() -> None:
    job = JobBuilder(8)
    for rank in range(8):
        job.ras(rank, counts={"AllReduce": 639 if rank == 5 else 640})
    quiet = analyse(job.build())
    assert not roots(quiet)
    assert [f.candidates for f in quiet.findings] == [(5,)]
    job.known("watchdog-timeout", 0)
    (found,) = roots(analyse(job.build()))
    assert found.culprit_ranks == (5,)


def test_two_that_are_ahead_do_not_make_the_rest_guilty() -> None:
    job = JobBuilder(8)
    job.known("watchdog-timeout", 0)
    for rank in range(8):
        job.ras(rank, counts={"AllReduce": 641 if rank < 2 else 640})
    analysis = analyse(job.build())
    assert analysis.culprits == ()


def test_where_operations_of_several_groups_are_left_out_ranks_of_a_line_without_one_are_nobodys() -> None:
    job = JobBuilder(4)
    job.message("log-unplaced", 0, operations=20)
    job.message("monitored-barrier", 0, outcome="failed", failed_ranks=[1], reporter=0, timeout_ms=5000)
    assert not analyse(job.build()).culprits
