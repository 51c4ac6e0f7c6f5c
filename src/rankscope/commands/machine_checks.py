"""Judgement of the facts about a machine: each check says how it is and, unless that is good, how it gets better."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rankscope.assemble.held_sources import ENTRY_BYTES
from rankscope.assemble.machine_memory import SHARE, VARIABLE, MemoryLimits
from rankscope.commands.machine_facts import FolderFacts, LimitFacts, MachineFacts, PolarsFacts, TerminalFacts
from rankscope.commands.stacks import MISSING_PY_SPY
from rankscope.kinds.functions import PackageError, function, names_packages
from rankscope.parsers.workers.machine_share import MOST_PROCESSES, MOST_THREADS
from rankscope.sessions.session_cache import OFF
from rankscope.text.wording import byte_count
from rankscope.tui.options import palette_of, unicode_of
from rankscope.watching.observer import POLL_S, is_silent

CheckState: TypeAlias = Literal["good", "advice", "bad"]
"""Whether all is well, something would be better otherwise, or something does not work."""

MIN_SIZE = (80, 24)
SPARE_PROCESSES = MOST_PROCESSES * 2 + MOST_THREADS * 2
"""Processes and threads that rankscope may start, and some of the user's own beside them."""
MIN_OPEN_FILES = 256
MIN_MEMORY = 2 << 30
"""Bytes for the dumps of 1,024 ranks with 2,000 entries each."""
MIN_FREE = 64 << 20
MAX_ESCAPE_MS = 50
"""Time of tmux after an escape key, before a program sees it; with more, the key seems to hang."""
PALETTE_WORDS = {"none": "none", "8": "8", "16": "16", "256": "256", "true": "true colour"}


@dataclass(frozen=True)
class MachineCheck:
    """One thing that was looked at. Its texts may hold what the environment says: they are escaped on their way out."""

    topic: str
    name: str
    value: str
    state: CheckState = "good"
    better: str = ""
    """How it becomes better; "" for a good one."""


def all_checks(facts: MachineFacts) -> list[MachineCheck]:
    """The checks of all topics, in the order in which they are shown."""
    return [
        *terminal_checks(facts.terminal), *data_checks(facts.data, facts.watches), *limit_checks(facts.limits),
        *version_checks(facts), polars_check(facts.polars, facts.machine), py_spy_check(facts),
        cache_check(facts.cache), *package_checks(),
    ]  # fmt: skip


def package_checks() -> Iterator[MachineCheck]:
    """Checks of the installed packages that add to rankscope: what each adds, or why it is broken."""
    if not names_packages():
        return
    from rankscope.kinds.site_packages import site_packages

    for package in site_packages():
        problem = package.problem
        for call in package.calls:
            try:
                function(call)
            except PackageError as error:
                problem = problem or str(error)
        yield _check(
            "packages", f"{package.name} {package.version}", problem or f"adds {package.adds or 'nothing'}",
            "update or uninstall it; docs/site_features.md says what such a package may add", wrong=bool(problem),
            bad=True,
        )  # fmt: skip


def _check(
    topic: str, name: str, value: str, better: str = "", *, wrong: bool = True, bad: bool = False
) -> MachineCheck:
    """A check that is good unless it is `wrong` and knows something better."""
    if not (wrong and better):
        return MachineCheck(topic, name, value)
    return MachineCheck(topic, name, value, "bad" if bad else "advice", better)


