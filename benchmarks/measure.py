"""Runs a command and tells how long it took and how much memory its largest process had."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.child_processes import LOOK_S, process_tree


@dataclass(frozen=True)
class Run:
    """One run of a command."""

    seconds: float
    peak_mb: float
    """Resident memory of the largest process of the tree at its peak."""
    code: int
    cpu_seconds: float = 0.0
    """Of all its processes."""
    together_mb: float = 0.0
    """Proportional memory (PSS) of all its processes at their peak; 0 if it was not looked at."""
    output: bytes = b""


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


def run_watched(command: Sequence[str]) -> Run:
    """Runs a command and looks at the memory of all its processes together; its output is kept."""
    begin, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile() as out, subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL) as process:
        # wait4 tells the processor time; the process is a zombie until then
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            peak = max(peak, memory_of_tree(process.pid))
            time.sleep(LOOK_S)
        seconds = time.perf_counter() - begin
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        spent = usage.ru_utime + usage.ru_stime
        return Run(seconds, usage.ru_maxrss / 1024, process.returncode, spent, peak / 1e6, out.read())


def memory_of_tree(pid: int) -> int:
    """Proportional memory of a process and all below it, in bytes."""
    return sum(map(_memory, process_tree(pid)))


def _memory(pid: int) -> int:
    """Proportional memory of a process in bytes; 0 if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


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
