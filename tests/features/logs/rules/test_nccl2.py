"""Logs of nccl2, and of NCCL's own check, from text to verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load

HEAD = "[rank{0}]:[E1125 17:20:{1:02}.1 WorkNCCL.cpp:372] "
STARTED = "[rank{0}]:[I1125 17:10:01.1 x.cpp:271] [TC][rank={0}][name=0] Timeout thread starting for rank: {0}"
CLOSED = (
    "W1125 17:20:49.1 40990 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process {} closing signal"
)
CHILD = "E1125 17:20:50.1 4 x.py:1] failed (exitcode: -6) local_rank: {} (pid: {}) of binary: python"


def gave_up(rank: int, own: int | None = None, name: str = "0", second: int = 33) -> str:
    place = f"[TC][rank={rank if own is None else own}][name={name}]"
    return f"{HEAD.format(rank, second)}{place} Operation timed out after 600004 ms"


def told(tmp_path: Path, *lines: str) -> Analysis:
    (tmp_path / "job.log").write_text("".join(f"{line}\n" for line in lines))
    return analyse(load([tmp_path / "job.log"]))


def test_who_alone_is_silent_is_a_candidate_and_no_more(tmp_path: Path) -> None:
    started = [STARTED.format(rank) for rank in range(4)]
    found = told(tmp_path, *started, gave_up(0), gave_up(2, 0, "tp"), gave_up(1))
    first = found.findings[0]
    assert (first.kind, first.severity, first.root_cause) == ("missing-rank", "critical", False)
    assert (first.culprit_ranks, first.candidates, first.waiting_ranks) == ((), (3,), (0, 1, 2))
    assert (found.status, first.confidence) == ("hang", "low")


def test_a_process_that_a_launcher_closed_is_the_rank_without_a_line(tmp_path: Path) -> None:
    lines = [*(gave_up(rank) for rank in (0, 1, 3)), f"{CLOSED.format(702)} SIGTERM"]
    lines += [CHILD.format(rank, 700 + rank) for rank in (0, 1, 3)]
    first = told(tmp_path, *lines).findings[0]
    assert (first.kind, first.candidates) == ("missing-rank", (2,))


def test_the_numbers_of_processes_tell_which_rank_was_closed(tmp_path: Path) -> None:
    failed = "  rank      : {0} (local_rank: {0})\n  exitcode  : -6 (pid: {1})"
    summary = ["Failures:", *(f"[{i}]:\n  time : 2026\n  host : n\n{failed.format(i, 700 + i)}" for i in range(3))]
    lines = [*(gave_up(rank) for rank in range(3)), f"{CLOSED.format(703)} SIGTERM", "train.py FAILED", *summary]
    first = told(tmp_path, *lines).findings[0]
    assert (first.kind, first.candidates) == ("missing-rank", (3,))


def test_where_nothing_tells_of_a_rank_its_log_may_be_missing(tmp_path: Path) -> None:
    first = told(tmp_path, *(gave_up(rank) for rank in (0, 1, 3))).findings[0]
    assert first.candidates == ()
    assert "ranks 0,1,3 gave up waiting in group 0" in first.title


def test_a_rank_that_left_before_is_no_candidate_but_named(tmp_path: Path) -> None:
    left = f"{HEAD.format(1, 5)}[TC][rank=1][name=0] ProcessGroupNCCL 0 was not finalized before destruction."
    first = told(tmp_path, left, *(gave_up(rank) for rank in (0, 2, 3))).findings[0]
    assert (first.root_cause, first.culprit_ranks) == (True, (1,))
    assert "left the program" in first.title


def test_a_job_that_only_begins_and_ends_tells_of_no_failure(tmp_path: Path) -> None:
    ended = "[rank0]:[W1125 18:30:12.1 x.cpp:215] [TC][rank=0][name=0] ProcessGroupNCCL 0 was not finalized before"
    found = told(tmp_path, *(STARTED.format(rank) for rank in range(3)), f"{ended} destruction.")
    assert (found.status, found.findings) == ("unknown", ())


CHECK = (
    "n0:81 NCCL DIAG [WARN] {} across 8 ranks in comm 0x6f",
    "n0:81 NCCL DIAG [OK] NVLink: 18 links per GPU across 2 ranks in comm 0x71",
)


def test_a_check_of_the_hardware_names_the_rank_with_the_fault(tmp_path: Path) -> None:
    lines = [line.format("ECC: uncorrected volatile errors on rank(s) 6 (worst=2)") for line in CHECK]
    lines.append("n0:81 NCCL DIAG [WARN] CUDA driver version: mismatch across 8 ranks in comm 0x6f, rank(s) 4-7 differ")
    faults, differs = told(tmp_path, *lines).findings
    assert (faults.kind, faults.severity, faults.candidates, faults.culprit_ranks) == (
        "known-error",
        "warning",
        (6,),
        (),
    )
    assert "ECC: uncorrected volatile errors on rank(s) 6 (worst=2)" in faults.title
    assert (differs.kind, differs.candidates) == ("version-mismatch", ())


@pytest.mark.parametrize("comm", ["0x71"])
def test_ranks_of_a_part_of_the_job_are_not_taken_for_global_ones(tmp_path: Path, comm: str) -> None:
    part = f"n0:81 NCCL DIAG [WARN] NVLink: inactive link(s) on rank(s) 1 across 2 ranks in comm {comm}"
    (found,) = told(tmp_path, CHECK[0].format("[no]").replace("WARN", "OK"), part).findings
    assert found.candidates == ()
    assert "of a communicator" in found.title
