"""Which rank failed, and which only went down with it."""

from __future__ import annotations

from typing import Any

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis, Finding
from tests.analysis.hosts import missing_one
from tests.builders import JobBuilder

FRAMES = [["step", "train.py", 19], ["main", "train.py", 88]]


def traceback(job: JobBuilder, rank: int | None, exception: str, message: str = "", **more: Any) -> None:
    log = str(more.pop("log", "train.log"))
    values: dict[str, Any] = {"frames": FRAMES, "causes": [], "launcher": False, "mixed": False, **more}
    job.message("traceback", rank, log, exception=exception, message=message, **values)


def root(analysis: Analysis) -> Finding:
    roots = [f for f in analysis.findings if f.root_cause]
    assert len(roots) == 1, [f.title for f in roots]
    return roots[0]


def test_an_exception_names_its_rank_and_place() -> None:
    job = JobBuilder(8)
    traceback(job, 3, "ValueError", "bad sample index 17")
    for rank in (0, 1):
        job.known("gloo-closed", rank, text="Connection closed by peer")
    analysis = analyse(job.build())
    found = root(analysis)
    assert (found.kind, found.culprit_ranks, found.severity) == ("rank-failed", (3,), "critical")
    assert found.stack[0].function == "step"
    assert (found.evidence[0].file, found.evidence[0].line) == ("train.log", 1)
    assert analysis.status == "failed"
    assert analysis.verdict.startswith("rank 3 failed: ValueError: bad sample index 17 (train.log:1); 2 ranks wait or")


def test_a_cause_outranks_the_harm_printed_before_it() -> None:
    job = JobBuilder(4)
    job.known("peer-closed", text="n1:30:40 [0] misc/socket.cc:49 NCCL WARN Connection closed by remote peer")
    job.known("nccl-out-of-memory", None, "root", "n1:33:52 [3] alloc.h:178 NCCL WARN Cuda failure 'out of memory'")
    found = root(analyse(job.build()))
    assert found.culprit_ranks == ()
    assert [(c.rank, c.host, c.pid, c.device) for c in found.culprits] == [(None, "n1", 33, "GPU 3")]
    assert "NCCL out of memory" in found.title
    assert any("a consequence" in e.text for e in found.evidence)


def test_an_exception_that_only_tells_of_others_accuses_nobody() -> None:
    job = JobBuilder(4)
    traceback(job, 0, "RuntimeError", "Connection closed by peer [127.0.0.1]")
    job.known("gloo-closed", 0, text="RuntimeError: Connection closed by peer [127.0.0.1]")
    traceback(job, 1, "torch.distributed.DistBackendError", "NCCL error")
    traceback(job, 2, "ZeroDivisionError", "division by zero")
    assert root(analyse(job.build())).culprit_ranks == (2,)


def test_the_oldest_exception_of_a_chain_decides() -> None:
    job = JobBuilder(4)
    cause = [["context", "KeyError", "'loss'", FRAMES]]
    traceback(job, 1, "torch.distributed.DistBackendError", "NCCL error", causes=cause)
    found = root(analyse(job.build()))
    assert (found.culprit_ranks, "KeyError: 'loss'" in found.title) == ((1,), True)


def test_torchrun_does_not_settle_who_was_first() -> None:
    job = JobBuilder(4)
    traceback(job, 0, "RuntimeError", "Connection closed by peer")
    job.known("gloo-closed", 0, text="RuntimeError: Connection closed by peer")
    traceback(job, 2, "ValueError", "bad")
    job.message("torchrun-failure", 0, exitcode=1, pid=10, first=True, text="rank 0 ended with exit code 1")
    job.message("torchrun-failure", 2, exitcode=1, pid=12, first=False)
    found = root(analyse(job.build()))
    assert found.culprit_ranks == (2,)
    assert any("it is only the first that ended" in e.text for e in found.evidence)


@pytest.mark.parametrize(("code", "signal"), [(-11, "SIGSEGV"), (-9, "SIGKILL"), (137, "SIGKILL")])
def test_a_signal_fails_a_rank_and_those_that_torchrun_ends_are_bystanders(code: int, signal: str) -> None:
    job = JobBuilder(4)
    for pid in (10, 11, 13):
        job.message("signal", signal=15, pid=pid, sender="launcher")
    for rank in (0, 1, 3):
        job.message("torchrun-failure", rank, exitcode=-15, pid=10 + rank, signal="SIGTERM", first=False)
    job.message("torchrun-failure", 2, exitcode=code, pid=12, first=True)
    found = root(analyse(job.build()))
    assert (found.culprit_ranks, found.waiting_ranks) == ((2,), (0, 1, 3))
    assert signal in found.title


def test_an_abort_of_the_watchdog_is_no_failure() -> None:
    job = JobBuilder(4)
    for rank in range(4):
        job.known("watchdog-timeout", rank, text="Watchdog caught collective operation timeout")
        job.message("torchrun-failure", rank, exitcode=-6, pid=10 + rank, first=rank == 0)
    analysis = analyse(job.build())
    assert not any(f.kind == "rank-failed" for f in analysis.findings)
    assert (analysis.status, analysis.culprits) == ("hang", ())


