"""Processes that never were: a line that lost the beginning of its host, or got a piece of another line in front."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from rankscope.parsers.columnar import Codes, Numbers
from rankscope.parsers.logs.model import CODES, NUMBERS, Comm, LogContent, Process

FEW = 3
MANY = 8
"""One with FEW records at most is a phantom of one with at least MANY times as many, the same pid, and a host that
ends as its own does."""


def settle(content: LogContent) -> None:
    """Gives what phantoms said to the processes that said it."""
    rows = content.processes
    real = _real(rows, content.comms)
    if not real:
        return
    issued = {row.process for row in content.comms}
    for at, other in real.items():
        rows[other] = _with(rows[other], rows[at], at in issued)
    kept = [at for at in range(len(rows)) if at not in real]
    place = {at: i for i, at in enumerate(kept)}
    moved = {at: place[real.get(at, at)] for at in range(len(rows))} | {-1: -1}
    content.processes = [rows[at] for at in kept]
    content.comms = [row._replace(process=moved[row.process]) for row in content.comms]
    content.settings = [row._replace(process=moved[row.process]) for row in content.settings]
    content.warnings = [row._replace(process=moved[row.process]) for row in content.warnings]


def rehomed(processes: list[Process], comms: list[Comm], numbers: Numbers, codes: Codes) -> tuple[Numbers, Codes]:
    """Operations (columns NUMBERS and CODES, before they are counted) with those of phantoms where they belong."""
    homes = _homes(comms, _real(processes, comms))
    if not homes:
        return numbers, codes
    moved = np.array([homes.get(at, at) for at in range(len(comms))], np.int32)
    comm = CODES.index("comm")
    codes[comm] = moved[codes[comm]]
    order = np.lexsort((numbers[NUMBERS.index("offset")], codes[comm]))
    return numbers[:, order], codes[:, order]


def _real(processes: list[Process], comms: list[Comm]) -> dict[int, int]:
    begun = {row.process for row in comms if row.init}
    return {at: other for at, other in _phantoms(processes).items() if at not in begun}


def _homes(comms: list[Comm], real: dict[int, int]) -> dict[int, int]:
    """The communicator of its process that each of a phantom is: of the same pointer, and begun before."""
    homes = {}
    for at, row in enumerate(comms):
        if row.process in real:
            own = [
                i for i, other in enumerate(comms)
                if other.process == real[row.process] and other.pointer == row.pointer and other.offset <= row.offset
            ]  # fmt: skip
            if own:
                homes[at] = max(own, key=lambda i: comms[i].offset)
    return homes


def _phantoms(rows: list[Process]) -> dict[int, int]:
    """The process that each phantom is of."""
    by_pid: defaultdict[int, list[int]] = defaultdict(list)
    for at, row in enumerate(rows):
        by_pid[row.pid].append(at)
    found = {}
    for same in by_pid.values():
        # processes in containers have the same pid by the thousand
        few = [at for at in same if rows[at].records <= FEW]
        least = MANY * min((rows[at].records for at in few), default=0)
        many = [at for at in same if rows[at].records >= least]
        for at in few if many else ():
            others = [other for other in many if other != at and _is_of(rows[at], rows[other])]
            if len(others) == 1:
                found[at] = others[0]
    return found


def _is_of(row: Process, other: Process) -> bool:
    rare = row.records <= FEW and other.records >= MANY * row.records
    return rare and (row.host.endswith(other.host) or other.host.endswith(row.host))


def _with(row: Process, phantom: Process, issued: bool) -> Process:
    """A piece in front of a whole operation is of another writer; any other may be missing from a line of its own."""
    cuts = [at for at in (row.torn_at, phantom.torn_at if issued else phantom.offset) if at is not None]
    return row._replace(records=row.records + phantom.records, torn_at=min(cuts, default=None))
