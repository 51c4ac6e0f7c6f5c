"""A log that grows, as far as it was read: what is firm is joined once, the last lines each time anew."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from rankscope.parsers.decoded import Stretch
from rankscope.parsers.logs.growth import Growth
from rankscope.parsers.logs.join import Joiner
from rankscope.parsers.logs.model import LogContent


class Growing:
    """Takes stretches of one log in order. Memory is that of one log however often it is read on."""

    def __init__(self) -> None:
        self._firm = Joiner()
        self._loose: LogContent | None = None
        self.start, self.mark = 0, ""
        """From where on it is to be read next, and what stands before that."""
        self.end = 0
        """Up to where it was read."""
        self._told: LogContent | None = None
        """What it said last."""
        self._is_told = False
        """Nothing was added since then that tells anything."""
        self._growth: Growth | None = None
        """What was added since then."""
        self._more: LogContent | None = None
        """What was said last of that."""
        self._more_is_told = False
        """Nothing was added since then either."""

    def add(self, content: LogContent, stretch: Stretch) -> None:
        """Takes a stretch, which begins at `start` or, of another file in the place of this one, at 0."""
        if stretch.start != self.start:
            self.__init__()  # type: ignore[misc]
        silent = _is_silent(content) and (self._loose is None or _is_silent(self._loose))
        self._is_told, self._more_is_told = self._is_told and silent, self._more_is_told and silent
        self._loose, self.end = None, stretch.end
        if stretch.firm:
            if self._growth is not None:
                self._growth.add(content, self._firm.lines)
            self._firm.add(content)
            self.start, self.mark = stretch.end, stretch.mark
        else:
            self._loose = content

    def told(self) -> tuple[LogContent, LogContent | None]:
        """What `content` said last, and what is more by now, if more operations are all that is new.

        All of it and None otherwise. What is more is the very same as last time if nothing has come since.
        """
        if self._told is not None and not self._is_told and self._growth is not None:
            if not self._more_is_told:
                more = self._growth.more(self._loose, self._firm.lines)
                self._more = self._more if more is not None and _same_rows(self._more, more) else more
                self._more_is_told = True
            if self._more is not None:
                return self._told, self._more if self._more.numbers.shape[1] or self._more.events else None
        return self.content(), None

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
        self._is_told, self._more, self._more_is_told = True, None, False
        self._growth = Growth(self._told, self._loose, self.end, self._firm.lines)
        return self._told


def _own(content: LogContent) -> LogContent:
    """A copy for the joiner, which changes what it is given."""
    return replace(content, numbers=content.numbers.copy(), codes=content.codes.copy())


def _is_silent(content: LogContent) -> bool:
    """Whether a stretch has nothing but lines of which nothing is kept."""
    tables = (getattr(content, name) for name in _COMPARED if name != "ranged")
    return not content.numbers.shape[1] and not any(tables) and not any(_told(content).values())


def _same_rows(one: LogContent | None, other: LogContent) -> bool:
    """Whether two contents have the same operations and events."""
    same = one is not None and np.array_equal(one.numbers, other.numbers)
    return one is not None and same and np.array_equal(one.codes, other.codes) and one.events == other.events


def _says_same(one: LogContent, other: LogContent) -> bool:
    """Whether two contents differ in nothing but how many lines there are of which nothing is kept."""
    return (
        _same_rows(one, other)
        and _told(one) == _told(other)
        and all(getattr(one, n) == getattr(other, n) for n in _COMPARED)
    )


_COMPARED = [field.name for field in fields(LogContent) if field.name not in ("numbers", "codes", "counts", "_packed")]
_LINES = ("lines", "records")


def _told(content: LogContent) -> dict[str, int]:
    return {name: count for name, count in content.counts.items() if name not in _LINES}
