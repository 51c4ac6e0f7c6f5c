"""Ranges of large files, joined as their results arrive."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from rankscope.kinds.functions import function
from rankscope.kinds.input_kinds import INPUTS, UNKNOWN
from rankscope.parsers.contents import DecodedFile, Joiner, NotThisKindError
from rankscope.parsers.workers.pool import ARCHIVE_SUFFIXES, Result


class FileRanges:
    """Holds back results of files that are read in ranges, until a file is complete."""

    def __init__(self) -> None:
        self._files: dict[str, _RangedFile] = {}

    def add(self, result: Result) -> Result | None:
        """The complete result: this one, a whole file, or None."""
        task = result.task
        if task.parts == 1 or result.inner or task.found.shown.endswith(ARCHIVE_SUFFIXES):
            return result
        file = self._files.setdefault(task.found.path, _RangedFile(task.parts))
        whole = file.add(result)
        if file.left == 0:
            del self._files[task.found.path]
        return whole


class _RangedFile:
    """One file: joins its ranges in order, and keeps ranges that arrive early."""

    def __init__(self, parts: int) -> None:
        self.left = parts
        self._next = 0
        self._results: defaultdict[int, list[Result]] = defaultdict(list)
        self._ended: set[int] = set()
        self._joiners: dict[str, Joiner] = {}
        """The joiner by the kind of the ranges; of several kinds, the first row of the table is that of the file."""
        self._other: Result | None = None
        self._problems: list[str] = []

    def add(self, result: Result) -> Result | None:
        """Takes the result of a range; returns the whole file with the last one."""
        self._results[result.task.part].append(result)
        if not result.last:
            return None
        self.left -= 1
        self._ended.add(result.task.part)
        while self._next in self._ended:
            for part in self._results.pop(self._next):
                self._join(part)
            self._next += 1
        return None if self.left else self._whole(result)

    def _join(self, result: Result) -> None:
        if result.kind is None:
            return
        join = INPUTS[result.kind].join
        if join and _is_ranged(result.decoded):
            if result.kind not in self._joiners:
                self._joiners[result.kind] = function(join)()
            self._joiners[result.kind].add(result.decoded)
            return
        self._other = self._other or result
        self._problems.append(f"range {result.task.part + 1} of {result.task.parts}: {result.problem}")

    def _whole(self, last: Result) -> Result:
        kind = next((name for name in INPUTS if name in self._joiners), None)
        if kind is None:
            return self._other or last
        joiner = self._joiners[kind]
        for problem in self._problems:
            joiner.lost(problem)
        try:
            content = joiner.result()
        except NotThisKindError as error:
            return replace(last, kind=UNKNOWN.name, problem=str(error), decoded=None)
        return replace(last, kind=kind, problem=content.problem, decoded=content)


def _is_ranged(decoded: DecodedFile | None) -> bool:
    """Whether it is one of several ranges."""
    return bool(getattr(decoded, "ranged", False))
