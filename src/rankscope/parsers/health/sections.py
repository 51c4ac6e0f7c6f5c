"""The bytes of a health check to a HealthCheck: a section for each rank, with JSON or an error of HTTP in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import orjson

from rankscope.parsers.decoded import NotThisKindError
from rankscope.parsers.flight_recorder.values import RANK_LIMIT, text
from rankscope.parsers.health.checks import HEALTHY, SILENT, UNHEALTHY, Health, HealthCheck

TABLES = "tables of torch's own analyzer, of gloo and the legacy NCCL backend only: dumps are read, these are not"
NOTHING = "a file of a debug server without a health check"
_BEGIN = re.compile(rb"\s*(?:PARTIAL DATA: \d+/\d+ workers responded|=== (?:Rank \d+: http|FR Trace|TorchComms FR ))")
_RANK = re.compile(r"=== Rank (\d{1,7}): (http://\S{1,300}) ===$")
_CHECK = re.compile(r"/handler/(?:c10d|torchcomms)_health_check\b")
_TABLE = re.compile(r"=== (?:TorchComms )?FR Trace(?: NCCL)? ===$")
_ERROR = re.compile(r"Error: (\d{1,5})$")
_NOT_THERE = "404"
_FEW = 16
"""Backends of a process that are kept."""


def looks_like_check(head: bytes) -> bool:
    """Whether a file with these first bytes is a debug server's; stacks begin so, too."""
    return _BEGIN.match(head) is not None


def decode(data: bytes) -> HealthCheck:
    """The health check in `data`, of ranks that know of one. Raises NotThisKindError if there is none."""
    lines = data.decode("utf-8", "replace").splitlines()
    sections = list(_sections(lines))
    if not sections:
        raise NotThisKindError(TABLES if any(_TABLE.match(line) for line in lines) else NOTHING)
    return HealthCheck([health for one in sections if (health := _health(*one))])


def _sections(lines: list[str]) -> Iterator[tuple[int, int, str, str]]:
    """Line, rank, host and first line of what each rank answered; what was dumped because of it is left out."""
    for number, line in enumerate(lines[:-1], 1):
        head = _RANK.match(line)
        if head is not None and _CHECK.search(head[2]) and int(head[1]) < RANK_LIMIT:
            yield number, int(head[1]), _host(head[2]), lines[number].strip()


def _health(line: int, rank: int, host: str, body: str) -> Health | None:
    """What an answer says; None if the rank knows of no such check."""
    failed = _ERROR.match(body)
    if failed is not None:
        return None if failed[1] == _NOT_THERE else Health(rank, host, SILENT, (), f"error {failed[1]}", line)
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        told = None
    healthy = told.get("healthy") if isinstance(told, dict) else None
    if not isinstance(healthy, bool):
        return Health(rank, host, SILENT, (), "no JSON", line)
    return Health(rank, host, HEALTHY if healthy else UNHEALTHY, _names(told.get("unhealthy_backends")), "", line)


def _names(value: Any) -> tuple[str, ...]:
    return tuple(name for name in map(text, value[:_FEW]) if name) if isinstance(value, list) else ()


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
