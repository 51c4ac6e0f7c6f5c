"""What one file of a debug server says, and the form in which it crosses from a worker process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

HEALTHY, UNHEALTHY, SILENT = "healthy", "unhealthy", "silent"
"""A rank says so of itself, or does not answer."""


class Health(NamedTuple):
    """What one rank answered."""

    rank: int
    host: str
    state: str
    """`HEALTHY`, `UNHEALTHY` or `SILENT`."""
    backends: tuple[str, ...]
    """Those in which an operation failed or timed out."""
    why: str
    """Why it did not answer, as an error of HTTP; else empty."""
    line: int
    """From 1."""


@dataclass
class HealthCheck:
    """All ranks, asked at one time."""

    ranks: list[Health] = field(default_factory=list)
    problem: str | None = None

    @property
    def rows(self) -> int:
        """Number of ranks that answered."""
        return sum(health.state != SILENT for health in self.ranks)

    def header(self) -> dict[str, Any]:
        """All of it, as JSON values."""
        return {"ranks": [list(health) for health in self.ranks], "problem": self.problem}

    def body(self) -> list[memoryview]:
        """Nothing: it is all in the header."""
        return []


def check_from(header: dict[str, Any], *_: object) -> HealthCheck:
    """What `header()` was made from."""
    rows = [(rank, host, state, tuple(names), *rest) for rank, host, state, names, *rest in header["ranks"]]
    return HealthCheck([Health(*row) for row in rows], header["problem"])
