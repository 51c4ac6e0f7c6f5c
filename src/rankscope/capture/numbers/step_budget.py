"""Budget of time of the recording: which steps are recorded, so that they cost at most a share of the job.

All ranks have to record the same steps, and none waits for another one. So each rank records multiples of a power of
two: where two ranks measure other costs, the steps of the one are among those of the other.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field

BUDGET = 0.05
FIRST_STEPS = 3
"""Steps at the start that are always recorded: rules learn from two, and hold them against the third."""
SHORTEST, LONGEST = 16, 1 << 20
"""Steps from one recorded step to the next, both powers of two."""
_KEPT = 16


@dataclass
class StepBudget:
    """Measured times of steps, and which of them are recorded."""

    share: float = BUDGET
    """Largest share of the job's time that recorded steps may cost."""
    interval: int = SHORTEST
    """Steps from one recorded step to the next, a power of two."""
    _ended: float | None = None
    _plain: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    """Seconds of the last steps that were not recorded."""
    _recorded: deque[float] = field(default_factory=lambda: deque(maxlen=3))

    def allows(self, step: int) -> bool:
        """Whether a step is recorded."""
        return step < FIRST_STEPS or step % self.interval == 0

    def end_step(self, step: int, now: float, *, was_recorded: bool) -> None:
        """Takes the end of a step, in seconds of a clock, and chooses the interval anew."""
        begun, self._ended = self._ended, now
        if begun is None or step == 0:
            # the first step makes tables and memory
            return
        (self._recorded if was_recorded else self._plain).append(now - begun)
        if self._recorded and len(self._plain) > 1:
            plain = statistics.median(self._plain)
            # of the few first steps one may compile, and no other one is recorded for long if that counted
            extra = max(0.0, min(self._recorded) - plain)
            wanted = extra / (self.share * plain) if plain > 0 else LONGEST
            self.interval = SHORTEST
            while self.interval < min(wanted, LONGEST):
                self.interval *= 2
