"""When what was written is judged with all the rest, and when it is only shown: few of many ranks change no answer.

Judging looks at every operation there is, so it would cost more the more is loaded, however little is new. While a job
goes on and few of its ranks have written anything, what they wrote is shown at once, and all of it is judged soon: at a
pace that follows from what judging takes, and not from how many updates there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from rankscope.analysis.live import Live
from rankscope.analysis.model import Analysis
from rankscope.analysis.said import holds_on, still_said

PART = 8
"""What more than one in so many ranks wrote is judged at once."""
SOON_NS = 2 * 10**9
"""And the rest so long after something was judged, ..."""
SELDOM = 4
"""... or so many times as long as that took, if this is longer."""


@dataclass(frozen=True)
class Glance:
    """What may be said of a job while some of its ranks go on."""

    ranks: frozenset[int]
    """Whose operations are others than they were in the update before."""
    analysis: Analysis
    live: Live


@dataclass(frozen=True)
class Pace:
    """What was said when the job was judged last, and what has been shown since. Times are those of one clock."""

    said: tuple[Analysis, Live] | None = None
    due_ns: int = 0
    """From here on all may be judged again."""
    shown: frozenset[int] = field(default=frozenset())
    """Ranks that have written something since."""

    def judged(self, at_ns: int, took_ns: int) -> Pace:
        """After judging was done."""
        return replace(self, due_ns=at_ns + max(SOON_NS, SELDOM * took_ns))

    def may_glance(self, ranks: frozenset[int], count: int, at_ns: int) -> bool:
        """Whether what these of `count` ranks wrote is only to be shown, if dumps are all they wrote."""
        waits = at_ns < self.due_ns or not self.shown
        return waits and PART * len(self.shown | ranks) <= count and self._goes_on

    def glance(self, ranks: frozenset[int], count: int, at_ns: int) -> tuple[Pace, Glance] | None:
        """What to say where these of `count` ranks alone have written dumps; None if all is to be judged now."""
        if self.said is None or not self.may_glance(ranks, count, at_ns):
            return None
        analysis, live = self.said
        told = still_said(analysis, ranks)
        return replace(self, said=(told, live), shown=self.shown | ranks), Glance(ranks, told, live)

    @cached_property
    def _goes_on(self) -> bool:
        return self.said is not None and self.said[1].state == "progressing" and holds_on(self.said[0])

    @property
    def judge_at_ns(self) -> int | None:
        """When what has only been shown is to be judged; None if there is nothing."""
        return self.due_ns if self.shown else None
