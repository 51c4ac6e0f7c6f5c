"""Shell scripts of the recipes, run as their hosts run them, with stand-ins for commands that are not here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

RECIPES = Path(__file__).parents[2] / "recipes"
SAMPLES = Path(__file__).parents[2] / "sample_data"
LONGEST_S = 600.0


def stand_in(folder: Path, name: str, script: str) -> None:
    """A command that is a shell script."""
    folder.mkdir(exist_ok=True)
    command = folder / name
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)


def with_rankscope(folder: Path) -> str:
    """A search path with this rankscope and the stand-ins of a folder in front."""
    stand_in(folder, "rankscope", f'exec {sys.executable} -m rankscope "$@"')
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def run_script(
    script: Path, variables: Mapping[str, str], folder: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script in a folder, with these variables and those that Python needs, and nothing else."""
    needed = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH", "VIRTUAL_ENV") if name in os.environ}
    return subprocess.run(
        ["bash", str(script), *arguments], env={**needed, **variables}, cwd=folder, capture_output=True, text=True,
        timeout=LONGEST_S, check=False,
    )  # fmt: skip
