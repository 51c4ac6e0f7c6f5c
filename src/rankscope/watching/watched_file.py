"""One file that is followed: what was read of it, and what of it is still to be read."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from rankscope.assemble.sources import SourceFile
from rankscope.kinds.input_kinds import LOG, UNKNOWN
from rankscope.parsers.files.directory_walk import FoundPath
from rankscope.parsers.logs.stretches import GrowingLog
from rankscope.parsers.workers.pool import FileTail, Result, Task

if TYPE_CHECKING:
    from rankscope.parsers.contents import LogStretch
    from rankscope.parsers.logs.model import LogContent

FIRST_WAIT = 0.1
"""Seconds until a file that was not whole is read again; twice as long each time, ..."""
LONGEST_WAIT = 5.0
"""... up to this, ..."""
SMALL, SMALL_WAIT = 1 << 24, 0.8
"""... and of files up to so many bytes, which are quickly read again, up to that."""
SETTLED = 5.0
"""What is still damaged when a file has not changed for so many seconds is no longer being written."""
ENDED = 5.0
"""A log that has not grown for so many seconds may end without a line end."""


@dataclass
class Entry:
    """A file. Times are those of the monotonic clock, in seconds."""

    found: FoundPath
    """As it was last seen."""
    changed_at: float
    """When it was seen to have changed."""
    due: float | None
    """When it is to be read; None if it has been."""
    sources: tuple[SourceFile, ...] = ()
    """What was read of it, in the version that is shown."""
    log: GrowingLog | None = None
    asked: FoundPath | None = None
    """As it was when a worker was told to read it; None if none is."""
    held: tuple[SourceFile, ...] | None = None
    """What was read of a version that may not be whole: shown if nothing more comes."""
    read: tuple[int, int, int] | None = None
    """Size, time and inode of the version that was read last."""
    tries: int = 0
    parts: list[Result] = field(default_factory=list)
    """What has come of it, before its last result."""
    noticed_at: float | None = None
    """When the oldest change that is not shown yet was seen."""
    log_is_new: bool = False
    """More of a log was read than is in `sources`."""
    tail_open: bool = False
    """The last line of a log has no end yet."""
    is_replaced: bool = False
    """Another file has the place of a log, which has another name now or is gone: nothing was read of it yet."""

    def seen(self, found: FoundPath, now: float) -> None:
        """Takes a change: the file is to be read again, at once unless it was not whole just now."""
        self.is_replaced |= self.log is not None and found.inode != self.found.inode
        self.found, self.changed_at = found, now
        if self.asked is None and self.read == self.stamp:
            return  # it was read since
        self.noticed_at = now if self.noticed_at is None else self.noticed_at
        self.due = now + self._wait() if self.due is None else self.due

    def _wait(self) -> float:
        longest = SMALL_WAIT if self.found.size <= SMALL else LONGEST_WAIT
        return min(FIRST_WAIT * 2 ** (self.tries - 1), longest) if self.tries else 0.0

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Size, time and inode, as it was last seen."""
        return self.found.size, self.found.mtime_ns or 0, self.found.inode

    @property
    def is_unread(self) -> bool:
        """Whether nothing was ever read of it, not even to find it cut short."""
        untold = not self.sources and self.held is None and self.log is None
        return self.is_replaced or (untold and not self.is_shown)

    @property
    def is_shown(self) -> bool:
        """Whether all that is in it is in what is shown."""
        return self.due is None and self.asked is None and self.held is None

    def task(self, now: float) -> Task:
        """What a worker is to read now."""
        self.asked, self.due = self.found, None
        ended = now - self.changed_at >= ENDED
        start, mark = (self.log.start, self.log.mark) if self.log is not None else (0, "")
        return Task(self.found, tail=FileTail(start, mark, ended))

    def take(self, last: Result, now: float) -> bool:
        """Takes the last result of a reading; whether what is shown changes."""
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
        growing = self.log = self.log or GrowingLog()
        for one in stretches:
            growing.add(cast("LogContent", one.decoded), cast("LogStretch", one.stretch))
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
        """Keeps what may be half written, until it is whole or stays as it is."""
        self.held = sources
        if self.read is not None:
            self.tries += 1
        return self.settle(now)

    def settle(self, now: float) -> bool:
        """Shows what is not whole, once the file has not changed for long; whether it does."""
        if self.held is None or self.due is not None or self.asked is not None or now - self.changed_at < SETTLED:
            return False
        return self._show(self.held)

    def shown(self) -> tuple[SourceFile, ...]:
        """What is to be shown of it."""
        if self.log is not None and self.log_is_new:
            self.log_is_new = False
            self.sources = (self._of_log(self.log),)
        return self.sources

    def _of_log(self, log: GrowingLog) -> SourceFile:
        return SourceFile(self.found.shown, LOG.name, *self.stamp[:2], None, log.content())

    @property
    def next_at(self) -> float | None:
        """When there is something to do without any news; None if there is nothing."""
        if self.asked is not None:
            return None
        if self.due is not None:
            return self.due
        if self.held is not None:
            return self.changed_at + SETTLED
        return self.changed_at + ENDED if self.tail_open else None


def _kept(before: SourceFile | None, now: SourceFile) -> SourceFile:
    """With the content of the version before where it says the same: nothing has to be made of it again."""
    old, new = (before.content if before is not None else None), now.content
    if old is None or new is None or type(old) is not type(new) or old.header() != new.header():
        return now
    return replace(now, content=old) if old.body() == new.body() else now


def _source(result: Result, stamp: tuple[int, int, int] | None) -> SourceFile:
    """`stamp` is that of the version that was read."""
    found = result.task.found
    outer = (found.size, found.mtime_ns) if stamp is None else stamp[:2]
    size = outer[0] if result.size is None else result.size
    mtime_ns = outer[1] if result.mtime_ns is None else result.mtime_ns
    kind = result.kind or UNKNOWN.name
    return SourceFile(found.shown + result.inner, kind, size, mtime_ns, result.problem, result.decoded)
