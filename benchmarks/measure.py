"""Runs a command and tells how long it took and how much memory its largest process had."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Run:
    """One run of a command."""

    seconds: float
    peak_mb: float
    """Resident memory of the largest process of the tree at its peak."""
    code: int
    cpu_seconds: float = 0.0
    """Of all its processes."""


def run(command: Sequence[str], log: Path | None = None) -> Run:
    """Runs a command with its output in `log`, from start to exit.

    The memory comes from wait4, which counts the children the command waited for. It cannot be less than this process
    had when it started the command: keep this one small.
    """
    with (log or Path(os.devnull)).open("wb") as out:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    return Run(seconds, usage.ru_maxrss / 1024, process.returncode, usage.ru_utime + usage.ru_stime)


def alternate(commands: Mapping[str, Sequence[str]], times: int) -> dict[str, Run]:
    """Runs all commands in turn, `times` times; returns for each the median time and the largest peak."""
    runs: dict[str, list[Run]] = {name: [] for name in commands}
    for _ in range(times):
        for name, command in commands.items():
            runs[name].append(run(command))
    return {
        name: Run(
            median(r.seconds for r in all_),
            max(r.peak_mb for r in all_),
            max(r.code for r in all_),
            median(r.cpu_seconds for r in all_),
        )
        for name, all_ in runs.items()
    }
