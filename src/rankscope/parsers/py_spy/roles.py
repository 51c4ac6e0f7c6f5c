"""Which of the processes in a file are ranks, which only serve one, and which start them."""

from __future__ import annotations

from rankscope.parsers.flight_recorder.model import StackFrame
from rankscope.parsers.py_spy.command import is_launcher, says_rank
from rankscope.parsers.py_spy.interning import trees
from rankscope.parsers.py_spy.model import MAIN, Process, Role, Snapshot

STARTS, STARTED, SERVES = 1, 2, 4
"""It starts ranks; it was started as one, and has the frames of its launcher below if it was forked; it serves one."""
_MARKS: dict[str, tuple[tuple[str, int], ...]] = {
    "launch_agent": (("torch/distributed/launcher/api.py", STARTS),),
    "_invoke_run": (("torch/distributed/elastic/agent/server/api.py", STARTS),),
    "start_processes": (("torch/multiprocessing/spawn.py", STARTS),),
    "join": (("torch/multiprocessing/spawn.py", STARTS),),
    "_wrap": (
        ("torch/multiprocessing/spawn.py", STARTED),
        ("torch/distributed/elastic/multiprocessing/api.py", STARTED),
    ),
    "_worker_loop": (("torch/utils/data/_utils/worker.py", SERVES),),
    "main": (
        ("torch/_inductor/compile_worker/__main__.py", SERVES),
        ("multiprocessing/resource_tracker.py", SERVES),
        ("multiprocessing/forkserver.py", SERVES),
    ),
    "_run_server": (("multiprocessing/managers.py", SERVES),),
    "worker": (("multiprocessing/pool.py", SERVES),),
    "_process_worker": (("concurrent/futures/process.py", SERVES),),
}
"""By function and the end of its file: where processes sit that torch and Python start, or that start them."""


def roles_of(snapshot: Snapshot) -> list[Role]:
    """The role of each process."""
    processes = snapshot.processes
    marks = _marks(snapshot)
    roots = trees(processes)
    places = {(root, process.pid): i for i, (root, process) in enumerate(zip(roots, processes, strict=True))}
    above = [
        None if root == i or process.parent_pid is None else places.get((root, process.parent_pid))
        for i, (root, process) in enumerate(zip(roots, processes, strict=True))
    ]
    starts = _starters(processes, above, marks)
    roles: list[Role] = []
    for i, parent in enumerate(above):
        if i in starts:
            roles.append(Role(None, None))
        elif parent is not None and parent < i and parent not in starts:
            roles.append(Role(roles[parent].owner, processes[i].parent_pid))
        else:
            roles.append(Role(None if marks[i] & SERVES else i, None))
    return roles


def _starters(processes: list[Process], above: list[int | None], marks: list[int]) -> set[int]:
    """Processes that start ranks: by their program, by where they wait, or because only their children say a rank."""
    waits = [mark & STARTS and not mark & STARTED for mark in marks]
    found = {i for i, process in enumerate(processes) if waits[i] or is_launcher(process.command)}
    for process, parent in zip(processes, above, strict=True):
        if parent is not None and says_rank(process.command) and not says_rank(processes[parent].command):
            found.add(parent)
    return found


def _marks(snapshot: Snapshot) -> list[int]:
    """For each process what the frames of its main thread tell."""
    told = {i: mark for i, frame in enumerate(snapshot.frames) if (mark := _mark(frame))}
    marks = [0] * len(snapshot.processes)
    for thread in snapshot.threads if told else ():
        if is_main(thread.name, thread.thread_id, snapshot.processes[thread.process].pid):
            for place in snapshot.stacks[thread.stack]:
                marks[thread.process] |= told.get(place, 0)
    return marks


def _mark(frame: StackFrame) -> int:
    known = _MARKS.get(frame.function.rpartition(".")[2], ())
    return next((mark for file, mark in known if frame.file.endswith(file)), 0)


def is_main(name: str, thread_id: int | None, pid: int | None) -> bool:
    """Whether a thread is the first of its process. It has no name where nothing imported `threading`."""
    return name == MAIN or (not name and pid is not None and thread_id == pid)
