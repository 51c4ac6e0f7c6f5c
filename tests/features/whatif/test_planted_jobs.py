"""Jobs whose traces hold a planted cause: who shares a group with a slow rank is not accused beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.whatif_jobs import planned, write

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.features.whatif.model import WHAT_IF_RESULTS


@pytest.mark.parametrize("seed", [1001, 1003], ids=["next stage", "tensor parallel peer"])
def test_a_rank_that_meets_the_slow_one_in_another_group_is_not_accused(seed: int, tmp_path: Path) -> None:
    plan = planned("worker", seed)
    write(plan, tmp_path)
    analysis = analyse(load([tmp_path]))
    assert analysis.culprits == plan.ranks
    first = WHAT_IF_RESULTS.of(analysis).gains[0]
    assert (first.cause, first.ranks) == ("worker", plan.ranks)
