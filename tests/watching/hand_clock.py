"""A clock for what follows a job that only a test turns: how fast the machine is decides nothing by it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rankscope.watching.clock import Clock, WakeSignal

PATIENCE_S = 600.0
"""So long a test waits for a state that has to come: minutes, for a machine may be busy."""
BEGIN_NS = 10**12


class HandClock(Clock):
    """Stands still until somebody turns it. One thread may wait by it."""

    def __init__(self) -> None:
        self._passed_ns, self._begin_unix_ns = 0, time.time_ns()
        self._changed = threading.Condition()
        self._wake: WakeSignal | None = None
        """Of the thread that waits, or has waited last."""
        self._waits = 0
        """How often a thread has begun to wait because nothing was due."""

    def now_ns(self) -> int:
        """Nanoseconds that were turned, from a beginning that is not 0."""
        return BEGIN_NS + self._passed_ns

    def unix_ns(self) -> int:
        """The time at which it was made, and what was turned."""
        return self._begin_unix_ns + self._passed_ns

    def wait(self, wake: WakeSignal, until: float) -> None:
        """Until the clock is turned or somebody wakes the thread, unless it reads `until` already."""
        with self._changed:
            self._wake = wake
            if self.now() >= until:
                return
            self._waits += 1
            self._changed.notify_all()
        wake.wait(PATIENCE_S)

    def turn(self, seconds: float) -> None:
        """Lets time pass."""
        with self._changed:
            self._passed_ns += round(seconds * 1e9)
        self.wake()

    def wake(self) -> None:
        """Wakes the thread, which finds what it finds: how following goes is told only when it wakes the next time."""
        with self._changed:
            if self._wake is not None:
                self._wake.set()

    def rest(self, is_busy: Callable[[], bool]) -> None:
        """Returns once the thread has done all that is due by now, and nobody is busy for it."""
        end = time.monotonic() + PATIENCE_S
        self._until_it_waits(end)
        self._until_it_waits(end)
        while is_busy():
            self._until_it_waits(end)

    def _until_it_waits(self, end: float) -> None:
        """Wakes the thread, and returns once it has found nothing to do."""
        with self._changed:
            before = self._waits
            self.wake()
            came = self._changed.wait_for(lambda: self._waits > before, end - time.monotonic())
            assert came, "the thread that follows does not come to rest"
