"""Real jobs whose memory is sampled: the smallest healthy ones accuse nobody, and one that leaks is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.healthy_memory import LEAK, judge, run_job

from rankscope.features.memory.rules.memory_growth import FEWEST_SAMPLES

pytestmark = pytest.mark.torch
STEPS = 80


@pytest.mark.parametrize(("variant", "accused"), [("pp", ()), ("uneven-last-batch", ()), (LEAK, (1,))])
def test_only_the_job_that_leaks_accuses(variant: str, accused: tuple[int, ...], tmp_path: Path) -> None:
    judged = judge(variant, run_job(variant, tmp_path, STEPS, "always"))
    assert judged.samples >= STEPS > 4 / 3 * FEWEST_SAMPLES  # fewer samples would let nobody be accused
    assert judged.accused == accused and ("memory-leak" in judged.kinds) == (variant == LEAK)
