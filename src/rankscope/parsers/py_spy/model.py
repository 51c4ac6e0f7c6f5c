"""What one file of stacks says, of py-spy or another tool, and the form in which it crosses from a worker process."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from rankscope.parsers.flight_recorder.model import StackFrame

PY_SPY = "py-spy"
MAIN = "MainThread"
"""The name that Python gives to the first thread of a process."""
Identity: TypeAlias = tuple[int | None, int | None, int | None, int | None]
"""(process id, rank, rank in the node, main thread): the first of them that is known, the rest None."""


class SampledProcess(NamedTuple):
    """A process at one moment."""

    pid: int | None
    """None where the file does not say."""
    parent_pid: int | None
    """None where the file does not say."""
    command: str
    """Its command line; empty if unknown."""
    parent_command: str
    later: int
    """How many later dumps of the same process tree follow in the file."""
    rank: int | None = None
    """Its global rank, where the file itself says it."""
    local_rank: int | None = None
    """Its rank within the node, where the file says that alone."""
    tool: str = PY_SPY
    """What looked at it."""


class SampledThread(NamedTuple):
    """A thread of a process."""

    process: int
    """Index into `processes`."""
    name: str
    thread_id: int | None
    """Of the operating system where the file says it, else of Python."""
    active: bool | None
    gil: bool | None
    """None for an idle thread in a text: py-spy does not write there whether it holds the lock."""
    stack: int
    """Index into `stacks`."""


class ProcessRole(NamedTuple):
    """What a process is."""

    owner: int | None
    """Index of the process that is the rank: itself, or one above it. None for a launcher, or if it is not there."""
    parent_pid: int | None
    """None unless it serves its owner."""


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

    @property
    def rows(self) -> int:
        """Number of threads."""
        return len(self.threads)

    @cached_property
    def identities(self) -> list[Identity]:
        """For each process what is equal for each time that it was dumped, and for no other process."""
        mains = self._mains()
        return [
            (p.pid, None, None, None)
            if p.pid is not None
            else (None, p.rank, p.local_rank, mains.get(i) if p.rank is p.local_rank is None else None)
            for i, p in enumerate(self.processes)
        ]

    def _mains(self) -> dict[int, int | None]:
        """The id of the main thread of each process without a process id, else of its first: where it lies in memory,
        which differs from process to process."""
        found: dict[int, int | None] = {}
        for thread in self.threads:
            if thread.process not in found or thread.name == MAIN:
                found[thread.process] = thread.thread_id
        return found

    def header(self) -> dict[str, Any]:
        """All of it, as JSON values."""
        tables = {name: list(map(tuple, getattr(self, name))) for name in _TABLES}
        return {**tables, "stacks": self.stacks, "problem": self.problem}

    def body(self) -> list[memoryview]:
        """Nothing: it is all in the header."""
        return []


def snapshot_from(header: dict[str, Any], *_: object) -> Snapshot:
    """The snapshot whose `header()` this is."""
    return Snapshot(**{**header, **{k: list(map(kind._make, header[k])) for k, kind in _TABLES.items()}})
