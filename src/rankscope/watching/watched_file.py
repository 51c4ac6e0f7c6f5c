"""One followed file: its read contents, and the reading that is due."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from rankscope.assemble.sources import SourceFile
from rankscope.kinds.functions import function
from rankscope.kinds.input_kinds import LOG, TEXT, UNKNOWN
from rankscope.parsers.files.directory_walk import FoundPath
from rankscope.parsers.workers.pool import FileTail, Result, Task

if TYPE_CHECKING:
    from rankscope.parsers.contents import Growing, LogStretch

FIRST_WAIT_S = 0.1
"""Seconds until an incomplete file is read again; doubled each time,"""
LONGEST_WAIT_S = 5.0
"""up to this,"""
SMALL, SMALL_WAIT = 1 << 24, 0.8
"""and for files up to SMALL bytes up to SMALL_WAIT."""
SETTLED_S = 5.0
"""Seconds without a change after which a damaged file counts as no longer being written."""
ENDED_S = 5.0
"""Seconds without growth after which a log may end without a line end."""


@dataclass
class WatchedFile:
    """A followed file. Times are monotonic, in seconds."""

    found: FoundPath
    """The file as last seen."""
    changed_at: float
    """Time at which its last change was seen."""
    due: float | None
    """Time to read it; None if it is up to date."""
    sources: tuple[SourceFile, ...] = ()
    """Contents of the shown version."""
    log: Growing | None = None
    asked: FoundPath | None = None
    """The file as it was sent to a worker; None if it is not being read."""
    held: tuple[SourceFile, ...] | None = None
    """Contents of a possibly incomplete version, shown if no other comes."""
    read: tuple[int, int, int] | None = None
    """Size, time and inode of the version read last."""
    tries: int = 0
    parts: list[Result] = field(default_factory=list)
    """Partial results before the last one."""
    noticed_at: float | None = None
    """Time of the oldest change that is not shown yet."""
    log_is_new: bool = False
    """Whether more of a log was read than `sources` shows."""
    tail_open: bool = False
    """Whether the last line of a log has no end yet."""
    is_replaced: bool = False
    """Whether an unread file has taken the place of a log, which was renamed or deleted."""

    def seen(self, found: FoundPath, now: float) -> None:
        """Records a change: the file is read again, at once unless it was incomplete just now."""
        self.is_replaced |= self.log is not None and found.inode != self.found.inode
        self.found, self.changed_at = found, now
        if self.asked is None and self.read == self.stamp:
            return  # read since then
        self.noticed_at = now if self.noticed_at is None else self.noticed_at
        self.due = now + self._wait() if self.due is None else self.due

    def _wait(self) -> float:
        longest = SMALL_WAIT if self.found.size <= SMALL else LONGEST_WAIT_S
        return min(FIRST_WAIT_S * 2 ** (self.tries - 1), longest) if self.tries else 0.0

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Size, time and inode as last seen."""
        return self.found.size, self.found.mtime_ns or 0, self.found.inode

    @property
    def is_unread(self) -> bool:
        """Whether it was never read, not even in part."""
        untold = not self.sources and self.held is None and self.log is None
        return self.is_replaced or (untold and not self.is_shown)

    @property
    def is_shown(self) -> bool:
        """Whether the shown contents are complete."""
        return self.due is None and self.asked is None and self.held is None

    def task(self, now: float) -> Task:
        """The next task for a worker."""
        self.asked, self.due = self.found, None
        ended = now - self.changed_at >= ENDED_S
        start, mark = (self.log.start, self.log.mark) if self.log is not None else (0, "")
        return Task(self.found, tail=FileTail(start, mark, ended))

    def take(self, last: Result, now: float) -> bool:
        """Takes the last result of a reading; returns whether the shown contents change."""
        results, self.parts, self.asked = [*self.parts, last], [], None
        contents = [one for one in results if one.kind is not None]
        self.read = last.stamp
        self.is_replaced &= last.task.found.inode != self.found.inode
        if last.stamp is None:
            self.tries += 1
            self.due = now + self._wait()
        elif last.stamp == self.stamp:
            self.due = None
        stretches = [one for one in contents if one.stretch is not None]
        if stretches or (self.log is not None and not contents):
            return self._read_on(stretches, last)
        self.log, self.tail_open = None, False
        sources = tuple(_source(one, last.stamp) for one in contents)
        if last.stamp is not None and all(one.problem is None for one in sources):
            return self._show(sources)
        return self._hold(sources, now)

    def _read_on(self, stretches: list[Result], last: Result) -> bool:
        growing: Growing = self.log or function(TEXT.growing)()
        self.log = growing
        for one in stretches:
            growing.add(one.decoded, cast("LogStretch", one.stretch))
        if last.stamp is not None:
            self.tries, self.held = 0, None
        ended = last.task.tail is not None and last.task.tail.ended
        self.tail_open = not ended and growing.end < self.stamp[0]
        self.log_is_new = self.log_is_new or bool(stretches)
        return bool(stretches)

    def _show(self, sources: tuple[SourceFile, ...]) -> bool:
        known = {one.shown: one for one in self.sources}
        self.sources = tuple(_kept(known.get(one.shown), one) for one in sources)
        self.held, self.tries = None, 0
        return True

    def _hold(self, sources: tuple[SourceFile, ...], now: float) -> bool:
        """Holds possibly incomplete contents until the file is complete or stays unchanged."""
        self.held = sources
        if self.read is not None:
            self.tries += 1
        return self.settle(now)

    def settle(self, now: float) -> bool:
        """Shows incomplete contents of a file that has not changed for long; returns whether it did."""
        if self.held is None or self.due is not None or self.asked is not None or now - self.changed_at < SETTLED_S:
            return False
        return self._show(self.held)

    def shown(self) -> tuple[SourceFile, ...]:
        """The contents to show."""
        if self.log is not None and self.log_is_new:
            self.log_is_new = False
            self.sources = (self._of_log(self.log),)
        return self.sources

    def _of_log(self, log: Growing) -> SourceFile:
        return SourceFile(self.found.shown, LOG.name, *self.stamp[:2], None, log.content())

    @property
    def next_at(self) -> float | None:
        """The next time with work to do, even without changes; None without any."""
        if self.asked is not None:
            return None
        if self.due is not None:
            return self.due
        if self.held is not None:
            return self.changed_at + SETTLED_S
        return self.changed_at + ENDED_S if self.tail_open else None


def _kept(before: SourceFile | None, now: SourceFile) -> SourceFile:
    """The new version with the content object of the old one if they are equal, to avoid new derived data."""
    old, new = (before.content if before is not None else None), now.content
    if old is None or new is None or type(old) is not type(new) or old.header() != new.header():
        return now
    return replace(now, content=old) if old.body() == new.body() else now


def _source(result: Result, stamp: tuple[int, int, int] | None) -> SourceFile:
    """The source of a result; `stamp` is that of the version that was read."""
    found = result.task.found
    outer = (found.size, found.mtime_ns) if stamp is None else stamp[:2]
    size = outer[0] if result.size is None else result.size
    mtime_ns = outer[1] if result.mtime_ns is None else result.mtime_ns
    kind = result.kind or UNKNOWN.name
    return SourceFile(found.shown + result.inner, kind, size, mtime_ns, result.problem, result.decoded)
