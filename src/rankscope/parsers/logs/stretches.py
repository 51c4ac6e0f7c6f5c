"""Ranges of one log, decoded apart, put together in their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from rankscope.parsers.contents import LogStretch
from rankscope.parsers.logs import bounded_events
from rankscope.parsers.logs.line_tails import CommTails, move_phantoms
from rankscope.parsers.logs.model import CODES, MOST_SETTINGS, NUMBERS, Comm, LogContent, LogWriter
from rankscope.parsers.logs.nccl.comm_lives import END_STATES
from rankscope.parsers.logs.nccl.inspector import MOST_ROWS as MOST_INSPECTED
from rankscope.parsers.logs.nccl.ras_output import MOST_ROWS as MOST_RAS


class LogJoiner:
    """Takes the ranges of a log one after the other; keeps no more than the tails of what went before."""

    def __init__(self) -> None:
        self._content = LogContent()
        self._counts: Counter[str] = Counter()
        self._processes: dict[tuple[str, int], int] = {}
        self._last: dict[tuple[int, str], int] = {}
        self._ops: dict[str, int] = {}
        self._settings: set[tuple[int, str, str]] = set()
        self._inspected: dict[Any, int] = {}
        self._tails = CommTails()
        self._events, self._warnings = bounded_events.bounded_events(), bounded_events.bounded_warnings()
        self._problems: list[str] = []

    def add(self, part: LogContent) -> None:
        """Takes the next range, which is changed by it."""
        lines = self._counts["lines"]
        processes = np.array([self._process(row) for row in part.processes] or [0], np.int64)
        comms = self._comms(part, processes, lines)
        self._rows(part, comms, lines)
        self._tables(part, processes, lines)
        self._counts.update(part.counts)
        self._forget(kept_comms(self._content.comms))
        self.lost(part.problem)

    @property
    def lines(self) -> int:
        """How many lines the ranges had so far."""
        return self._counts["lines"]

    def lost(self, problem: str | None) -> None:
        """Says what could not be read of a range."""
        if problem and problem not in self._problems:
            self._problems.append(problem)

    def copy(self) -> LogJoiner:
        """Another one that goes on from here by itself."""
        other, content = LogJoiner(), self._content
        other._content = replace(
            content, processes=list(content.processes), comms=list(content.comms), settings=list(content.settings),
            ras=list(content.ras), inspected=list(content.inspected),
        )  # fmt: skip
        other._events, other._warnings = self._events.copy(), self._warnings.copy()
        other._counts, other._processes, other._last = self._counts.copy(), self._processes.copy(), self._last.copy()
        other._ops, other._settings, other._inspected = self._ops.copy(), self._settings.copy(), self._inspected.copy()
        other._tails, other._problems = self._tails.copy(), self._problems.copy()
        return other

    def done(self) -> LogContent:
        """The whole log."""
        content = self._content
        content.ops, counts = list(self._ops), self._counts.copy()
        content.events, content.warnings = self._events.done(), self._warnings.done()
        for rows in (self._events, self._warnings):
            counts.update(rows.left_out())
        content.counts = dict(counts)
        content.comms, content.numbers, content.codes = self._tails.done(content.comms)
        content.problem = "; ".join(self._problems) or None
        move_phantoms(content)
        return content

    def _process(self, row: LogWriter) -> int:
        rows = self._content.processes
        at = self._processes.setdefault((row.host, row.pid), len(rows))
        if at == len(rows):
            rows.append(row)
            return at
        known = rows[at]
        rows[at] = known._replace(
            rank=row.rank if known.rank is None else known.rank, label=known.label or row.label,
            torn_at=row.torn_at if known.torn_at is None else known.torn_at, records=known.records + row.records,
            glued=known.glued and row.glued, device=row.device if known.device is None else known.device,
        )  # fmt: skip
        return at

    def _comms(self, part: LogContent, processes: np.ndarray[Any, Any], lines: int) -> list[int]:
        """Where each communicator of a range has its row."""
        rows = self._content.comms
        at: list[int] = []
        for row in part.comms:
            key = (int(processes[row.process]), row.pointer)
            parent = None if row.parent_comm is None else at[row.parent_comm] if row.parent_comm < len(at) else None
            moved = row._replace(process=key[0], line=row.line + lines, parent_comm=parent)
            if row.parent and parent is None:
                moved = moved._replace(parent_comm=self._last.get((key[0], row.parent)))
            before = self._last.get(key)
            if before is not None and is_continued(rows[before], row):
                rows[before] = join_contents(rows[before], moved)
                at.append(before)
                continue
            self._last[key] = len(rows)
            at.append(len(rows))
            rows.append(moved)
        return at

    def _forget(self, kept_rows: list[int] | None) -> None:
        """Lets go of all communicators but some."""
        rows = self._content.comms
        if kept_rows is None:
            return
        moved = {at: i for i, at in enumerate(kept_rows)}
        self._counts[bounded_events.left_out("communicator")] += len(rows) - len(moved)
        self._last = {key: moved[at] for key, at in self._last.items() if at in moved}
        self._tails.move(moved)
        self._content.comms = [
            row._replace(parent_comm=None if row.parent_comm is None else moved.get(row.parent_comm))
            for row in (rows[at] for at in kept_rows)
        ]  # fmt: skip

    def _rows(self, part: LogContent, comms: list[int], lines: int) -> None:
        if not part.numbers.shape[1]:
            return
        names = np.array([self._ops.setdefault(op, len(self._ops)) for op in part.ops] or [0], np.int32)
        part.numbers[NUMBERS.index("line")] += lines
        part.codes[CODES.index("op")] = names[part.codes[CODES.index("op")]]
        self._tails.add(part.numbers, part.codes, list(self._ops), comms)

    def _tables(self, part: LogContent, processes: np.ndarray[Any, Any], lines: int) -> None:
        content = self._content
        for setting in part.settings:
            process = int(processes[setting.process]) if setting.process >= 0 else -1
            key = process, setting.name, setting.value
            if key not in self._settings and len(self._settings) < MOST_SETTINGS:
                self._settings.add(key)
                content.settings.append(setting._replace(process=process, line=setting.line + lines))
        self._warnings.add(
            [w._replace(process=int(processes[w.process]), line=w.line + lines) for w in part.warnings]
        )  # fmt: skip
        # what it said last is what it found last
        content.ras = [*content.ras, *(row._replace(line=row.line + lines) for row in part.ras)][-MOST_RAS:]
        self._events.add([event._replace(line=event.line + lines) for event in part.events])
        self._sums(part)

    def _sums(self, part: LogContent) -> None:
        content = self._content
        for row in part.inspected:
            key = (row.comm, row.rank, row.host, row.pid, row.op)
            if key not in self._inspected and len(self._inspected) >= MOST_INSPECTED:
                continue
            at = self._inspected.setdefault(key, len(content.inspected))
            if at == len(content.inspected):
                content.inspected.append(row)
                continue
            known = content.inspected[at]
            content.inspected[at] = known._replace(
                rows=known.rows + row.rows, first_seq=min(known.first_seq, row.first_seq),
                last_seq=max(known.last_seq, row.last_seq), total_us=known.total_us + row.total_us,
                slowest_us=max(known.slowest_us, row.slowest_us), dumped_us=max(known.dumped_us, row.dumped_us),
            )  # fmt: skip


def is_continued(before: Comm, row: Comm) -> bool:
    """Whether a communicator seen in a range is one that lived on from an earlier range."""
    if before.state in END_STATES or row.start_offset is not None:
        return False
    return not row.init or before.state == "start"


def join_contents(before: Comm, row: Comm) -> Comm:
    """The communicator with what a later range tells of it, without its counts."""
    keep = ("process", "pointer", "offset", "line", "init", "state", "fingerprints", "collectives", "p2p")
    told = {
        name: value
        for name, value in row._asdict().items()
        if name not in keep and value not in (None, "") and getattr(before, name) in (None, "")
    }
    state = before.state if row.state == "seen" else row.state
    return before._replace(**told, state=state, init=before.init or row.init)


# Communicators that are gone: a job that makes and destroys them all day must not fill the memory with them.

MOST_COMMS = 20_000
"""With more of one log, those that ended first are forgotten."""


def kept_comms(rows: Sequence[Comm]) -> list[int] | None:
    """Which of the communicators of a log, in its order, are kept; None for all.

    Kept are those that live, of each process the first of each size, by which ranks are told, and splits whose place is
    only known by counting those before them.
    """
    if len(rows) <= MOST_COMMS:
        return None
    last = {(row.process, row.pointer): at for at, row in enumerate(rows)}
    first: dict[tuple[int, int | None], int] = {}
    for at, row in enumerate(rows):
        first.setdefault((row.process, row.nranks), at)
    spared = {*first.values(), *(row.parent_comm for row in rows if row.parent_comm is not None)}
    gone = [
        at for at, row in enumerate(rows)
        if (row.state in END_STATES or last[row.process, row.pointer] != at) and at not in spared
        and not (row.parent and row.split is None)
    ]  # fmt: skip
    dropped = {*gone[: len(rows) - MOST_COMMS // 2]}
    return [at for at in range(len(rows)) if at not in dropped] if dropped else None


# A log that grows, as far as it was read: what is firm is joined once, the last lines each time anew.


class GrowingLog:
    """Takes stretches of one log in order. Memory is that of one log however often it is read on."""

    def __init__(self) -> None:
        self._firm = LogJoiner()
        self._loose: LogContent | None = None
        self.start, self.mark = 0, ""
        """From where on it is to be read next, and what stands before that."""
        self.end = 0
        """Up to where it was read."""
        self._told: LogContent | None = None
        """All that it said when it was asked last."""
        self._is_told = False
        """Nothing was added since then that tells anything."""

    def add(self, content: LogContent, stretch: LogStretch) -> None:
        """Takes a stretch, which begins at `start` or, of another file in the place of this one, at 0."""
        if stretch.start != self.start:
            self.__init__()  # type: ignore[misc]
        silent = _is_silent(content) and (self._loose is None or _is_silent(self._loose))
        self._is_told = self._is_told and silent
        self._loose, self.end = None, stretch.end
        if stretch.firm:
            self._firm.add(content)
            self.start, self.mark = stretch.end, stretch.mark
        else:
            self._loose = content

    def content(self) -> LogContent:
        """All of it so far; the very same as last time if more lines are all that is new."""
        if self._told is not None and self._is_told:
            return self._told
        joiner = self._firm.copy()
        if self._loose is not None:
            joiner.add(_own(self._loose))
        content = joiner.done()
        if self._told is None or not _says_same(self._told, content):
            self._told = content
        self._is_told = True
        return self._told


def _own(content: LogContent) -> LogContent:
    """A copy for the joiner, which changes what it is given."""
    return replace(content, numbers=content.numbers.copy(), codes=content.codes.copy())


def _is_silent(content: LogContent) -> bool:
    """Whether a stretch has nothing but lines of which nothing is kept."""
    tables = (getattr(content, name) for name in _COMPARED if name != "ranged")
    return not content.numbers.shape[1] and not any(tables) and not any(_told(content).values())


def _says_same(one: LogContent, other: LogContent) -> bool:
    """Whether two contents differ in nothing but how many lines there are of which nothing is kept."""
    return (
        np.array_equal(one.numbers, other.numbers)
        and np.array_equal(one.codes, other.codes)
        and _told(one) == _told(other)
        and all(getattr(one, name) == getattr(other, name) for name in _COMPARED)
    )


_COMPARED = [field.name for field in fields(LogContent) if field.name not in ("numbers", "codes", "counts", "_packed")]
_LINES = ("lines", "records")


def _told(content: LogContent) -> dict[str, int]:
    return {name: count for name, count in content.counts.items() if name not in _LINES}
