"""Lines of NCCL that are counted and no more, but for the last of each thread: an error can follow its text."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

from rankscope.parsers.logs.fronts import Fronts, without_time
from rankscope.parsers.logs.nccl.blocks import Lines
from rankscope.parsers.logs.nccl.bulk import KINDS, Bulk, Shapes, bulk_rows
from rankscope.parsers.logs.nccl.comms import Processes
from rankscope.parsers.logs.nccl.words import PAD, Mask, Places

MOST_THREADS = 256
_OTHER = KINDS["other"]


class Said(NamedTuple):
    """A line."""

    text: bytes
    offset: int
    number: int


class Unheard:
    """Takes such lines from those that are read, many at once or one by one."""

    def __init__(self, shapes: Shapes, fronts: Fronts, processes: Processes, counts: Counter[str]) -> None:
        self._shapes, self._fronts, self._processes, self._counts = shapes, fronts, processes, counts
        self._last: defaultdict[int, dict[bytes, Said]] = defaultdict(dict)
        """By process the last such line of each thread."""

    def many(self, lines: Lines, slow: Mask, place: tuple[int, int]) -> list[tuple[int, bytes, Said]]:
        """Takes lines of a block at an offset and a line from the `slow` ones.

        Returns process, front and line of what is to be kept once the others are read: see `keep`.
        """
        found = bulk_rows(lines, slow, self._shapes)
        if found is None:
            return []
        if found.has_calls:
            # what a thread said last is needed in the middle of the block
            found = _only(found, found.kind != _OTHER)
        known = [self._fronts.of(text, place[0] + at) for text, at in found.fronts]
        taken: Mask = np.array([front is not None for front in known], np.bool_)[found.group]
        for front, count in zip(known, np.bincount(found.group, minlength=len(known)).tolist(), strict=True):
            if front is not None:
                self._processes.count(front.process, count)
        for name, kind in KINDS.items():
            self._count(name, int((taken & (found.kind == kind)).sum()))
        slow[found.line[taken]] = False
        return [
            (front.process, found.fronts[group][0], _said(lines, line, place))
            for group, line in _lasts(_only(found, found.kind == _OTHER))
            if (front := known[group]) is not None
        ]

    def keep(self, said: list[tuple[int, bytes, Said]]) -> None:
        """Keeps the last lines of the threads of a block."""
        for process, front, line in said:
            self._keep(process, front, line)

    def one(self, kind: str, process: int, front: bytes, line: Said) -> None:
        """Takes a single line of some `KINDS`."""
        self._processes.count(process, 1)
        self._count(kind, 1)
        if kind == "other":
            self._keep(process, without_time(front)[0], line)

    def take(self, process: int) -> list[Said]:
        """The last lines of the threads of a process, which are forgotten."""
        return list(self._last.pop(process, {}).values())

    def _count(self, kind: str, lines: int) -> None:
        for name in ("records", "INFO", kind) if lines else ():
            self._counts[name] += lines

    def _keep(self, process: int, front: bytes, line: Said) -> None:
        threads = self._last[process]
        known = threads.get(front)
        if known is None and len(threads) >= MOST_THREADS:
            threads.clear()
        if known is None or known.offset < line.offset:
            threads[front] = line


def _only(found: Bulk, which: Mask) -> Bulk:
    return found._replace(line=found.line[which], kind=found.kind[which], group=found.group[which])


def _lasts(found: Bulk) -> list[tuple[int, int]]:
    """Each group with its last line."""
    groups, last = np.unique(found.group[::-1], return_index=True)
    lines: Places = found.line[::-1][last]
    return list(zip(groups.tolist(), lines.tolist(), strict=True))


def _said(lines: Lines, line: int, place: tuple[int, int]) -> Said:
    start, end = int(lines.places[line]) + 1, int(lines.places[line + 1])
    return Said(bytes(lines.padded[start:end]), place[0] + start - PAD, place[1] + line)