def test_a_failure_after_the_timeouts_is_no_cause() -> None:
    job = JobBuilder(4)
    for rank in (0, 1, 3):
        job.known("watchdog-timeout", rank, log=f"rank{rank}.log", seconds=600)
    traceback(job, 2, "RuntimeError", "aborted", log="rank2.log", time_ns=None)
    job.logs["messages"][-1].update(time_ns=job.logs["messages"][0]["time_ns"] + 30 * 10**9)
    analysis = analyse(job.build())
    assert analysis.status == "hang"
    assert [f.severity for f in analysis.findings if f.kind == "rank-failed"] == ["warning"]


def test_the_earliest_of_several_failures_wins_and_close_ones_are_doubts() -> None:
    job = JobBuilder(4)
    traceback(job, 1, "ValueError", "late", log="b.log", seconds=50.5)
    traceback(job, 3, "KeyError", "early", log="a.log", seconds=50)
    found = root(analyse(job.build()))
    assert (found.culprit_ranks, found.candidates, found.confidence) == ((3,), (1,), "medium")
    assert any("clocks" in reason for reason in found.confidence_reasons)


def test_failures_of_one_cause_are_told_together() -> None:
    job = JobBuilder(4)
    for rank in range(4):
        traceback(job, rank, "ModuleNotFoundError", "no module named x", log=f"{rank}.log")
    analysis = analyse(job.build())
    assert root(analysis).culprit_ranks == (0, 1, 2, 3)
    assert analysis.verdict.startswith("all 4 ranks failed: ")


def test_without_times_nobody_is_preferred() -> None:
    job = JobBuilder(4)
    traceback(job, 1, "ValueError", "one", log="b.log")
    traceback(job, 3, "KeyError", "two", log="a.log")
    found = root(analyse(job.build()))
    assert (found.culprit_ranks, found.confidence) == ((1, 3), "low")


def test_a_failure_explains_the_rank_without_a_dump() -> None:
    job = missing_one(8, 3)
    job.no_dump = {3}
    before = root(analyse(job.build()))
    assert (before.kind, before.culprit_ranks) == ("missing-rank", (3,))
    traceback(job, 3, "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB")
    job.known("cuda-out-of-memory", 3, "root", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
    analysis = analyse(job.build())
    found = root(analysis)
    assert (found.id, found.kind, found.culprit_ranks) == ("f1", "rank-failed", (3,))
    assert (analysis.status, len(found.waiting_ranks), found.op) == ("failed", 7, before.op)
    assert analysis.verdict == "rank 3 failed: CUDA out of memory (train.log:1); 7 ranks wait or were killed"
    follows = [f for f in analysis.findings if f.kind == "missing-rank"]
    assert [(f.root_cause, f.caused_by) for f in follows] == [(False, "f1")]
    assert analysis.culprits == (3,)


def test_the_kernels_kill_is_joined_to_its_rank() -> None:
    job = JobBuilder(4)
    job.message("torchrun-failure", 2, exitcode=-9, pid=712, first=True)
    job.message("oom-kill", None, "dmesg.txt", pid=712, name="python", count=1)
    found = root(analyse(job.build()))
    assert found.culprit_ranks == (2,)
    assert "because memory ran out" in found.title


def test_a_rank_that_alone_did_not_time_out_is_named() -> None:
    job = JobBuilder(4)
    for rank in (0, 1, 2):
        job.known("gloo-timeout", rank, text="Timed out waiting 20000ms for recv operation to complete")
    for rank in range(4):
        job.message("torchrun-failure", rank, exitcode=-15 if rank else 1, pid=10 + rank, first=rank == 0)
    found = root(analyse(job.build()))
    assert (found.kind, found.culprit_ranks, found.confidence) == ("missing-rank", (3,), "medium")


def test_logs_change_nothing_where_there_are_none() -> None:
    analysis = analyse(missing_one(8, 3).build())
    assert [f.kind for f in analysis.findings if f.root_cause] == ["missing-rank"]


def test_an_exception_of_a_rank_that_waits_by_its_dump_did_not_end_it() -> None:
    job = missing_one(8, 3)
    traceback(job, 5, "ValueError", "caught, and logged")
    found = root(analyse(job.build()))
    assert (found.kind, found.culprit_ranks) == ("missing-rank", (3,))


def test_an_exception_of_a_rank_that_gave_up_waiting_later_did_not_end_it() -> None:
    job = JobBuilder(4)
    traceback(job, 1, "ValueError", "caught, and logged")
    for rank in (0, 1):
        job.known("watchdog-timeout", rank)
    analysis = analyse(job.build())
    assert (analysis.status, analysis.culprits) == ("hang", ())
    assert any("ValueError" in f.title and not f.root_cause for f in analysis.findings)
