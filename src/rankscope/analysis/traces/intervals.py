"""Merged intervals of time, and how much of any stretch lies in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Busy:
    """Intervals that do not overlap, sorted."""

    starts: Times
    ends: Times

    @classmethod
    def of(cls, starts: Times, ends: Times) -> Busy:
        """Merges intervals given in any order."""
        if not len(starts):
            return cls(starts, ends)
        order = np.argsort(starts, kind="stable")
        starts, reach = starts[order], np.maximum.accumulate(ends[order])
        first = np.concatenate(([True], starts[1:] > reach[:-1]))
        last = np.concatenate((first[1:], [True]))
        return cls(starts[first], reach[last])

    def joined(self, other: Busy) -> Busy:
        """Both together."""
        return Busy.of(np.concatenate((self.starts, other.starts)), np.concatenate((self.ends, other.ends)))

    def within(self, since: Times, until: Times) -> Times:
        """Busy time of each stretch."""
        return self._before(until) - self._before(since)

    def _before(self, times: Times) -> Times:
        if not len(self.starts):
            return np.zeros(len(times), np.int64)
        total = np.concatenate(([0], np.cumsum(self.ends - self.starts)))
        at = np.searchsorted(self.starts, times, side="right")
        over = np.where(at > 0, np.maximum(self.ends[np.maximum(at - 1, 0)] - times, 0), 0)
        return total[at] - over
