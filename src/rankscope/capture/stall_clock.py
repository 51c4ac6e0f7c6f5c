"""Thread that sees a rank stand still, and takes the stacks of all of its threads once for each standstill."""

from __future__ import annotations

import sys
import threading
import time

from . import identity
from .fault_file import FaultFile
from .progress import issued
from .sampler import Sampler
from .thread_stacks import RUNS_SHARE, StillMoment, main_thread_seconds, take_stacks

STALL = "standstill"
_LOOKS = 12
"""Looks in the time after which a rank stands still."""
_LONGEST_PAUSE_S = 5.0
_DUMP_WAIT_S = 10.0
"""Longest wait for the dump that shows whether a recorder went on."""


class StallClock(threading.Thread):
    """The thread of the clock. It waits for no disk."""

    def __init__(self, sampler: Sampler, faults: FaultFile, stall_after: float) -> None:
        super().__init__(name="rankscope-stall", daemon=True)
        self._sampler = sampler
        self._faults = faults
        self._after = stall_after
        self._pause = min(stall_after / _LOOKS, _LONGEST_PAUSE_S)
        self._ended = threading.Event()
        self._sign: tuple[object, ...] = ()
        self._since = self._seen = time.monotonic()
        self._moved_again: float | None = None
        """When the rank went on after a standstill whose stacks are still kept; None without such stacks."""
        self.has_taken = False
        """Whether the stacks of this standstill are taken."""
        self._busy: float | None = None
        self._runs: bool | None = None
        """Whether the main thread ran most of the time between the last two looks."""

    def run(self) -> None:
        """Looks again and again, and winds the timer that goes off if it gets no turn."""
        if not self._faults.attach() and sys.platform == "linux":
            self._sampler.card.problem("no stacks while a call in C holds the interpreter's lock: no timer for it here")
        while True:
            self._faults.wind(self._after + self._pause)
            if self._ended.wait(self._pause):
                break
            try:
                self.look(time.monotonic())
            except Exception as error:  # noqa: BLE001 - no error here may reach the job
                self._sampler.card.problem(f"{type(error).__name__}: {error}")
        self._faults.detach()

    def stop(self) -> None:
        """Ends the thread at its next look."""
        self._ended.set()

    @property
    def moment(self) -> StillMoment:
        """The progress as it is known now."""
        still_s = round(time.monotonic() - self._since, 1) if self._after else None
        return StillMoment(self._after, still_s, self._runs)

    def look(self, now: float) -> None:
        """Compares the signs of progress with those of the last look, `now` on the monotonic clock."""
        self._measure(now)
        if not self._has_moved(now) and not self.has_taken and now - self._since >= self._after and self._is_awaited():
            # a recorder that the dumps of the interval have not shown for long may have gone on
            self._sampler.ask(STALL, False, min(self._after / 2, _DUMP_WAIT_S))
            if not self._has_moved(now):
                self._sampler.keep_stacks(take_stacks(STALL, self.moment))
                self._sampler.ask(STALL, False, 0.0)
                self.has_taken, self._moved_again = True, None
        if self._moved_again is not None and now - self._moved_again >= self._after:
            self._moved_again = None
            self._sampler.forget_stacks()

    def _has_moved(self, now: float) -> bool:
        before, self._sign = self._sign, (self._sampler.moves, self._sampler.memory.steps, *issued().items())
        if before == self._sign:
            return False
        if self._moved_again is None and self._faults.holds_stacks:
            self._moved_again = now
        self._since, self.has_taken = now, False
        return True

    def _is_awaited(self) -> bool:
        """Whether the rank is on its way to other ranks: it is not once it has destroyed its process groups."""
        return identity.initialized() or not self._sampler.card.groups

    def _measure(self, now: float) -> None:
        busy, before, since, self._seen = main_thread_seconds(), self._busy, self._seen, now
        self._busy = busy
        if None not in (busy, before) and now > since:
            self._runs = (busy - before) / (now - since) >= RUNS_SHARE  # type: ignore[operator]
