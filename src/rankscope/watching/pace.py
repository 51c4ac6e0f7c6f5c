"""When what was written is judged with all the rest, and when it is only shown: few of many ranks change no answer.

Judging looks at every operation there is, so it would cost more the more is loaded, however little is new. While a job
goes on and few of its ranks have written anything, what they wrote is shown at once and held against what the others
issued. All of it is judged when more ranks have written, and else at a pace that follows from what judging takes, and
not from how many updates there are: soon where something does not agree, and seldom where all does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
LATE_NS = 60 * 10**9
"""The same where what was shown has gone on and agrees with the rest ..."""
RARELY = 100
"""... and again the longer of the two."""
MORE_NS = 10**9
"""So long after a trace more of them are waited for: all ranks write theirs at much the same time."""


@dataclass(frozen=True)
class Glance:
    """What may be said of a job while some of its ranks go on."""

    ranks: frozenset[int]
    """Whose operations are others than they were in the update before."""
    analysis: Analysis
    live: Live
    kept: Mapping[int, int] | None = None
    """So many of the first operations of each of these ranks are those of the update before; None: no one knows."""


@dataclass(frozen=True)
class Pace:
    """What was said when the job was judged last, and what has been shown since. Times are those of one clock."""

    said: tuple[Analysis, Live] | None = None
    due_ns: int = 0
    """From here on all may be judged again."""
    late_ns: int = 0
    """And from here on where nothing that was shown speaks for it."""
    agrees: bool = True
    """All that was shown since has gone on, and agrees with what was judged."""
    shown: frozenset[int] = field(default=frozenset())
    """Ranks that have written something since."""
    rows: int | None = None
    """Operations that logs have told since and nothing else has; None if they told none."""
    traced_ns: int | None = None
    """When a trace came last since then; None if none did. How clocks go, and who is late, only all of them tell."""

    def judged(self, at_ns: int, took_ns: int) -> Pace:
        """After judging was done."""
        due, late = max(SOON_NS, SELDOM * took_ns), max(LATE_NS, RARELY * took_ns)
        return replace(self, due_ns=at_ns + due, late_ns=at_ns + max(due, late))

    def may_glance(self, ranks: frozenset[int], count: int, at_ns: int) -> bool:
        """Whether what these of `count` ranks wrote is only to be shown, if dumps are all they wrote."""
        return self._waits(at_ns) and PART * len(self.shown | ranks) <= count and self._goes_on

    def _waits(self, at_ns: int) -> bool:
        return at_ns < self._until_ns or not self.is_behind

    def glance(
        self, ranks: frozenset[int], count: int, at_ns: int, *, agrees: bool = False
    ) -> tuple[Pace, Glance] | None:
        """What to say where these of `count` ranks alone have written dumps; None if all is to be judged now.

        `agrees`: they have gone on, and as the others have.
        """
        now = replace(self, agrees=self.agrees and agrees)
        if self.said is None or not now.may_glance(ranks, count, at_ns):
            return None
        analysis, live = self.said
        told = still_said(analysis, ranks)
        return replace(now, said=(told, live), shown=self.shown | ranks), Glance(ranks, told, live)

    def glance_at_rows(
        self, rows: int, count: int, ranks: Sequence[int], at_ns: int, *, agrees: bool
    ) -> tuple[Pace, Glance] | None:
        """The same where so many of `count` operations, of these ranks, are what logs have told since it was judged."""
        now = replace(self, agrees=self.agrees and agrees)
        if now.said is None or not (now._waits(at_ns) and PART * rows <= count and now._goes_on):
            return None
        analysis, live = now.said
        told = still_said(analysis, ranks)
        return replace(now, said=(told, live), rows=rows), Glance(frozenset(ranks), told, live)

    def may_show_traces(self, spans: int, count: int, at_ns: int) -> bool:
        """Whether traces with so many of `count` spans, those that came since it was judged, are only to be shown.

        However the job is: until they are compared with the others they change nothing that was said of it.
        """
        return self.said is not None and self._waits(at_ns) and PART * spans <= count

    def with_traces(self, analysis: Analysis, at_ns: int) -> Pace:
        """After traces came: that is what is said with them."""
        return self if self.said is None else replace(self, said=(analysis, self.said[1]), traced_ns=at_ns)

    def with_live(self, live: Live) -> Pace:
        """The same where that is how the job is now."""
        return self if self.said is None else replace(self, said=(self.said[0], live))

    @cached_property
    def _goes_on(self) -> bool:
        return self.said is not None and self.said[1].state == "progressing" and holds_on(self.said[0])

    @property
    def judge_at_ns(self) -> int | None:
        """When what has only been shown is to be judged; None if there is nothing."""
        return self._until_ns if self.is_behind else None

    @property
    def is_behind(self) -> bool:
        """Whether anything was shown since it was judged."""
        return bool(self.shown) or self.rows is not None or self.traced_ns is not None

    @property
    def _until_ns(self) -> int:
        if not self.agrees:
            return self.due_ns
        if self.traced_ns is None:
            return self.late_ns
        return max(self.due_ns, min(self.traced_ns + MORE_NS, self.late_ns))
