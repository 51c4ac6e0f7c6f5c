"""The content of one file of stacks, of py-spy or another tool, and its form between processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from rankscope.kinds.input_kinds import CAPTURED_STACKS
from rankscope.kinds.input_kinds import PY_SPY as PY_SPY_KIND
from rankscope.parsers.contents import StackFrame

PY_SPY = "py-spy"
MAIN = "MainThread"
"""The name that Python gives to the first thread of a process."""
Identity: TypeAlias = tuple[int | None, int | None, int | None, int | None]
"""(process id, rank, rank in the node, main thread): the first known of them, the others None."""


class SampledProcess(NamedTuple):
    """A process at one moment."""

    pid: int | None
    """None where the file lacks it."""
    parent_pid: int | None
    """None where the file lacks it."""
    command: str
    """Its command line; empty if unknown."""
    parent_command: str
    later: int
    """How many later dumps of the same process tree follow in the file."""
    rank: int | None = None
    """Its global rank, where the file has it."""
    local_rank: int | None = None
    """Its rank within the node, where the file has only that."""
    tool: str = PY_SPY
    """The tool that took the stacks."""
    taken_ns: int | None = None
    """When, in nanoseconds since the epoch; None where the file lacks it."""


class SampledThread(NamedTuple):
    """A thread of a process."""

    process: int
    """Index into `processes`."""
    name: str
    thread_id: int | None
    """The operating system's id where the file has it, else Python's."""
    active: bool | None
    gil: bool | None
    """None for an idle thread in a text: py-spy does not print there whether it holds the lock."""
    stack: int
    """Index into `stacks`."""


class ProcessRole(NamedTuple):
    """The role of a process in the job."""

    owner: int | None
    """Index of the process that is the rank: itself, or one above it. None for a launcher, or for an absent process."""
    parent_pid: int | None
    """The process id of its owner; None for a process without one."""


_TABLES: dict[str, type[Any]] = {
    "processes": SampledProcess,
    "roles": ProcessRole,
    "threads": SampledThread,
    "frames": StackFrame,
}


@dataclass
class Snapshot:
    """One file: its processes, in the order of the file, and their threads."""

    processes: list[SampledProcess] = field(default_factory=list)
    roles: list[ProcessRole] = field(default_factory=list)
    """One for each process."""
    threads: list[SampledThread] = field(default_factory=list)
    frames: list[StackFrame] = field(default_factory=list)
    """A native frame has the library as its file, and line 0."""
    stacks: list[list[int]] = field(default_factory=list)
    """Each a list of indices into `frames`, innermost first."""
    problem: str | None = None
    captured: bool = False
    """Whether the capture took them inside of the rank."""

    @property
    def rows(self) -> int:
        """Number of threads."""
        return len(self.threads)

    @cached_property
    def identities(self) -> list[Identity]:
        """For each process an identity: equal for all dumps of the process, and for no other process."""
        mains = self._mains()
        return [
            (p.pid, None, None, None)
            if p.pid is not None
            else (None, p.rank, p.local_rank, mains.get(i) if p.rank is p.local_rank is None else None)
            for i, p in enumerate(self.processes)
        ]

    def _mains(self) -> dict[int, int | None]:
        """The id of the main thread, else of the first thread, of each process without a process id: an address in
        memory that differs between processes."""
        found: dict[int, int | None] = {}
        for thread in self.threads:
            if thread.process not in found or thread.name == MAIN:
                found[thread.process] = thread.thread_id
        return found

    def header(self) -> dict[str, Any]:
        """The whole content, as JSON values."""
        tables = {name: list(map(tuple, getattr(self, name))) for name in _TABLES}
        return {**tables, "stacks": self.stacks, "problem": self.problem, "captured": self.captured}

    def body(self) -> list[memoryview]:
        """Empty: the header holds everything."""
        return []


def shown_kind(snapshot: Snapshot) -> str:
    """The name of the kind of a file in the table of files."""
    return CAPTURED_STACKS.name if snapshot.captured else PY_SPY_KIND.name


def snapshot_from(header: dict[str, Any], *_: object) -> Snapshot:
    """The snapshot whose `header()` this is."""
    return Snapshot(**{**header, **{k: list(map(kind._make, header[k])) for k, kind in _TABLES.items()}})
