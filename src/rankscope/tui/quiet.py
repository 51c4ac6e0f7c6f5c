"""The time without keys in which to search all objects for cycles: that search holds up every key."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


QUIET_S = 0.25
"""Seconds without a key after which another key is not likely soon."""
EVERY_S = 30.0
"""Seconds between two searches in quiet times: drawing leaves cycles, about 10 kB for each key."""
LONGEST_S = 300.0
"""Seconds after which a search runs even if keys never stop."""


class Quiet:
    """Times of the last key and of the last search, in seconds of a monotonic clock."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._pressed_at = self._searched_at = clock()

    def pressed(self) -> None:
        """Notes that a key or the mouse was used."""
        self._pressed_at = self._clock()

    @property
    def is_due(self) -> bool:
        """Whether to search now."""
        now = self._clock()
        quiet, since = now - self._pressed_at, now - self._searched_at
        return since >= LONGEST_S or (quiet >= QUIET_S and since >= EVERY_S)

    def search(self) -> bool:
        """Frees objects in cycles if a search is due; returns whether it was."""
        due = self.is_due
        if due:
            gc.collect()
            self._searched_at = self._clock()
        return due
