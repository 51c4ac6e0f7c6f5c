"""The content of one structured log of torch.compile, and its form between processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

COMPILE, RECOMPILE, BACKWARD, LIMIT, BREAK = "compile", "recompile", "backward", "limit", "graph-break"
"""Kinds of rows: the first compilation of a frame, a later one, that of a backward graph, one more than the limit
allows, a split of a graph."""


class TracedCompilation(NamedTuple):
    """One compilation of a frame, or one graph break in it."""

    what: str
    """`COMPILE`, `RECOMPILE`, `BACKWARD`, `LIMIT` or `BREAK`."""
    compile_id: str
    """ "0/1": number of the frame, and of its compilation."""
    function: str
    path: str
    code_line: int
    """Line of the function, or of the break; 0 if unknown."""
    reason: str
    """The guard that failed, the message of the error that ended the compilation, or the reason of the break; "" if
    none is told."""
    start_ns: int | None
    """Nanoseconds since the epoch; None if unknown."""
    duration_ns: int | None
    """None for a compilation that the file does not see end, and for a break."""
    hits: int | None
    """Lookups of caches of compiled code that found an entry; None if not counted (before torch 2.7)."""
    misses: int | None
    line: int
    """Line of the file, from 1."""
    error: str = ""
    """Name of the exception that ended it, without its module; "" if it did not fail."""


@dataclass
class TorchTrace:
    """One file: the compilations of one process."""

    rank: int | None = None
    pid: int | None = None
    """Process id, or that of the thread where the version of torch prints it."""
    compilations: list[TracedCompilation] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    """Settings of caches and versions, as the first compilation names them."""
    problem: str | None = None

    @property
    def rows(self) -> int:
        """Number of compilations and breaks."""
        return len(self.compilations)

    def header(self) -> dict[str, Any]:
        """The whole content, as JSON values."""
        return {
            "rank": self.rank, "pid": self.pid, "compilations": [list(row) for row in self.compilations],
            "settings": self.settings, "problem": self.problem,
        }  # fmt: skip

    def body(self) -> list[memoryview]:
        """Empty: the header holds everything."""
        return []


def trace_log_from(header: dict[str, Any], *_: object) -> TorchTrace:
    """The content whose `header()` this is."""
    rows = [TracedCompilation(*row) for row in header["compilations"]]
    return TorchTrace(header["rank"], header["pid"], rows, header["settings"], header["problem"])
