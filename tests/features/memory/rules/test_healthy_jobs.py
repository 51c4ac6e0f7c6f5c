"""Real jobs whose memory is sampled: the smallest healthy ones accuse nobody, and one that leaks is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.healthy_memory import LEAK, judge

from rankscope.features.memory.rules.memory_growth import FEWEST_SAMPLES
from tests.capture.ranks import ended, running
from tests.jobs.scenarios import report

pytestmark = pytest.mark.torch
STEPS, WIDTH = 80, 32


@pytest.mark.parametrize(("variant", "accused"), [("pp", ()), ("uneven-last-batch", ()), (LEAK, (1,))])
def test_only_the_job_that_leaks_accuses(variant: str, accused: tuple[int, ...], tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    job = ["-m", "benchmarks.memory_job", variant, str(dumps), str(STEPS), "always", str(WIDTH)]
    with running(job, tmp_path) as ranks:
        assert ended(ranks) == [0, 0], (tmp_path / "output_0").read_text()
    judged = judge(variant, dumps, report(dumps)[1])
    assert judged.samples >= STEPS > 4 / 3 * FEWEST_SAMPLES  # fewer samples would let nobody be accused
    assert judged.accused == accused and ("memory-leak" in judged.kinds) == (variant == LEAK)
