"""What one file of py-spy dumps says, and the form in which it crosses from a worker process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rankscope.parsers.flight_recorder.model import StackFrame


class Process(NamedTuple):
    """A process at one moment."""

    pid: int
    parent_pid: int | None
    """None where the file does not say."""
    command: str
    """Its command line; empty if unknown."""
    parent_command: str
    later: int
    """How many later dumps of the same process tree follow in the file."""


class Thread(NamedTuple):
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


class Role(NamedTuple):
    """What a process is."""

    owner: int | None
    """Index of the process that is the rank: itself, or one above it. None for a launcher, or if it is not there."""
    parent_pid: int | None
    """None unless it serves its owner."""


_TABLES: dict[str, type[Any]] = {"processes": Process, "roles": Role, "threads": Thread, "frames": StackFrame}


@dataclass
class Snapshot:
    """One file: its processes, in the order of the file, and their threads."""

    processes: list[Process] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)
    """One for each process."""
    threads: list[Thread] = field(default_factory=list)
    frames: list[StackFrame] = field(default_factory=list)
    """A native frame has the library as its file, and line 0."""
    stacks: list[list[int]] = field(default_factory=list)
    """Each a list of indices into `frames`, innermost first."""
    problem: str | None = None

    @property
    def rows(self) -> int:
        """Number of threads."""
        return len(self.threads)

    def header(self) -> dict[str, Any]:
        """All of it, as JSON values."""
        tables = {name: list(map(tuple, getattr(self, name))) for name in _TABLES}
        return {**tables, "stacks": self.stacks, "problem": self.problem}

    def body(self) -> list[memoryview]:
        """Nothing: it is all in the header."""
        return []


def snapshot_from(header: dict[str, Any]) -> Snapshot:
    """The snapshot whose `header()` this is."""
    return Snapshot(**{**header, **{k: list(map(kind._make, header[k])) for k, kind in _TABLES.items()}})
