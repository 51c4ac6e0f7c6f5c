"""A log that grows, as far as it was read: what is firm is joined once, the last lines each time anew."""

from __future__ import annotations

from dataclasses import replace

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

    def add(self, content: LogContent, stretch: Stretch) -> None:
        """Takes a stretch, which begins at `start` or, of another file in the place of this one, at 0."""
        if stretch.start != self.start:
            self.__init__()  # type: ignore[misc]
        self._loose, self.end = None, stretch.end
        if stretch.firm:
            self._firm.add(content)
            self.start, self.mark = stretch.end, stretch.mark
        else:
            self._loose = content

    def content(self) -> LogContent:
        """All of it so far."""
        joiner = self._firm.copy()
        if self._loose is not None:
            joiner.add(_own(self._loose))
        return joiner.done()


def _own(content: LogContent) -> LogContent:
    """A copy for the joiner, which changes what it is given."""
    return replace(content, numbers=content.numbers.copy(), codes=content.codes.copy())
