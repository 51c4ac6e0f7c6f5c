"""`rankscope stacks`: Python stacks of the ranks on this host, taken with py-spy and stored beside the other dumps."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rankscope.commands.source import JobSource
from rankscope.features.stacks.py_spy.thread_roles import is_launcher
from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.file_access import NotAFileError, OutsideError, read_small
from rankscope.parsers.sidecar import Sidecar, decode_sidecar, looks_like_sidecar
from rankscope.report.output_files import overwrite
from rankscope.text.escaping import plain
from rankscope.text.secrets import hide
from rankscope.text.wording import SECOND_NS, duration

if TYPE_CHECKING:
    from rankscope.report.redact import Redaction

RATE = 50
"""Samples a second of a record: an hour of them are 180,000, and most of them are equal."""
LONGEST_S = 60.0
"""Longest run of py-spy for a process; with native frames it first reads the symbols of torch."""
MOST_PARALLEL = 8
MISSING_PY_SPY = (
    "py-spy was not found. It is one program without dependencies: pip install py-spy, or copy it to this host and "
    "put it into PATH"
)


@dataclass(frozen=True)
class PySpySampling:
    """Options of py-spy."""

    program: str
    directory: Path
    as_json: bool
    native: bool
    nonblocking: bool
    record: int | None = None
    """Seconds of a record of stacks over time; None for one dump."""

    @property
    def suffix(self) -> str:
        """The suffix of the files."""
        return "folded" if self.record is not None else "json" if self.as_json else "txt"

    def path(self, pid: int, rank: int | None, at: datetime) -> Path:
        """The path of a dump; the parser finds the rank in the name."""
        who = f"pyspy_rank_{rank}" if rank is not None else f"pyspy_pid_{pid}"
        return self.directory / f"{who}_{at:%Y%m%d_%H%M%S}.{self.suffix}"

    def command(self, pid: int) -> list[str]:
        """The command line; a record is written to stdout, too."""
        flags = {
            "--json": self.as_json and self.record is None, "--native": self.native, "--nonblocking": self.nonblocking,
        }  # fmt: skip
        # idle threads too: a rank that waits is idle
        recorded = ["--format", "raw", "--threads", "--idle", "--rate", str(RATE), "--output", "/dev/stdout"]
        what = ["dump"] if self.record is None else ["record", *recorded, "--duration", str(self.record)]
        return [self.program, *what, "--pid", str(pid), *(flag for flag, on in flags.items() if on)]


def run(
    directory: str, *, pids: tuple[int, ...], as_json: bool, native: bool, nonblocking: bool, times: int, every: float,
    record: int | None = None, paths: tuple[str, ...] = (), follow_links: bool = False,
    redaction: Redaction | None = None, **shown: Any,
) -> int:  # fmt: skip
    """Dumps every rank of this host `times` times; exit code 2 if none succeeded. With `paths` it takes none, and shows
    stacks over time that lie there, with the options `shown`."""
    if paths:
        from rankscope.commands.stack_shares_report import run as show

        return show(
            JobSource(paths, follow_links=follow_links, redaction=redaction),
            **{"rank": None, "export": None, "force": False, **shown},
        )
    sampling = PySpySampling(_py_spy(), _made(directory), as_json, native, nonblocking, record)
    dumped = 0
    for number in range(times):
        if number:
            time.sleep(every)
        found = ranks_here(sampling.directory, pids)
        if not found:
            raise click.ClickException(
                "no process of this host is a rank of a job, as far as their environments can be read (RANK, "
                "SLURM_PROCID, ...); --pid PID chooses one"
            )
        dumped += _all(sampling, found)
    return 0 if dumped else 2


def py_spy_program() -> str | None:
    """The path of py-spy: on PATH, or beside this Python; None if it is in neither place."""
    beside = Path(sys.executable).with_name("py-spy")
    return shutil.which("py-spy") or (str(beside) if beside.is_file() else None)


def _py_spy() -> str:
    program = py_spy_program()
    if program is None:
        raise click.ClickException(MISSING_PY_SPY)
    return program


def _made(directory: str) -> Path:
    path = Path(directory)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"{directory}: {error.strerror}") from error
    return path


def _all(sampling: PySpySampling, found: dict[int, int | None]) -> int:
    """Dumps processes in parallel, because each dump pauses only its process; returns the number of successes."""
    at = datetime.now(UTC)
    # records of all ranks cover the same time
    with ThreadPoolExecutor(MOST_PARALLEL if sampling.record is None else len(found)) as pool:
        tasks = {pid: pool.submit(_one, sampling, pid, rank, at) for pid, rank in found.items()}
    problems = {pid: task.result() for pid, task in tasks.items()}
    for pid, problem in problems.items():
        rank = found[pid]
        who = f"process {pid}" if rank is None else f"rank {rank}, process {pid}"
        click.echo(plain(hide(f"{who}: {problem or sampling.path(pid, rank, at)}"), 500), err=problem is not None)
    return sum(problem is None for problem in problems.values())


def _one(sampling: PySpySampling, pid: int, rank: int | None, at: datetime) -> str | None:
    """Dumps a process; returns the reason of a failure."""
    try:
        done = subprocess.run(
            sampling.command(pid), capture_output=True, timeout=LONGEST_S + (sampling.record or 0), check=False
        )
        taken = done.stdout if sampling.record is None else _samples(done.stdout)
        if done.returncode == 0 and taken.strip():
            overwrite(sampling.path(pid, rank, at), taken)
            return None
    except subprocess.TimeoutExpired:
        return f"py-spy took more than {duration(round(LONGEST_S * SECOND_NS))}"
    except OSError as error:
        return f"{error.filename or sampling.program}: {error.strerror}"
    # the place of the error in py-spy itself helps nobody here
    said, _, _ = done.stderr.decode("utf-8", "replace").partition("Stack backtrace:")
    return _explained(" ".join(said.split()).removeprefix("Error: ") or f"py-spy ended with {done.returncode}")


def _samples(printed: bytes) -> bytes:
    """The folded stacks among the remarks that py-spy prints while it records."""
    return b"".join(row for row in printed.splitlines(keepends=True) if row.strip() and not row.startswith(b"py-spy> "))


def _explained(said: str) -> str:
    denied = "ermission" in said or "perm" in said.lower() or "ptrace" in said
    advice = "; run it as the user of the job or as root, in a container with --cap-add SYS_PTRACE" if denied else ""
    return f"py-spy: {said}{advice}"


# Processes of this host that are ranks of a job: by their initial environment, or by their sidecars.

RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
"""Environment variables with the global rank, by precedence: one that any process has set hides those after it."""
JOB_NAMES = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
CARD_BYTES = 16 << 20
PROC = Path("/proc")


@dataclass(frozen=True)
class HostProcess:
    """A process of this host whose environment can be read."""

    pid: int
    parent: int
    command: str
    program: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def is_python(self) -> bool:
        """Whether it is an interpreter that starts no ranks itself."""
        name = Path(self.program).name
        return name.startswith(("python", "pypy")) and not is_launcher(self.command)

    @property
    def job(self) -> tuple[str | None, ...]:
        """Identity of its job on the host."""
        return tuple(self.environment.get(name) for name in JOB_NAMES)


def ranks_here(directory: Path, pids: Iterable[int], proc: Path = PROC) -> dict[int, int | None]:
    """Ranks by process id; None for one of `pids` with an unknown rank.

    With `pids` only those. Raises ClickException if several jobs of this host have the same ranks.
    """
    wanted = set(pids)
    processes = _processes(proc)
    told = {pid: rank for pid, rank in _from_cards(directory).items() if pid in processes and processes[pid].is_python}
    jobs, ranks = {processes[pid].job for pid in told}, set(told.values())
    for pid, rank in _from_environment(processes, wanted).items():
        # if sidecars tell the job, processes of other jobs are not its ranks
        if pid in wanted or not jobs or (processes[pid].job in jobs and rank not in ranks):
            told.setdefault(pid, rank)
    if wanted:
        return {pid: told.get(pid) for pid in sorted(wanted)}
    _refuse_several_jobs(told, processes)
    return dict(sorted(told.items(), key=lambda item: (item[1], item[0])))


def _refuse_several_jobs(told: dict[int, int], processes: dict[int, HostProcess]) -> None:
    claims = defaultdict(list)
    for pid, rank in told.items():
        claims[rank].append(pid)
    for rank, same in sorted(claims.items()):
        if len(same) > 1:
            shown = ", ".join(f"{pid} ({hide(processes[pid].command)[:60].strip()})" for pid in same[:4])
            raise click.ClickException(f"several processes are rank {rank}: {shown}; choose with --pid")


def _from_environment(processes: dict[int, HostProcess], wanted: set[int]) -> dict[int, int]:
    """Interpreters with a rank that are not below one with the same rank; those are its workers."""
    name = next((n for n in RANK_NAMES if any(n in p.environment and p.is_python for p in processes.values())), None)
    ranked = {
        pid: int(process.environment[name])
        for pid, process in processes.items()
        if name is not None and process.is_python and process.environment.get(name, "").isdigit()
    }
    return {
        pid: rank
        for pid, rank in ranked.items()
        if pid in wanted or not any(_is_above(above, pid, ranked, processes) for above in _above(pid, processes))
    }


def _is_above(above: int, pid: int, ranked: dict[int, int], processes: dict[int, HostProcess]) -> bool:
    return ranked.get(above) == ranked[pid] and processes[above].job == processes[pid].job


def _above(pid: int, processes: dict[int, HostProcess]) -> list[int]:
    found: list[int] = []
    at = processes[pid].parent
    while at in processes and at not in found:
        found.append(at)
        at = processes[at].parent
    return found


def _processes(proc: Path) -> dict[int, HostProcess]:
    found = {}
    for directory in proc.iterdir():
        if directory.name.isdigit() and int(directory.name) != os.getpid():
            with contextlib.suppress(OSError, ValueError, IndexError):
                found[int(directory.name)] = _process(directory)
    return found


def _process(directory: Path) -> HostProcess:
    """The process of a directory of /proc. Raises OSError if it is of another user, or has ended."""
    words = (directory / "cmdline").read_bytes().split(b"\0")
    pairs = (
        item.decode("utf-8", "replace").partition("=") for item in (directory / "environ").read_bytes().split(b"\0")
    )
    # the fields after the name, which may contain anything
    parent = (directory / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
    command = b" ".join(words).decode("utf-8", "replace")
    program = str((directory / "exe").readlink())
    kept = {name: value for name, _, value in pairs if name in (*RANK_NAMES, *JOB_NAMES)}
    return HostProcess(int(directory.name), int(parent), command, program, kept)


def _from_cards(directory: Path) -> dict[int, int]:
    """Process ids and ranks of this host, from sidecars in a directory."""
    host, within = platform.node(), os.path.realpath(directory)
    cards = filter(None, (_card(path, within) for path in sorted(directory.glob("capture_rank_*.json"))))
    return {card.pid: card.rank for card in cards if card.host == host and card.pid is not None and not card.ended}


def _card(path: Path, within: str) -> Sidecar | None:
    with contextlib.suppress(OSError, NotAFileError, OutsideError, NotThisKindError):
        data = read_small(path, CARD_BYTES, within)
        return decode_sidecar(data) if len(data) < CARD_BYTES and looks_like_sidecar(data) else None
    return None
