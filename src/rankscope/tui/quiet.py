"""When nobody presses keys: the time to search all there is for cycles, which holds up every key meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import monotonic

QUIET_S = 5.0
"""So long after a key, there is time, ..."""
EVERY_S = 60.0
"""... so often it is used, ..."""
LONGEST_S = 3600.0
"""... and without any such time, all the same."""


class Quiet:
    """Knows when a key was pressed last, and when all was searched; in seconds of a clock that never goes back."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._pressed_at = self._searched_at = clock()

    def pressed(self) -> None:
        """Somebody has pressed a key or used the mouse."""
        self._pressed_at = self._clock()

    @property
    def is_due(self) -> bool:
        """Whether to search now."""
        now = self._clock()
        quiet, since = now - self._pressed_at, now - self._searched_at
        return since >= LONGEST_S or (quiet >= QUIET_S and since >= EVERY_S)

    def search(self) -> bool:
        """Takes away what only refers to itself, if it is time to; whether it was."""
        due = self.is_due
        if due:
            gc.collect()
            self._searched_at = self._clock()
        return due
