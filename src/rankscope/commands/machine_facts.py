"""Facts about this machine, this terminal and this installation, for `rankscope doctor`; nothing here judges them."""

from __future__ import annotations

import os
import platform
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from platformdirs import user_cache_path

from rankscope import __version__
from rankscope.assemble.machine_memory import MemoryLimits, MemorySizeError, kernel_number, kernel_text, memory_limits
from rankscope.commands.stacks import py_spy_program
from rankscope.parsers.file_access import is_directory, is_file
from rankscope.parsers.workers.machine_share import interpreter_command, usable_cores
from rankscope.watching.observer import file_system

PACKAGES = ("polars", "numpy", "textual", "torch")
ASK_S = 60.0
"""Seconds for the start of polars: a cold network file system is slow."""
TMUX_S = 5.0
_IMPORT_POLARS = "import sys; sys.path[:] = sys.argv[1:]; import polars"
_MISSING_FEATURES = re.compile(r"features were not detected:\s+(.+)")
"""Warning of polars/_cpu_check.py, with the features on its next line."""


@dataclass(frozen=True)
class TerminalFacts:
    """The terminal of standard output."""

    is_terminal: bool
    size: tuple[int, int] | None
    """Columns and lines; None without a terminal."""
    environment: Mapping[str, str]
    tmux: Mapping[str, str] = field(default_factory=dict)
    """Options of the tmux around it; empty without one, or if it does not answer."""


@dataclass(frozen=True)
class LimitFacts:
    """Limits of this process and of its user; None stands for no limit, or for one that this system does not tell."""

    processes: int | None
    """Of `ulimit -u`: processes and threads of the user."""
    running: int | None
    """Processes and threads that the user has now."""
    control_group_processes: int | None
    open_files: int | None
    memory: MemoryLimits | str
    """The reason instead, if the user's limit is no size."""
    cores: int = 1
    cores_of_machine: int = 1


@dataclass(frozen=True)
class FolderFacts:
    """A folder and its file system."""

    path: str
    file_system: str
    """Type, in the kernel's words; "" if unknown."""
    free: int | None
    """Bytes for this user; None if they cannot be told."""
    writable: bool


@dataclass(frozen=True)
class PolarsFacts:
    """The end of a process that imports polars."""

    exit_code: int
    """Negative for a signal, as of an instruction that the processor lacks."""
    last_line: str
    missing_features: tuple[str, ...] = ()


@dataclass(frozen=True)
class MachineFacts:
    """All that `rankscope doctor` judges."""

    terminal: TerminalFacts
    limits: LimitFacts
    data: FolderFacts
    cache: FolderFacts
    polars: PolarsFacts
    versions: Mapping[str, str]
    """By package; without those that are not installed."""
    python: str
    machine: str
    py_spy: str | None
    """Path of py-spy."""
    ptrace_scope: int | None
    """Of the kernel's Yama module: from 1 on, a process may only read its own children."""
    is_root: bool
    watches: int | None
    """Most files of this user whose changes the kernel tells."""


def gathered(path: Path, environment: Mapping[str, str] = os.environ) -> MachineFacts:
    """The facts about this machine, with the file system of a path."""
    return MachineFacts(
        terminal=_terminal(environment), limits=_limits(), data=folder_facts(path),
        cache=folder_facts(user_cache_path("rankscope")), polars=_polars(), versions=_versions(),
        python=platform.python_version(), machine=platform.machine(), py_spy=py_spy_program(),
        ptrace_scope=kernel_number(Path("/proc/sys/kernel/yama/ptrace_scope")), is_root=os.geteuid() == 0,
        watches=kernel_number(Path("/proc/sys/fs/inotify/max_user_watches")),
    )  # fmt: skip


def folder_facts(path: Path) -> FolderFacts:
    """Facts about a folder, or about the nearest one above it that exists."""
    there = next((folder for folder in (path.absolute(), *path.absolute().parents) if is_directory(folder)), Path("/"))
    try:
        about = os.statvfs(there)
        free = about.f_bavail * about.f_frsize
    except OSError:
        free = None
    return FolderFacts(str(path), file_system(there), free, os.access(there, os.W_OK))


def _terminal(environment: Mapping[str, str]) -> TerminalFacts:
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return TerminalFacts(False, None, environment)
    return TerminalFacts(True, (size.columns, size.lines), environment, _tmux() if "TMUX" in environment else {})


def _tmux() -> dict[str, str]:
    text = ""
    for scope in ("-s", "-g"):
        said = _output(["tmux", "show-options", scope])
        text += said or ""
    pairs = (line.partition(" ") for line in text.splitlines())
    return {name: value.strip('"') for name, _, value in pairs if not name.endswith("]")}


def _output(command: Sequence[str]) -> str | None:
    """The output of a program; None if it is missing, fails or does not answer."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TMUX_S).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None


def _limits() -> LimitFacts:
    group = control_group(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
    return LimitFacts(
        processes=_soft(resource.RLIMIT_NPROC), running=_running(),
        control_group_processes=kernel_number(group / "pids.max") if group else None,
        open_files=_soft(resource.RLIMIT_NOFILE), memory=_memory(), cores=usable_cores(),
        cores_of_machine=os.cpu_count() or 1,
    )  # fmt: skip


def _memory() -> MemoryLimits | str:
    try:
        return memory_limits()
    except MemorySizeError as error:
        return str(error)


def control_group(own: Path, root: Path) -> Path | None:
    """The folder of the control group, version 2, that a file of /proc names; None if it limits no processes."""
    line = next((line for line in kernel_text(own).splitlines() if line.startswith("0::")), "")
    folders = (root / line[3:].lstrip("/"), root)
    return next((folder for folder in folders if line and is_file(folder / "pids.max")), None)


def _running() -> int | None:
    """Threads of this user; None where /proc does not tell them."""
    own, count = os.getuid(), 0
    for task in Path("/proc").glob("[0-9]*/task"):
        try:
            count += task.stat().st_nlink - 2 if task.stat().st_uid == own else 0
        except OSError:
            continue
    return count or None


def _soft(limit: int) -> int | None:
    soft = resource.getrlimit(limit)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _polars() -> PolarsFacts:
    """Facts by a process that may die of it."""
    try:
        done = subprocess.run(
            interpreter_command(_IMPORT_POLARS), capture_output=True, encoding="utf-8", errors="replace",
            timeout=ASK_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return PolarsFacts(-signal.SIGALRM, f"its import takes longer than {ASK_S:g} s")
    missing = _MISSING_FEATURES.search(done.stderr)
    last = (done.stderr.strip().splitlines() or [""])[-1].strip()
    return PolarsFacts(done.returncode, last, tuple(missing[1].split(", ")) if missing else ())


def _versions() -> dict[str, str]:
    found = {"rankscope": __version__}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
