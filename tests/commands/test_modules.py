"""A report loads only what its inputs need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SAMPLE = Path(__file__).parents[2] / "sample_data" / "early_return"
CODE = "import sys; from rankscope.cli import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"


def test_a_report_on_dumps_loads_neither_what_joins_logs_nor_their_kinds() -> None:
    args = [sys.executable, "-c", CODE, "report", str(SAMPLE)]
    said = subprocess.run(args, capture_output=True, text=True, check=True).stderr
    loaded = set(said.splitlines()[-1].split())
    assert "rankscope.kinds.input_kinds" in loaded
    assert loaded & {"rankscope.analysis.logs.join", "rankscope.kinds.event_kinds"} == set()
