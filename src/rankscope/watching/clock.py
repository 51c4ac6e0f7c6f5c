"""The clock of this package, passed as an argument so that tests can use their own."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic_ns, time_ns


class Clock:
    """The clocks of the machine."""

    def now_ns(self) -> int:
        """Monotonic time in nanoseconds."""
        return monotonic_ns()

    def now(self) -> float:
        """Monotonic time in seconds."""
        return self.now_ns() / 1e9

    def unix_ns(self) -> int:
        """Nanoseconds since 1970, as file times."""
        return time_ns()

    def wait(self, wake: WakeSignal, until: float) -> None:
        """Returns when the clock reads `until`, in the seconds of `now`, or as soon as `wake` is set."""
        wake.wait(max(0.0, until - self.now()))


CLOCK = Clock()
"""The default clock."""


# Waking of a waiting thread, from any thread and from a signal handler.


class WakeSignal:
    """A flag that one thread waits for.

    A signal handler runs in the main thread at any point: inside of an event, `Event.set` would wait for a lock that is
    never released. Putting into a SimpleQueue is reentrant (Python's documentation of `queue`).
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Ends the current wait, or the next one."""
        if self._calls.empty():
            self._calls.put(None)

    def wait(self, timeout_s: float) -> None:
        """Returns once it is set, or after the time; clears it."""
        with suppress(Empty):
            self._calls.get(timeout=timeout_s)
            while True:
                self._calls.get_nowait()
