"""Join of the stretches of one log, which were decoded separately, in their order.

Of a growing log, firm stretches are joined once, the last lines each time again. A job that makes and destroys
communicators all day must not fill the memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import polars as pl

from rankscope.features.logs.read import bounded_rows
from rankscope.features.logs.read.bounded_rows import CommTails, move_phantoms
from rankscope.features.logs.read.comm_lives import END_STATES
from rankscope.features.logs.read.model import CODES, MOST_SETTINGS, NUMBERS, Comm, LogContent, LogWriter
from rankscope.features.logs.read.ras_output import MOST_ROWS as MOST_INSPECTED
from rankscope.features.logs.read.ras_output import MOST_ROWS as MOST_RAS
from rankscope.parsers.contents import LogStretch


class LogJoiner:
    """Takes the ranges of a log one after the other; keeps only the tails of earlier ranges."""

    def __init__(self) -> None:
        self._content = LogContent()
        self._counts: Counter[str] = Counter()
        self._processes: dict[tuple[str, int], int] = {}
        self._last: dict[tuple[int, str], int] = {}
        self._ops: dict[str, int] = {}
        self._settings: set[tuple[int, str, str]] = set()
        self._inspected: dict[Any, int] = {}
        self._tails = CommTails()
        self._training: list[pl.DataFrame] = []
        self._events, self._warnings = bounded_rows.bounded_events(), bounded_rows.bounded_warnings()
        self._problems: list[str] = []

    def add(self, part: LogContent) -> None:
        """Takes the next range, and changes it."""
        lines = self._counts["lines"]
        processes = np.array([self._process(row) for row in part.processes] or [0], np.int64)
        comms = self._comms(part, processes, lines)
        if part.numbers.shape[1]:
            names = np.array([self._ops.setdefault(op, len(self._ops)) for op in part.ops] or [0], np.int32)
            part.numbers[NUMBERS.index("line")] += lines
            part.codes[CODES.index("op")] = names[part.codes[CODES.index("op")]]
            self._tails.add(part.numbers, part.codes, list(self._ops), comms)
        self._tables(part, processes, lines)
        if part.training is not None:
            self._training.append(part.training.with_columns(pl.col("line") + lines))
        self._counts.update(part.counts)
        self._forget(kept_comms(self._content.comms))
        self.lost(part.problem)

    @property
    def lines(self) -> int:
        """The number of lines so far."""
        return self._counts["lines"]

    def lost(self, problem: str | None) -> None:
        """Notes the part of a range that could not be read."""
        if problem and problem not in self._problems:
            self._problems.append(problem)

    def copy(self) -> LogJoiner:
        """A copy that continues independently."""
        other, content = LogJoiner(), self._content
        other._content = replace(
            content,
            processes=list(content.processes),
            comms=list(content.comms),
            settings=list(content.settings),
            ras=list(content.ras),
            inspected=list(content.inspected),
        )
        other._events, other._warnings = self._events.copy(), self._warnings.copy()
        other._counts, other._processes, other._last = self._counts.copy(), self._processes.copy(), self._last.copy()
        other._ops, other._settings, other._inspected = self._ops.copy(), self._settings.copy(), self._inspected.copy()
        other._tails, other._problems = self._tails.copy(), self._problems.copy()
        other._training = list(self._training)
        return other

    def result(self) -> LogContent:
        """The content of the whole log."""
        content = self._content
        content.ops, counts = list(self._ops), self._counts.copy()
        content.events, content.warnings = self._events.result(), self._warnings.result()
        for rows in (self._events, self._warnings):
            counts.update(rows.left_out())
        content.counts = dict(counts)
        content.comms, content.numbers, content.codes = self._tails.result(content.comms)
        content.training = pl.concat(self._training) if self._training else None
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
            rank=row.rank if known.rank is None else known.rank,
            label=known.label or row.label,
            torn_at=row.torn_at if known.torn_at is None else known.torn_at,
            records=known.records + row.records,
            glued=known.glued and row.glued,
            device=row.device if known.device is None else known.device,
        )
        return at

    def _comms(self, part: LogContent, processes: np.ndarray[Any, Any], lines: int) -> list[int]:
        """The row of each communicator of a range."""
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
        """Drops all communicators but some."""
        rows = self._content.comms
        if kept_rows is None:
            return
        moved = {at: i for i, at in enumerate(kept_rows)}
        self._counts[bounded_rows.left_out("communicator")] += len(rows) - len(moved)
        self._last = {key: moved[at] for key, at in self._last.items() if at in moved}
        self._tails.move(moved)
        self._content.comms = [
            row._replace(parent_comm=None if row.parent_comm is None else moved.get(row.parent_comm))
            for row in (rows[at] for at in kept_rows)
        ]

    def _tables(self, part: LogContent, processes: np.ndarray[Any, Any], lines: int) -> None:
        content = self._content
        for setting in part.settings:
            process = int(processes[setting.process]) if setting.process >= 0 else -1
            key = process, setting.name, setting.value
            if key not in self._settings and len(self._settings) < MOST_SETTINGS:
                self._settings.add(key)
                content.settings.append(setting._replace(process=process, line=setting.line + lines))
        self._warnings.add([w._replace(process=int(processes[w.process]), line=w.line + lines) for w in part.warnings])
        # the last rows of RAS are the newest
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
                rows=known.rows + row.rows,
                first_seq=min(known.first_seq, row.first_seq),
                last_seq=max(known.last_seq, row.last_seq),
                total_us=known.total_us + row.total_us,
                slowest_us=max(known.slowest_us, row.slowest_us),
                dumped_us=max(known.dumped_us, row.dumped_us),
            )


def is_continued(before: Comm, row: Comm) -> bool:
    """Whether a communicator of a range continues one of an earlier range."""
    if before.state in END_STATES or row.start_offset is not None:
        return False
    return not row.init or before.state == "start"


def join_contents(before: Comm, row: Comm) -> Comm:
    """The communicator with the values of a later range, without its counts."""
    keep = ("process", "pointer", "offset", "line", "init", "state", "fingerprints", "collectives", "p2p")
    facts = {
        name: value
        for name, value in row._asdict().items()
        if name not in keep and value not in (None, "") and getattr(before, name) in (None, "")
    }
    state = before.state if row.state == "seen" else row.state
    return before._replace(**facts, state=state, init=before.init or row.init)


MOST_COMMS = 20_000
"""Most communicators of one log; with more, those that ended first are dropped."""


def kept_comms(rows: Sequence[Comm]) -> list[int] | None:
    """The kept communicators of a log, in order; None for all.

    These are the living ones, the first of each size of each process, which determine ranks, and splits whose place
    depends on counting those before them.
    """
    if len(rows) <= MOST_COMMS:
        return None
    last = {(row.process, row.pointer): at for at, row in enumerate(rows)}
    first: dict[tuple[int, int | None], int] = {}
    for at, row in enumerate(rows):
        first.setdefault((row.process, row.nranks), at)
    spared = {*first.values(), *(row.parent_comm for row in rows if row.parent_comm is not None)}
    gone = [
        at
        for at, row in enumerate(rows)
        if (row.state in END_STATES or last[row.process, row.pointer] != at)
        and at not in spared
        and not (row.parent and row.split is None)
    ]
    dropped = {*gone[: len(rows) - MOST_COMMS // 2]}
    return [at for at in range(len(rows)) if at not in dropped] if dropped else None


class GrowingLog:
    """Takes stretches of one log in order. It needs the memory of one log, however often the log is read on."""

    def __init__(self) -> None:
        self._firm = LogJoiner()
        self._loose: LogContent | None = None
        self.start, self.mark = 0, ""
        """The place of the next read, and the mark of the file up to there."""
        self.end = 0
        """The end of the part that was read."""
        self._told: LogContent | None = None
        """The content of the last answer."""
        self._is_told = False
        """Whether nothing relevant was added since the last answer."""

    def add(self, content: LogContent, stretch: LogStretch) -> None:
        """Takes a stretch, which begins at `start` or, for another file in its place, at 0."""
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
        """The whole content so far; the same object as last time if only irrelevant lines are new."""
        if self._told is not None and self._is_told:
            return self._told
        joiner = self._firm.copy()
        if self._loose is not None:
            # a copy for the joiner, which changes its input
            joiner.add(replace(self._loose, numbers=self._loose.numbers.copy(), codes=self._loose.codes.copy()))
        content = joiner.result()
        if self._told is None or not _says_same(self._told, content):
            self._told = content
        self._is_told = True
        return self._told


def _is_silent(content: LogContent) -> bool:
    """Whether a stretch has only lines that are not kept."""
    tables = (getattr(content, name) for name in _COMPARED_FIELDS if name != "ranged")
    return (
        not content.numbers.shape[1]
        and content.training is None
        and not any(tables)
        and not any(_told_counts(content).values())
    )


def _says_same(one: LogContent, other: LogContent) -> bool:
    """Whether two contents differ only in the number of lines that are not kept."""
    return (
        np.array_equal(one.numbers, other.numbers)
        and np.array_equal(one.codes, other.codes)
        and _told_counts(one) == _told_counts(other)
        and _says_same_steps(one.training, other.training)
        and all(getattr(one, name) == getattr(other, name) for name in _COMPARED_FIELDS)
    )


def _says_same_steps(one: pl.DataFrame | None, other: pl.DataFrame | None) -> bool:
    return one is other if one is None or other is None else one.equals(other)


_COMPARED_FIELDS = [
    field.name
    for field in fields(LogContent)
    if field.name not in ("numbers", "codes", "counts", "training", "_packed", "_training")
]
_LINES = ("lines", "records")


def _told_counts(content: LogContent) -> dict[str, int]:
    return {name: count for name, count in content.counts.items() if name not in _LINES}