def terminal_checks(facts: TerminalFacts) -> Iterator[MachineCheck]:
    """Checks of size, colours, characters, tmux and the connection."""
    environment, term = facts.environment, facts.environment.get("TERM", "")
    if not facts.is_terminal or facts.size is None:
        yield MachineCheck("terminal", "output", "no terminal: reports are printed instead of the screen")
    else:
        columns, lines = facts.size
        yield _check(
            "terminal", "size", f"{columns} x {lines}", "80 x 24 or more; 120 x 40 shows more of the lanes",
            wrong=columns < MIN_SIZE[0] or lines < MIN_SIZE[1],
        )  # fmt: skip
    palette = palette_of(environment)
    yield _check(
        "terminal", "colours", f"{PALETTE_WORDS[palette]} (TERM={term or 'not set'})", _better_colours(facts),
        wrong=palette in ("none", "8", "16") and not environment.get("NO_COLOR"),
    )  # fmt: skip
    unicode = unicode_of(environment)
    yield _check(
        "terminal", "characters", "Unicode" if unicode else "ASCII only, by LC_ALL, LC_CTYPE or LANG",
        "export LC_ALL=C.UTF-8", wrong=not unicode,
    )  # fmt: skip
    if environment.get("SSH_CONNECTION"):
        yield MachineCheck("terminal", "connection", "SSH: fewer frames, 256 colours, no mouse")
    if "TMUX" in environment:
        yield from _tmux_checks(facts)
    elif "STY" in environment:
        yield MachineCheck(
            "terminal", "screen", "GNU screen", "advice", "tmux: screen passes on neither copies nor true colour"
        )


def _better_colours(facts: TerminalFacts) -> str:
    if "TMUX" in facts.environment:
        return "set -g default-terminal tmux-256color in ~/.tmux.conf"
    return "export TERM=xterm-256color, if the terminal can do it; --palette 256 tries it once"


def _tmux_checks(facts: TerminalFacts) -> Iterator[MachineCheck]:
    delay, clipboard = facts.tmux.get("escape-time", ""), facts.tmux.get("set-clipboard", "")
    if not facts.tmux:
        yield MachineCheck("terminal", "tmux", "it does not tell its settings")
        return
    yield _check(
        "terminal", "tmux escape-time", f"{delay or '?'} ms",
        "set -sg escape-time 10 in ~/.tmux.conf: without it the Esc key waits",
        wrong=delay.isdecimal() and int(delay) > MAX_ESCAPE_MS,
    )  # fmt: skip
    yield _check(
        "terminal", "tmux set-clipboard", clipboard or "?",
        "set -s set-clipboard on in ~/.tmux.conf: copies reach your clipboard, not only a file",
        wrong=clipboard != "on",
    )  # fmt: skip


def data_checks(facts: FolderFacts, watches: int | None) -> Iterator[MachineCheck]:
    """Checks of the file system of the data, and of how a job there is followed."""
    yield MachineCheck("data", "file system", f"{facts.file_system or 'unknown'}, {byte_count(facts.free)} free")
    if is_silent(facts.file_system):
        yield MachineCheck(
            "data", "--watch", f"looks every {POLL_S:g} s: writes of other machines raise no event on this file system",
            "advice", "--poll 10 spares a busy metadata server; dumps on a local disk are followed at once",
        )  # fmt: skip
    else:
        yield _check(
            "data", "--watch", "is notified of changes", "sysctl fs.inotify.max_user_watches=65536",
            wrong=watches is not None and watches < 1024,
        )  # fmt: skip


def limit_checks(facts: LimitFacts) -> Iterator[MachineCheck]:
    """Checks of what this user may start, open and hold."""
    yield MachineCheck("limits", "cores", f"{facts.cores} of {facts.cores_of_machine}")
    yield _processes_check("threads (ulimit -u)", facts.processes, facts.running or 0, "ulimit -u 4096")
    yield _processes_check(
        "threads (cgroup)", facts.control_group_processes, 0, "a larger pids limit of the container or of Slurm"
    )
    yield _check(
        "limits", "open files (ulimit -n)", _amount(facts.open_files), "ulimit -n 1024",
        wrong=facts.open_files is not None and facts.open_files < MIN_OPEN_FILES,
    )  # fmt: skip
    yield from _memory_checks(facts.memory)


def _processes_check(name: str, limit: int | None, running: int, better: str) -> MachineCheck:
    """A check of a limit of threads and processes, of which some are running."""
    few = limit is not None and limit - running < SPARE_PROCESSES
    value = _amount(limit) + (f", {running:,} running" if running and limit is not None else "")
    return _check("limits", name, value, f"{better}, or --jobs 1 and POLARS_MAX_THREADS=1", wrong=few)


