"""The health check in one file of a debug server: a section for each rank, with JSON or an HTTP error in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.safe_values import RANK_LIMIT, safe_text

HEALTHY, UNHEALTHY, SILENT = "healthy", "unhealthy", "silent"
"""States of a rank: its own answer, or no answer."""


class RankHealth(NamedTuple):
    """The answer of one rank."""

    rank: int
    host: str
    state: str
    """`HEALTHY`, `UNHEALTHY` or `SILENT`."""
    backends: tuple[str, ...]
    """Backends in which an operation failed or timed out."""
    why: str
    """The HTTP error that stands instead of an answer; else empty."""
    line: int
    """Counts from 1."""


@dataclass
class HealthCheck:
    """The answers of all ranks at one time."""

    ranks: list[RankHealth] = field(default_factory=list)
    problem: str | None = None

    @property
    def rows(self) -> int:
        """Number of ranks that answered."""
        return sum(health.state != SILENT for health in self.ranks)

    def header(self) -> dict[str, Any]:
        """The whole content, as JSON values."""
        return {"ranks": [list(health) for health in self.ranks], "problem": self.problem}

    def body(self) -> list[memoryview]:
        """Empty: the header holds everything."""
        return []


def check_from(header: dict[str, Any], *_: object) -> HealthCheck:
    """The health check whose `header()` this is."""
    rows = [(rank, host, state, tuple(names), *rest) for rank, host, state, names, *rest in header["ranks"]]
    return HealthCheck([RankHealth(*row) for row in rows], header["problem"])


FOREIGN_TABLES = "tables of torch's own analyzer, which rankscope does not read; it reads the dumps"
NO_CHECK = "a file of a debug server without a health check"
_BEGIN = re.compile(rb"\s*(?:PARTIAL DATA: \d+/\d+ workers responded|=== (?:Rank \d+: http|FR Trace|TorchComms FR ))")
_RANK = re.compile(r"=== Rank (\d{1,7}): (http://\S{1,300}) ===$")
_CHECK = re.compile(r"/handler/(?:c10d|torchcomms)_health_check\b")
_TABLE = re.compile(r"=== (?:TorchComms )?FR Trace(?: NCCL)? ===$")
_ERROR = re.compile(r"Error: (\d{1,5})$")
_NOT_THERE = "404"
_MOST_BACKENDS = 16
"""Most backends of a process that are kept."""


def looks_like_check(head: bytes) -> bool:
    """Whether these first bytes come from a debug server; its files of stacks begin in the same way."""
    return _BEGIN.match(head) is not None


def decode_check(data: bytes) -> HealthCheck:
    """The health check in `data`, with the ranks that support it. Raises NotThisKindError without any."""
    lines = data.decode("utf-8", "replace").splitlines()
    sections = list(_sections(lines))
    if not sections:
        raise NotThisKindError(FOREIGN_TABLES if any(_TABLE.match(line) for line in lines) else NO_CHECK)
    return HealthCheck([health for one in sections if (health := _health(*one))])


def _sections(lines: list[str]) -> Iterator[tuple[int, int, str, str]]:
    """Line, rank, host and first line of each rank's answer; dumps that follow a failure are left out."""
    for number, line in enumerate(lines[:-1], 1):
        head = _RANK.match(line)
        if head is not None and _CHECK.search(head[2]) and int(head[1]) < RANK_LIMIT:
            yield number, int(head[1]), _host(head[2]), lines[number].strip()


def _health(line: int, rank: int, host: str, body: str) -> RankHealth | None:
    """The health in an answer; None if the rank does not support the check."""
    failed = _ERROR.match(body)
    if failed is not None:
        return None if failed[1] == _NOT_THERE else RankHealth(rank, host, SILENT, (), f"error {failed[1]}", line)
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        answer = None
    healthy = answer.get("healthy") if isinstance(answer, dict) else None
    if not isinstance(healthy, bool):
        return RankHealth(rank, host, SILENT, (), "no JSON", line)
    return RankHealth(rank, host, HEALTHY if healthy else UNHEALTHY, _names(answer.get("unhealthy_backends")), "", line)


def _names(value: Any) -> tuple[str, ...]:
    return tuple(name for name in map(safe_text, value[:_MOST_BACKENDS]) if name) if isinstance(value, list) else ()


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
