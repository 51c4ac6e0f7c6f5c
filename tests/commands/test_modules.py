"""A report loads only what its inputs need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SAMPLE = Path(__file__).parents[2] / "sample_data" / "early_return"
CODE = "import sys; from rankscope.cli import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"


MOST = 101
"""Modules of this package that a report on dumps may load; the fewer, the sooner it begins on a cold file system."""


def test_a_report_on_dumps_loads_nothing_of_logs_and_few_modules() -> None:
    args = [sys.executable, "-c", CODE, "report", str(SAMPLE)]
    said = subprocess.run(args, capture_output=True, text=True, check=True).stderr
    loaded = set(said.splitlines()[-1].split())
    assert "rankscope.kinds.input_kinds" in loaded
    assert not [name for name in loaded if name.startswith("rankscope.features.logs.rules")]
    assert "rankscope.kinds.event_kinds" not in loaded
    assert len([name for name in loaded if name.startswith("rankscope")]) <= MOST
