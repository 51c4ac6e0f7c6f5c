"""Clocks of hosts that are apart: seen by communicators, and never a reason to blame somebody else."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from rankscope.features.logs.rules.log_lines import read_clocks
from rankscope.schema import Dataset
from tests.features.logs.rows.job import init, job, source

SECOND = 1_000_000_000


def at(second: int, text: str) -> str:
    """A line with a time, as a collector writes it."""
    return f"2026-05-28 21:{second // 60:02d}:{second % 60:02d}.000250 {text}"


def two_hosts(ahead: int, comms: int = 4, spread: int = 0) -> Dataset:
    """Ranks 2 on node-1 and, 50 s later, 0 on node-0 fail; the clock of node-0 is `ahead`."""
    logs = []
    for rank in range(4):
        own = ahead if rank < 2 else 0
        lines = [
            at(300 + k + own + (spread * k if rank < 2 else 0), init(rank, "Init COMPLETE", f"0xaa0{k}", f"0xfe1{k}"))
            for k in range(comms)
        ]
        lines += [at(400, "[rank2]: RuntimeError: CUDA error: an illegal memory access was encountered")] * (rank == 2)
        lines += [at(450 + own, "[rank0]: torch.OutOfMemoryError: CUDA out of memory.")] * (rank == 0)
        logs.append(source(f"rank_{rank}.log", lines))
    return job(*logs)


@pytest.mark.parametrize("ahead", [0, 100, -100])
def test_the_distance_of_clocks_is_found(ahead: int) -> None:
    found = read_clocks(two_hosts(ahead)).ahead
    both = {("node-0", "node-1"): ahead * SECOND, ("node-1", "node-0"): -ahead * SECOND}
    assert found == (both if ahead else {})


def test_little_evidence_tells_nothing() -> None:
    assert read_clocks(two_hosts(-100, comms=2)).ahead == {}


def test_evidence_that_contradicts_itself_tells_nothing() -> None:
    assert read_clocks(two_hosts(-90, spread=40)).ahead == {}


def test_the_first_by_the_times_is_blamed_where_clocks_agree() -> None:
    found = analyse(two_hosts(0))
    assert found.culprits == (2,)
    assert not any("clock" in reason for reason in found.findings[0].confidence_reasons)


def test_a_clock_that_is_behind_makes_the_verdict_unsure_and_blames_nobody_else() -> None:
    (chief, *_) = [f for f in analyse(two_hosts(-100)).findings if f.root_cause]
    # as printed rank 0 failed 50 s before rank 2
    assert chief.culprit_ranks == (0,)
    assert chief.confidence == "low"
    said = "rank 2 may have failed first: the clock of node-1 is 1 min 40 s ahead of that of node-0, by 4"
    assert any(reason.startswith(said) for reason in chief.confidence_reasons)


def test_a_clock_that_is_ahead_of_the_first_one_changes_nothing() -> None:
    assert [f.confidence for f in analyse(two_hosts(100)).findings if f.root_cause] == [
        f.confidence for f in analyse(two_hosts(0)).findings if f.root_cause
    ]
