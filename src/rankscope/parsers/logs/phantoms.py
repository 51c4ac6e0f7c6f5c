"""Processes that never were: a line that lost the beginning of its host, or got a piece of another line in front."""

from __future__ import annotations

from collections import defaultdict

from rankscope.parsers.logs.model import LogContent, Process

FEW = 3
MANY = 8
"""One with FEW records at most is a phantom of one with at least MANY times as many, the same pid, and a host that
ends as its own does."""


def settle(content: LogContent) -> None:
    """Gives what phantoms said to the processes that said it."""
    rows = content.processes
    real = {at: other for at, other in _phantoms(rows).items() if not _initialised(content, at)}
    if not real:
        return
    for at, other in real.items():
        rows[other] = _with(rows[other], rows[at])
    kept = [at for at in range(len(rows)) if at not in real]
    place = {at: i for i, at in enumerate(kept)}
    moved = {at: place[real.get(at, at)] for at in range(len(rows))} | {-1: -1}
    content.processes = [rows[at] for at in kept]
    content.comms = [row._replace(process=moved[row.process]) for row in content.comms]
    content.settings = [row._replace(process=moved[row.process]) for row in content.settings]
    content.warnings = [row._replace(process=moved[row.process]) for row in content.warnings]


def _phantoms(rows: list[Process]) -> dict[int, int]:
    """The process that each phantom is of."""
    by_pid: defaultdict[int, list[int]] = defaultdict(list)
    for at, row in enumerate(rows):
        by_pid[row.pid].append(at)
    found = {}
    for same in by_pid.values():
        for at in same if len(same) > 1 else ():
            others = [other for other in same if other != at and _is_of(rows[at], rows[other])]
            if len(others) == 1:
                found[at] = others[0]
    return found


def _is_of(row: Process, other: Process) -> bool:
    rare = row.records <= FEW and other.records >= MANY * row.records
    return rare and (row.host.endswith(other.host) or other.host.endswith(row.host))


def _initialised(content: LogContent, process: int) -> bool:
    return any(row.process == process and row.init for row in content.comms)


def _with(row: Process, phantom: Process) -> Process:
    torn_at = phantom.offset if row.torn_at is None else min(row.torn_at, phantom.offset)
    return row._replace(records=row.records + phantom.records, torn_at=torn_at)