def _memory_checks(limits: MemoryLimits | str) -> Iterator[MachineCheck]:
    """Checks of the memory by each limit, and the number of operations that fit into the least of them."""
    if isinstance(limits, str):
        yield MachineCheck("limits", "memory", limits, "bad", f"unset {VARIABLE}, or {VARIABLE}=4G")
        return
    yield _memory_check("memory", limits.machine, "a machine with more, for the dumps of a thousand ranks")
    yield _memory_check("memory (cgroup)", limits.control_group, "a larger limit: srun --mem=8G")
    yield _memory_check("address space (ulimit -v)", limits.address_space, "ulimit -v unlimited")
    if limits.asked is not None:
        yield _memory_check(f"memory ({VARIABLE})", limits.asked, f"a larger {VARIABLE}")
    entries = float(f"{limits.least * SHARE / ENTRY_BYTES:.2g}")
    value = f"about {entries:,.0f} fit; of more, the last ones of each dump are read"
    yield MachineCheck("limits", "entries of dumps", value)


def _memory_check(name: str, count: int | None, better: str) -> MachineCheck:
    value = "no limit" if count is None else byte_count(count)
    return _check("limits", name, value, better, wrong=count is not None and count < MIN_MEMORY)


def _amount(limit: int | None) -> str:
    return "no limit" if limit is None else f"{limit:,}"


def version_checks(facts: MachineFacts) -> Iterator[MachineCheck]:
    """The versions of Python and of the packages that matter."""
    yield MachineCheck("versions", "Python", f"{facts.python} ({facts.machine})")
    for package, version in facts.versions.items():
        yield MachineCheck("versions", package, version)
    if "torch" not in facts.versions:
        yield MachineCheck("versions", "torch", "not installed: only rankscope demo and repro --run need it")


def polars_check(facts: PolarsFacts, machine: str) -> MachineCheck:
    """A check of polars: whether it loads, and whether the processor has the instructions of its build."""
    compatible = "pip install 'polars[rtcompat]': a build for old processors"
    if facts.missing_features:
        value = f"the processor lacks {', '.join(facts.missing_features)}"
    elif facts.exit_code < 0:
        value = f"its import ends the process ({signal.Signals(-facts.exit_code).name}) on {machine}"
    elif facts.exit_code:
        value, compatible = facts.last_line, "install rankscope again: pip install --force-reinstall rankscope"
    else:
        return MachineCheck("processor", "polars", "loads, and the processor has what its build needs")
    return MachineCheck("processor", "polars", value, "bad", compatible)


def py_spy_check(facts: MachineFacts) -> MachineCheck:
    """A check of what `rankscope stacks` needs: py-spy, and the right to read other processes."""
    if facts.py_spy is None:
        return MachineCheck(
            "stacks", "py-spy", "not found: rankscope stacks needs it", "advice", MISSING_PY_SPY.partition(": ")[2]
        )
    denied = bool(facts.ptrace_scope) and not facts.is_root
    value = f"{facts.py_spy}; the kernel lets it read only processes that it started" if denied else facts.py_spy
    better = "sudo, --cap-add SYS_PTRACE in a container, or sysctl kernel.yama.ptrace_scope=0"
    return _check("stacks", "py-spy", value, better, wrong=denied)


def cache_check(facts: FolderFacts) -> MachineCheck:
    """A check of the folder for what rankscope keeps between runs."""
    value = f"{facts.path} ({facts.file_system or 'unknown'}, {byte_count(facts.free)} free)"
    if not facts.writable:
        value = f"{value}; it cannot be written"
    full = facts.free is not None and facts.free < MIN_FREE
    better = f"room there, export XDG_CACHE_HOME=/tmp/$USER-cache, or {OFF}=1 to keep nothing"
    return _check("cache", "folder", value, better, wrong=full or not facts.writable)
