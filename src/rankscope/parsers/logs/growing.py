"""A log that grows, as far as it was read: what is firm is joined once, the last lines each time anew."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from rankscope.parsers.decoded import Stretch
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
        """All that it said when it was asked last."""
        self._is_told = False
        """Nothing was added since then that tells anything."""

    def add(self, content: LogContent, stretch: Stretch) -> None:
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
