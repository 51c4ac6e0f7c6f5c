"""The time that everything here which judges time goes by: one clock, handed to it, so that a test can turn its own."""

from __future__ import annotations

from time import monotonic_ns, time_ns

from rankscope.watching.wake import Wake


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

    def wait(self, wake: Wake, until: float) -> None:
        """Returns when the clock reads `until`, in the seconds of `now`, or as soon as somebody wakes who waits."""
        wake.wait(max(0.0, until - self.now()))


CLOCK = Clock()
"""The clock that is taken where none is given."""
