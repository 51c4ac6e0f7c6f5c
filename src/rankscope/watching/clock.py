"""The time that everything here which judges time goes by: one clock, handed to it, so that a test can turn its own."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic_ns, time_ns


class Clock:
    """The clocks of the machine."""

    def now_ns(self) -> int:
        """Nanoseconds of a clock that never goes back."""
        return monotonic_ns()

    def now(self) -> float:
        """The same clock in seconds."""
        return self.now_ns() / 1e9

    def unix_ns(self) -> int:
        """Nanoseconds since 1970, as the times of files are told."""
        return time_ns()

    def wait(self, wake: WakeSignal, until: float) -> None:
        """Returns when the clock reads `until`, in the seconds of `now`, or as soon as somebody wakes who waits."""
        wake.wait(max(0.0, until - self.now()))


CLOCK = Clock()
"""The clock that is taken where none is given."""


# Waking a thread that waits, from any thread and from a signal handler.


class WakeSignal:
    """What can be set, and waited for.

    The handler of a signal runs in the main thread, wherever that is: if it is inside of an event, `Event.set` waits
    for a lock that is never given back. Putting into a SimpleQueue is reentrant (Python's documentation of `queue`).
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Ends the wait of now, or the next."""
        if self._calls.empty():
            self._calls.put(None)

    def wait(self, timeout_s: float) -> None:
        """Returns once it is set, or after the time; from then on it is not set any more."""
        with suppress(Empty):
            self._calls.get(timeout=timeout_s)
            while True:
                self._calls.get_nowait()
