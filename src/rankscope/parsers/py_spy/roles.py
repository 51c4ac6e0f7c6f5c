"""Which of the processes in a file are ranks, which only serve one, and which start them."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from rankscope.parsers.flight_recorder.model import StackFrame
from rankscope.parsers.py_spy.command import is_launcher, says_rank
from rankscope.parsers.py_spy.interning import trees
from rankscope.parsers.py_spy.model import Process, Snapshot

_STARTS = (
    ("torch/distributed/launcher/api.py", "launch_agent"),
    ("torch/distributed/elastic/agent/server/api.py", "_invoke_run"),
    ("torch/multiprocessing/spawn.py", "start_processes"),
    ("torch/multiprocessing/spawn.py", "join"),
)
_STARTED = (
    ("torch/multiprocessing/spawn.py", "_wrap"),
    ("torch/distributed/elastic/multiprocessing/api.py", "_wrap"),
)
"""A process that was forked has the frames of its launcher below this one."""
_SERVES = (
    ("torch/utils/data/_utils/worker.py", "_worker_loop"),
    ("torch/_inductor/compile_worker/__main__.py", "main"),
    ("multiprocessing/resource_tracker.py", "main"),
    ("multiprocessing/forkserver.py", "main"),
    ("multiprocessing/managers.py", "_run_server"),
    ("multiprocessing/pool.py", "worker"),
    ("concurrent/futures/process.py", "_process_worker"),
)
"""Functions, by the end of their file, in which processes sit that torch and Python start to serve a rank."""


class Role(NamedTuple):
    """What a process is."""

    owner: int | None
    """Index of the process that is the rank: itself, or one above it. None for a launcher, or if it is not there."""
    parent_pid: int | None
    """None unless it serves its owner."""


def roles_of(snapshot: Snapshot) -> list[Role]:
    """The role of each process."""
    processes = snapshot.processes
    stacks = _main_stacks(snapshot)
    roots = trees(processes)
    places = {(root, process.pid): i for i, (root, process) in enumerate(zip(roots, processes, strict=True))}
    above = [
        None if root == i or process.parent_pid is None else places.get((root, process.parent_pid))
        for i, (root, process) in enumerate(zip(roots, processes, strict=True))
    ]
    starts = _starters(processes, above, stacks)
    roles: list[Role] = []
    for i, parent in enumerate(above):
        if i in starts:
            roles.append(Role(None, None))
        elif parent is not None and parent < i and parent not in starts:
            roles.append(Role(roles[parent].owner, processes[i].parent_pid))
        else:
            roles.append(Role(None if _is_in(stacks[i], _SERVES) else i, None))
    return roles


def _starters(processes: list[Process], above: list[int | None], stacks: list[list[StackFrame]]) -> set[int]:
    """Processes that start ranks: by their program, by where they wait, or because only their children say a rank."""
    found = {i for i, process in enumerate(processes) if is_launcher(process.command) or _waits(stacks[i])}
    for process, parent in zip(processes, above, strict=True):
        if parent is not None and says_rank(process.command) and not says_rank(processes[parent].command):
            found.add(parent)
    return found


def _waits(stack: list[StackFrame]) -> bool:
    return _is_in(stack, _STARTS) and not _is_in(stack, _STARTED)


def _is_in(stack: list[StackFrame], functions: tuple[tuple[str, str], ...]) -> bool:
    return any(
        f.file.endswith(file) and f.function.rpartition(".")[2] == name for f in stack for file, name in functions
    )


def _main_stacks(snapshot: Snapshot) -> list[list[StackFrame]]:
    """For each process the frames of its main thread."""
    stacks: dict[int, list[StackFrame]] = defaultdict(list)
    for thread in snapshot.threads:
        if is_main(thread.name, thread.thread_id, snapshot.processes[thread.process].pid):
            stacks[thread.process] = [snapshot.frames[i] for i in snapshot.stacks[thread.stack]]
    return [stacks[i] for i in range(len(snapshot.processes))]


def is_main(name: str, thread_id: int | None, pid: int) -> bool:
    """Whether a thread is the first of its process. It has no name where nothing imported `threading`."""
    return name == "MainThread" or (not name and thread_id == pid)
