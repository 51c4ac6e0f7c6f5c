"""Which processes of this host are ranks of a job: by the environment they were started with, or by their sidecars."""

from __future__ import annotations

import contextlib
import os
import platform
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import click

from rankscope.parsers.decoded import NotThisKindError
from rankscope.parsers.py_spy.roles import is_launcher
from rankscope.parsers.sidecar.decode import decode, looks_like_card
from rankscope.parsers.sidecar.model import Card

RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
"""Environment variables with the global rank; where one of them is set anywhere, those behind it count for nothing."""
JOB_NAMES = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")
CARD_BYTES = 16 << 20
PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
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
        """What tells its job from others on the host."""
        return tuple(self.environment.get(name) for name in JOB_NAMES)


def ranks_here(directory: Path, pids: Iterable[int], proc: Path = PROC) -> dict[int, int | None]:
    """Processes by id with their ranks; None for one of `pids` whose rank nothing tells.

    With `pids` only those. Raises ClickException if several jobs of this host have the same ranks.
    """
    wanted = set(pids)
    processes = _processes(proc)
    told = {pid: rank for pid, rank in _from_cards(directory).items() if pid in processes and processes[pid].is_python}
    jobs, ranks = {processes[pid].job for pid in told}, set(told.values())
    for pid, rank in _from_environment(processes, wanted).items():
        # where sidecars tell the job, a process of another one that runs beside it is none of its ranks
        if pid in wanted or not jobs or (processes[pid].job in jobs and rank not in ranks):
            told.setdefault(pid, rank)
    if wanted:
        return {pid: told.get(pid) for pid in sorted(wanted)}
    _refuse_several_jobs(told, processes)
    return dict(sorted(told.items(), key=lambda item: (item[1], item[0])))


def _refuse_several_jobs(told: dict[int, int], processes: dict[int, Process]) -> None:
    claims = defaultdict(list)
    for pid, rank in told.items():
        claims[rank].append(pid)
    for rank, same in sorted(claims.items()):
        if len(same) > 1:
            shown = ", ".join(f"{pid} ({processes[pid].command[:60].strip()})" for pid in same[:4])
            raise click.ClickException(f"several processes are rank {rank}: {shown}; choose with --pid")


def _from_environment(processes: dict[int, Process], wanted: set[int]) -> dict[int, int]:
    """The interpreters that have a rank and are not below one that has the same: those are its workers."""
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


def _is_above(above: int, pid: int, ranked: dict[int, int], processes: dict[int, Process]) -> bool:
    return ranked.get(above) == ranked[pid] and processes[above].job == processes[pid].job


def _above(pid: int, processes: dict[int, Process]) -> list[int]:
    found: list[int] = []
    at = processes[pid].parent
    while at in processes and at not in found:
        found.append(at)
        at = processes[at].parent
    return found


def _processes(proc: Path) -> dict[int, Process]:
    found = {}
    for directory in proc.iterdir():
        if directory.name.isdigit() and int(directory.name) != os.getpid():
            with contextlib.suppress(OSError, ValueError, IndexError):
                found[int(directory.name)] = _process(directory)
    return found


def _process(directory: Path) -> Process:
    """Raises OSError for a process of somebody else, or one that has ended."""
    words = (directory / "cmdline").read_bytes().split(b"\0")
    pairs = (
        item.decode("utf-8", "replace").partition("=") for item in (directory / "environ").read_bytes().split(b"\0")
    )
    # what follows the name, which may contain anything
    parent = (directory / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
    command = b" ".join(words).decode("utf-8", "replace")
    program = str((directory / "exe").readlink())
    kept = {name: value for name, _, value in pairs if name in (*RANK_NAMES, *JOB_NAMES)}
    return Process(int(directory.name), int(parent), command, program, kept)


def _from_cards(directory: Path) -> dict[int, int]:
    """Process ids and ranks that sidecars in a directory tell of this host."""
    host = platform.node()
    cards = filter(None, map(_card, sorted(directory.glob("capture_rank_*.json"))))
    return {card.pid: card.rank for card in cards if card.host == host and card.pid is not None and not card.ended}


def _card(path: Path) -> Card | None:
    with contextlib.suppress(OSError, NotThisKindError):
        if path.is_file() and path.stat().st_size < CARD_BYTES:
            data = path.read_bytes()
            return decode(data) if looks_like_card(data) else None
    return None
