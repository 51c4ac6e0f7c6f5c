"""When what was written is judged with all the rest, and when it is only shown: few of many ranks change no answer.

Judging looks at every operation there is, so it would cost more the more is loaded, however little is new. While a job
goes on and few of its ranks have written anything, what they wrote is shown at once, and all of it is judged soon.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rankscope.analysis.live import Live
from rankscope.analysis.model import Analysis
from rankscope.analysis.said import holds_on, still_said

PART = 8
"""What more than one in so many ranks wrote is judged at once."""
SOON_NS = 2 * 10**9
"""And the rest so long after something was judged."""


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
    judged_ns: int = 0
    shown: frozenset[int] = field(default=frozenset())
    """Ranks that have written something since."""

    def glance(self, ranks: frozenset[int], count: int, at_ns: int) -> tuple[Pace, Glance] | None:
        """What to say where these of `count` ranks alone have written dumps; None if all is to be judged now."""
        if self.said is None or at_ns >= self.judged_ns + SOON_NS:
            return None
        analysis, live = self.said
        shown = self.shown | ranks
        if PART * len(shown) > count or live.state != "progressing" or not holds_on(analysis):
            return None
        told = still_said(analysis, ranks)
        return replace(self, said=(told, live), shown=shown), Glance(ranks, told, live)

    @property
    def judge_at_ns(self) -> int | None:
        """When what has only been shown is to be judged; None if there is nothing."""
        return self.judged_ns + SOON_NS if self.shown else None
