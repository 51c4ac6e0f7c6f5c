"""A report loads only what its inputs need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[2] / "sample_data"
CODE = "import sys; from rankscope.cli import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
MOST = {"healthy": 90, "early_return": 90}
"""Modules of this package that a report on dumps may load; the fewer, the sooner it begins on a cold file system."""


@pytest.mark.parametrize("sample", MOST)
def test_a_report_on_dumps_loads_few_modules_and_nothing_of_screens_logs_or_torch(sample: str) -> None:
    args = [sys.executable, "-c", CODE, "report", str(SAMPLES / sample)]
    stderr = subprocess.run(args, capture_output=True, text=True, check=True).stderr
    loaded = set(stderr.splitlines()[-1].split())
    assert {"polars", "rankscope.kinds.input_kinds"} <= loaded
    assert not loaded & {"textual", "rich", "torch", "watchfiles", "rankscope.kinds.event_kinds"}
    ours = sorted(name for name in loaded if name.split(".")[0] == "rankscope")
    assert not [name for name in ours if name.startswith("rankscope.features.logs.rules")]
    assert len(ours) <= MOST[sample], ours
