"""What logs that fell silent show is a suspicion, whatever rule it comes of."""

from __future__ import annotations

import pytest

from rankscope.analysis.live_state import if_it_runs
from rankscope.analysis.model import Analysis, Culprit, Finding

WHY = "nothing was written for 1 min"


def found(kind: str) -> Analysis:
    """A job that waits for rank 3, as a rule of that kind has it."""
    root = Finding(kind, "critical", "rank 3 is it", "", "f1", True, None, (3,), (Culprit(3),), (), (1, 2))
    harm = Finding("consequence", "critical", "ranks 1 and 2 wait", "", "f2", False, "f1")
    return Analysis("rank 3 is it", "hang", (root, harm))


@pytest.mark.parametrize("kind", ["missing-rank", "order-deadlock", "rank-failed"])
def test_nobody_is_accused_where_the_processes_may_be_gone(kind: str) -> None:
    told = if_it_runs(found(kind), WHY)
    assert told.status == "unknown" and not told.is_critical and not told.culprits
    assert told.verdict == f"{WHY}; if the processes still run, rank 3 is it"
    first, second = told.findings
    assert (first.candidates, first.confidence, first.severity) == ((3,), "low", "warning")
    assert second.title == "ranks 1 and 2 wait" and second.severity == "warning"


def test_where_nothing_is_found_nothing_is_suspected() -> None:
    quiet = Analysis("no failure", "unknown")
    assert if_it_runs(quiet, WHY) is quiet
