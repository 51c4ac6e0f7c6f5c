"""What one file says of the environment of processes, and the form in which it crosses from a worker process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Variable(NamedTuple):
    """A variable that is set, or a version that is installed."""

    name: str
    value: str
    line: int
    """From 1; 1 where the file has no lines."""


class Process(NamedTuple):
    """One process, or container."""

    variables: list[Variable]
    rank: int | None = None
    """Global rank, as its launcher set it."""
    world_size: int | None = None
    host: str = ""
    whole: bool = False
    """It is all of the environment: what is not there is unset."""


@dataclass
class Environment:
    """One file. Of its variables only those of known families are kept: the others are nobody's business."""

    processes: list[Process] = field(default_factory=list)
    problem: str | None = None

    @property
    def rows(self) -> int:
        """Number of variables."""
        return sum(len(process.variables) for process in self.processes)

    def header(self) -> dict[str, Any]:
        """All of it, as JSON values."""
        rows = [[list(map(tuple, process.variables)), *process[1:]] for process in self.processes]
        return {"processes": rows, "problem": self.problem}

    def body(self) -> list[memoryview]:
        """Nothing: it is all in the header."""
        return []


def environment_from(header: dict[str, Any], *_: object) -> Environment:
    """What `header()` was made from."""
    rows = header["processes"]
    processes = [Process([Variable(*one) for one in variables], *rest) for variables, *rest in rows]
    return Environment(processes, header["problem"])
