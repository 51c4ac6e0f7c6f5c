"""What a log says more than it did, where that is operations of communicators that were known: the rest stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.parsers.columnar import Codes, Numbers
from rankscope.parsers.logs.event import Event
from rankscope.parsers.logs.join import continues, joined
from rankscope.parsers.logs.model import CODES, IS_P2P, NUMBERS, Comm, LogContent, Process

MOST = 100_000
"""More operations are not kept apart from the rest."""
_ORDINAL, _OFFSET, _LINE = (NUMBERS.index(name) for name in ("ordinal", "offset", "line"))
_COMM, _OP, _FLAGS = (CODES.index(name) for name in ("comm", "op", "flags"))
_TABLES = ("settings", "warnings", "ras", "events")


@dataclass(frozen=True)
class _Piece:
    """Operations of a stretch, with the communicators and names of the whole; without ordinals."""

    numbers: Numbers
    codes: Codes
    events: list[Event]
    met: int
    """So many of the facts that were told stand in it as well."""


class Growth:
    """Takes the stretches that follow a log as it was told in whole."""

    def __init__(self, told: LogContent, loose: LogContent | None, end: int, lines: int) -> None:
        """`loose` are its last lines, which are read again; up to `end`, and behind so many firm lines."""
        self._told, self._end = told, end
        self._processes = {(row.host, row.pid): at for at, row in enumerate(told.processes)}
        self._last = {(row.process, row.pointer): at for at, row in enumerate(told.comms)}
        self._ops = {op: at for at, op in enumerate(told.ops)}
        self._again = [] if loose is None else _facts(loose, end, lines)
        """What stood there, in the order of the log."""
        self._seen = 0
        """How much of that has been read again, and was the same."""
        self._firm: list[_Piece] | None = []
        """None: something else has changed."""

    def add(self, part: LogContent, lines: int) -> None:
        """Takes a stretch that is not read again; so many lines stand before it."""
        firm = self._firm
        if firm is None:
            return
        piece = self._piece(part, lines)
        if piece is None or sum(one.numbers.shape[1] + len(one.events) for one in firm) > MOST:
            self._firm = None
            return
        self._seen += piece.met
        firm.append(piece)

    def more(self, loose: LogContent | None, lines: int) -> LogContent | None:
        """The operations that were not told yet, with the last lines as they are now; None if more than that is new."""
        if self._firm is None:
            return None
        last = self._piece(loose, lines) if loose is not None else None
        if loose is not None and last is None:
            return None
        if self._seen + (last.met if last is not None else 0) < len(self._again):
            return None
        pieces = [*self._firm, *([last] if last is not None else [])]
        numbers = np.concatenate([np.empty((len(NUMBERS), 0), np.int64), *(one.numbers for one in pieces)], axis=1)
        codes = np.concatenate([np.empty((len(CODES), 0), np.int32), *(one.codes for one in pieces)], axis=1)
        order = np.argsort(codes[_COMM], kind="stable")
        numbers, codes = numbers[:, order], codes[:, order]
        numbers[_ORDINAL] = self._ordinals(codes)
        told = self._told
        events = [event for one in pieces for event in one.events]
        return LogContent(
            told.processes, told.comms, list(self._ops), events=events, ranged=True, numbers=numbers, codes=codes
        )

    def _ordinals(self, codes: Codes) -> Numbers:
        """Of operations sorted by communicator: they count on from those that were told."""
        comm, p2p = codes[_COMM], (codes[_FLAGS] & IS_P2P) > 0
        first = np.flatnonzero(np.diff(comm, prepend=-1))
        before = np.array([(one.collectives, one.p2p) for one in self._told.comms] or [(0, 0)], np.int64)
        ordinals = np.zeros(len(comm), np.int64)
        for kind, own in enumerate((~p2p, p2p)):
            counted = np.cumsum(own) - own
            since = np.repeat(counted[first], np.diff(first, append=len(comm)))
            ordinals = np.where(own, before[comm, kind] + counted - since, ordinals)
        return ordinals

    def _piece(self, part: LogContent, lines: int) -> _Piece | None:
        """The operations of a stretch that were not told; None if something else is new, or is not what it was."""
        told = (row.offset >= self._end and not _is_print(row) for _, row in _rows_of(part))
        if part.problem is not None or part.inspected or any(told):
            return None
        facts, comms = _facts(part, self._end, lines), self._comms(part)
        if comms is None or facts != self._again[self._seen : self._seen + len(facts)]:
            return None
        new = part.numbers[_OFFSET] >= self._end
        numbers, codes = part.numbers[:, new], part.codes[:, new]
        events = [row._replace(line=row.line + lines) for row in part.events if row.offset >= self._end]
        if not numbers.shape[1]:
            return _Piece(numbers, codes, events, len(facts))
        numbers[_LINE] += lines
        codes[_COMM] = np.array(comms, np.int32)[codes[_COMM]]
        names = np.array([self._ops.setdefault(op, len(self._ops)) for op in part.ops] or [-1], np.int32)
        codes[_OP] = np.where(codes[_OP] >= 0, names[codes[_OP]], codes[_OP])
        return _Piece(numbers, codes, events, len(facts)) if self._is_known(codes) else None

    def _is_known(self, codes: Codes) -> bool:
        """Whether each communicator has been told to do what it does here: the first send is news of a group."""
        p2p = (codes[_FLAGS] & IS_P2P) > 0
        comms = self._told.comms
        return all(comms[at].collectives for at in np.unique(codes[_COMM][~p2p]).tolist()) and all(
            comms[at].p2p for at in np.unique(codes[_COMM][p2p]).tolist()
        )

    def _comms(self, part: LogContent) -> list[int] | None:
        """The communicators of a stretch as they were told; None if anything is new of them, or of a process."""
        processes: list[int] = []
        for row in part.processes:
            own = self._processes.get((row.host, row.pid))
            if own is None or not _says_no_more(self._told.processes[own], row):
                return None
            processes.append(own)
        found: list[int] = []
        for one in part.comms:
            at = self._last.get((processes[one.process], one.pointer))
            if at is None or not _lives_on(self._told.comms[at], one, processes[one.process]):
                return None
            found.append(at)
        return found


def _says_no_more(known: Process, row: Process) -> bool:
    """Whether a stretch tells of a process what was told."""
    told = (row.rank, row.label or None, row.torn_at, row.device)
    were = (known.rank, known.label or None, known.torn_at, known.device)
    new = any(now is not None and was is None for now, was in zip(told, were, strict=True))
    return not new and (row.glued or not known.glued)


def _lives_on(known: Comm, row: Comm, process: int) -> bool:
    """Whether a stretch tells of a communicator what was told, but for its operations."""
    if row.parent and known.parent != row.parent:
        return False
    moved = row._replace(process=process, parent_comm=known.parent_comm)
    return continues(known, row) and joined(known, moved) == known


def _facts(part: LogContent, end: int, lines: int) -> list[object]:
    """What a stretch says up to a place in the log, in its order; so many lines stand before it."""
    mine = np.flatnonzero(part.numbers[_OFFSET] < end)
    rows: list[tuple[int, object]] = []
    for numbers, (comm, op, *rest) in zip(part.numbers.T[mine].tolist(), part.codes.T[mine].tolist(), strict=True):
        numbers[_LINE] += lines
        one = part.comms[comm]
        process = part.processes[one.process]
        who = process.host, process.pid, one.pointer, part.ops[op] if op >= 0 else ""
        rows.append((numbers[_OFFSET], (*who, *numbers[_ORDINAL + 1 :], *rest)))
    for name, row in _rows_of(part):
        if row.offset < end:
            # processes are numbered from stretch to stretch
            whose = {"process": 0} if hasattr(row, "process") else {}
            rows.append((row.offset, (name, row._replace(line=row.line + lines, **whose))))
    return [fact for _, fact in sorted(rows, key=lambda row: row[0])]


def _is_print(row: object) -> bool:
    """Whether it is a fingerprint, which is an operation as well."""
    return isinstance(row, Event) and row.kind == "fingerprint"


def _rows_of(part: LogContent) -> Iterator[tuple[str, Any]]:
    """What a stretch says but for operations, with the name of its table."""
    for name in _TABLES:
        yield from ((name, row) for row in getattr(part, name))
