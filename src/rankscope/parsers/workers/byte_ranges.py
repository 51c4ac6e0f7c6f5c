"""Ranges of large logs and traces, joined as their results arrive."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from rankscope.kinds.input_kinds import LOG, TRACE, UNKNOWN
from rankscope.parsers.contents import DecodedFile, NotThisKindError
from rankscope.parsers.workers.pool import ARCHIVE_SUFFIXES, Result

if TYPE_CHECKING:
    from rankscope.features.logs.read.model import LogContent
    from rankscope.features.logs.read.stretches import LogJoiner
    from rankscope.features.traces.read.model import TraceContent


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
        self._joiner: LogJoiner | None = None
        self._trace: list[TraceContent] = []
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
            for one in self._results.pop(self._next):
                self._join(one)
            self._next += 1
        return None if self.left else self._whole(result)

    def _join(self, result: Result) -> None:
        if result.kind == TRACE.name and _is_ranged(result.decoded):
            self._trace.append(cast("TraceContent", result.decoded))
        elif result.kind == LOG.name and _is_ranged(result.decoded):
            from rankscope.features.logs.read.stretches import LogJoiner

            self._joiner = self._joiner or LogJoiner()
            self._joiner.add(cast("LogContent", result.decoded))
        elif result.kind is not None:
            self._other = self._other or result
            self._problems.append(f"range {result.task.part + 1} of {result.task.parts}: {result.problem}")

    def _whole(self, last: Result) -> Result:
        if self._trace:
            from rankscope.features.traces.read.range_joiner import join_ranges

            try:
                trace = join_ranges(self._trace, self._problems)
            except NotThisKindError as error:
                return replace(last, kind=UNKNOWN.name, problem=str(error), decoded=None)
            return replace(last, kind=TRACE.name, problem=trace.problem, decoded=trace)
        if self._joiner is None:
            return self._other or last
        for problem in self._problems:
            self._joiner.lost(problem)
        content = self._joiner.result()
        return replace(last, kind=LOG.name, problem=content.problem, decoded=content)


def _is_ranged(decoded: DecodedFile | None) -> bool:
    """Whether it is one of several ranges; only logs and traces have ranges."""
    return bool(getattr(decoded, "ranged", False))
