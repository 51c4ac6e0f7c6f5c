"""The bundled jobs, what must be said about them, and how to ask."""

from __future__ import annotations

import contextlib
import io
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankscope.cli import run

SAMPLES = Path(__file__).parents[2] / "sample_data"
SAMPLE_JOBS = tuple(sorted(path.name for path in SAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__"))
"""Names of the folders with a job: one that Python writes for its byte code is none."""


@dataclass(frozen=True)
class Expected:
    """What is wrong with a job: the kind of its one cause and who broke it; no kind if nothing is."""

    exit_code: int
    kind: str
    culprits: list[int]


EXPECTED = {name: Expected(**row) for name, row in tomllib.loads((SAMPLES / "scenarios.toml").read_text()).items()}


def report(folder: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON report of the command on a folder of dumps, in this process."""
    printed = io.BytesIO()
    with contextlib.redirect_stdout(io.TextIOWrapper(printed, write_through=True)) as shown:
        code = run(["report", str(folder), "--format", "json"])
    shown.detach()
    return code, json.loads(printed.getvalue())


def causes(said: dict[str, Any]) -> list[dict[str, Any]]:
    """The findings that accuse somebody: root causes, or where nothing hangs the stragglers."""
    roots = [f for f in said["findings"] if f["root_cause"] and f["severity"] == "critical"]
    return roots or [f for f in said["findings"] if f["kind"] == "straggler"]


def check(name: str, folder: Path) -> dict[str, Any]:
    """Asserts that the report on a job's dumps names what is wrong with it and nobody else; the report."""
    code, said = report(folder)
    expected = EXPECTED[name]
    assert code == expected.exit_code
    assert {f["kind"] for f in causes(said)} == ({expected.kind} if expected.kind else set())
    assert sorted({r for f in causes(said) for r in f["culprit_ranks"]}) == expected.culprits
    return said
