"""Roles of the processes in a file: ranks, processes that serve a rank, and launchers."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from rankscope.features.stacks.py_spy.frame_interning import process_trees
from rankscope.features.stacks.py_spy.model import MAIN, ProcessRole, SampledProcess, Snapshot
from rankscope.parsers.contents import StackFrame

STARTS, STARTED, SERVES = 1, 2, 4
"""Bits of a process: it starts ranks; a launcher started it (a fork has the launcher's frames below); it serves a
rank."""
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
    "collective_rpc": (("vllm/v1/executor/multiproc_executor.py", STARTS),),
    "get_response": (("vllm/v1/executor/multiproc_executor.py", STARTS),),
}
"""Functions, with the end of their file, in which processes of torch and Python wait, or start others."""


def roles_of(snapshot: Snapshot) -> list[ProcessRole]:
    """The role of each process."""
    processes = snapshot.processes
    marks = _marks(snapshot)
    roots = process_trees(processes)
    places = {(root, process.pid): i for i, (root, process) in enumerate(zip(roots, processes, strict=True))}
    above = [
        None if root == i or process.parent_pid is None else places.get((root, process.parent_pid))
        for i, (root, process) in enumerate(zip(roots, processes, strict=True))
    ]
    starts = _starters(processes, above, marks)
    roles: list[ProcessRole] = []
    for i, parent in enumerate(above):
        if i in starts:
            roles.append(ProcessRole(None, None))
        elif parent is not None and parent < i and parent not in starts:
            roles.append(ProcessRole(roles[parent].owner, processes[i].parent_pid))
        else:
            roles.append(ProcessRole(None if marks[i] & SERVES else i, None))
    return roles


def _starters(processes: list[SampledProcess], above: list[int | None], marks: list[int]) -> set[int]:
    """The processes that start ranks: by their program, by their waiting place, or because only their children name a
    rank."""
    waits = [mark & STARTS and not mark & STARTED for mark in marks]
    found = {i for i, process in enumerate(processes) if waits[i] or is_launcher(process.command)}
    for process, parent in zip(processes, above, strict=True):
        if parent is not None and says_rank(process.command) and not says_rank(processes[parent].command):
            found.add(parent)
    return found


def _marks(snapshot: Snapshot) -> list[int]:
    """For each process the bits that the frames of its main thread prove."""
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
    """Whether a thread is the first of its process. It has no name if nothing imported `threading`."""
    return name == MAIN or (not name and pid is not None and thread_id == pid)


# Rank and role of a process, from its command line.

LAUNCHERS = frozenset({
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "deepspeed", "deepspeed.launcher.launch",
    "deepspeed.launcher.runner", "accelerate", "accelerate.commands.launch", "accelerate.commands.accelerate_cli",
    "horovodrun", "torchx",
})  # fmt: skip
"""Programs and modules that start one process for each rank and wait for them."""
_INTERPRETER = re.compile(r"^(?:python|pypy)[\d.]*t?$")
_WITH_VALUE = frozenset({"-X", "-W"})
_RANK = re.compile(r"(?:^|\s)(?:--?(?:global[_-])?rank(?:=|\s+)|(?:GLOBAL_)?RANK=)(\d{1,6})(?=\s|$)")
_LOCAL_RANK = re.compile(r"(?:^|\s)(?:--?local[_-]rank(?:=|\s+)|LOCAL_RANK=)(\d{1,6})(?=\s|$)")
_ONE_NODE = re.compile(r"(?:^|\s)(?:--standalone|--nnodes(?:=|\s+)1(?:[:]1)?)(?=\s|$)")
_PER_NODE = re.compile(r"(?:^|\s)--nproc[_-]per[_-]node(?:=|\s+)(\d{1,6})(?=\s|$)")


def rank_in(command: str, parent: str) -> int | None:
    """The global rank, if exactly one is given. Under a launcher the option belongs to the script."""
    titled = title_rank(command)
    if titled is not None:
        return titled
    return None if is_launcher(parent) else _single_number(_RANK, command)


def local_rank_in(command: str) -> int | None:
    """The rank within the node, if exactly one is given."""
    return _single_number(_LOCAL_RANK, command)


def says_rank(command: str) -> bool:
    """Whether the command line gives any rank."""
    return _RANK.search(command) is not None or _LOCAL_RANK.search(command) is not None


def is_launcher(command: str) -> bool:
    """Whether the program is a launcher."""
    if _TITLE.match(command):
        return _LAUNCHER_TITLE.match(command) is not None
    words = iter(command.split(maxsplit=16)[:16])
    for word in words:
        if word in _WITH_VALUE:
            next(words, "")
        elif word == "-c":
            return False
        elif not word.startswith("-") and not _INTERPRETER.match(PurePosixPath(word).name):
            return PurePosixPath(word).name in LAUNCHERS
    return False


def on_one_node(command: str, world: int) -> bool:
    """Whether a launcher was told to start all `world` ranks (0: unknown) of the job on its own node."""
    each = _single_number(_PER_NODE, command)
    return is_launcher(command) and (_ONE_NODE.search(command) is not None or (world > 0 and each == world))


def _single_number(pattern: re.Pattern[str], command: str) -> int | None:
    found = {int(number) for number in pattern.findall(command)}
    return found.pop() if len(found) == 1 else None


# Titles that servers give to their processes: `VLLM::Worker_PP0_TP2`, `sglang::scheduler_TP2`, `ray::IDLE`.

_TITLE = re.compile(r"\s*(?:VLLM|vllm|sglang|ray)::\S")
_WORKER_TITLE = re.compile(
    r"\s*(?:(?:VLLM|vllm)::\w*?Worker|sglang::scheduler)((?:_[A-Z]{2,4}(?:_[A-Z]{2,4})?\d{1,6})+)\s*$"
)
_LAUNCHER_TITLE = re.compile(
    r"\s*(?:(?:VLLM|vllm)::(?:APIServer|Router|Coordinator|DPCoordinator)|sglang::(?!scheduler)|ray::IDLE)"
)
_TENSOR_PARALLEL = re.compile(r"_TP(\d{1,6})$")


def title_rank(command: str) -> int | None:
    """The rank of tensor parallelism in a title that names no other part of the job: it then is the global rank."""
    worker = _WORKER_TITLE.match(command)
    alone = _TENSOR_PARALLEL.fullmatch(worker[1]) if worker is not None else None
    return int(alone[1]) if alone is not None else None
