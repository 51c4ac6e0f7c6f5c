"""Waking a thread that waits, from any thread and from a signal handler."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue


class Wake:
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
