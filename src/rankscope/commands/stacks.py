"""`rankscope stacks`: where the ranks of this host are in Python, as py-spy sees it, beside the other dumps."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from rankscope.commands.processes import ranks_here
from rankscope.report.escape import plain
from rankscope.report.files import overwrite

LONGEST_S = 60.0
"""py-spy gets so long for a process; with native frames it reads the symbols of torch first."""
AT_ONCE = 8
MISSING = (
    "py-spy is not there. It is one program without dependencies: pip install py-spy, "
    "or copy it to this host and put it into PATH"
)


@dataclass(frozen=True)
class Sampling:
    """How py-spy is called."""

    program: str
    directory: Path
    as_json: bool
    native: bool
    nonblocking: bool

    def path(self, pid: int, rank: int | None, at: datetime) -> Path:
        """Where a dump goes; the parser finds the rank in the name."""
        who = f"pyspy_rank_{rank}" if rank is not None else f"pyspy_pid_{pid}"
        return self.directory / f"{who}_{at:%Y%m%d_%H%M%S}.{'json' if self.as_json else 'txt'}"

    def command(self, pid: int) -> list[str]:
        """The command line."""
        flags = {"--json": self.as_json, "--native": self.native, "--nonblocking": self.nonblocking}
        return [self.program, "dump", "--pid", str(pid), *(flag for flag, on in flags.items() if on)]


def run(
    directory: str, *, pids: tuple[int, ...], as_json: bool, native: bool, nonblocking: bool, times: int, every: float
) -> int:
    """Dumps every rank of this host `times` times; exit code 2 if none could be."""
    sampling = Sampling(_py_spy(), _made(directory), as_json, native, nonblocking)
    dumped = 0
    for number in range(times):
        if number:
            time.sleep(every)
        found = ranks_here(sampling.directory, pids)
        if not found:
            raise click.ClickException(
                "no process of this host is a rank of a job, as far as their environments can be read (RANK, "
                "SLURM_PROCID, ...); --pid PID takes one by hand"
            )
        dumped += _all(sampling, found)
    return 0 if dumped else 2


def _py_spy() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    program = shutil.which("py-spy") or (str(beside) if beside.is_file() else None)
    if program is None:
        raise click.ClickException(MISSING)
    return program


def _made(directory: str) -> Path:
    path = Path(directory)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"{directory}: {error.strerror}") from error
    return path


def _all(sampling: Sampling, found: dict[int, int | None]) -> int:
    """Dumps processes next to each other, for one pauses only itself; returns how many could be."""
    at = datetime.now(UTC)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tasks = {pid: pool.submit(_one, sampling, pid, rank, at) for pid, rank in found.items()}
    problems = {pid: task.result() for pid, task in tasks.items()}
    for pid, problem in problems.items():
        rank = found[pid]
        who = f"process {pid}" if rank is None else f"rank {rank}, process {pid}"
        click.echo(plain(f"{who}: {problem or sampling.path(pid, rank, at)}", 500), err=problem is not None)
    return sum(problem is None for problem in problems.values())


def _one(sampling: Sampling, pid: int, rank: int | None, at: datetime) -> str | None:
    """Dumps a process; why it could not be."""
    try:
        done = subprocess.run(sampling.command(pid), capture_output=True, timeout=LONGEST_S, check=False)
        if done.returncode == 0 and done.stdout.strip():
            overwrite(sampling.path(pid, rank, at), done.stdout)
            return None
    except subprocess.TimeoutExpired:
        return f"py-spy took more than {LONGEST_S:.0f} s"
    except OSError as error:
        return f"{error.filename or sampling.program}: {error.strerror}"
    # where in py-spy itself it failed helps nobody here
    said, _, _ = done.stderr.decode("utf-8", "replace").partition("Stack backtrace:")
    return _explained(" ".join(said.split()).removeprefix("Error: ") or f"py-spy ended with {done.returncode}")


def _explained(said: str) -> str:
    denied = "ermission" in said or "perm" in said.lower() or "ptrace" in said
    advice = "; run it as the user of the job or as root, in a container with --cap-add SYS_PTRACE" if denied else ""
    return f"py-spy: {said}{advice}"
