"""The graph of the operations of steps, and how long they take with other durations.

An operation begins when all that it waits for has ended. Members of a meeting (a collective, or a send with its
receive) end no sooner than the last of them has begun, plus the time of their transfer. This is the simulation of
"Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI '25), section 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankscope.analysis.arrays import Ints

Times = npt.NDArray[np.float64]
MOST_CELLS = 1 << 24
"""Most simulated ends that are held at once."""


class CircleError(ValueError):
    """Operations wait for each other in a circle, so none of them can begin."""


@dataclass(frozen=True)
class StepGraph:
    """Operations 0 to `operations` - 1, then a node for each meeting, in levels: each waits for earlier levels only."""

    operations: int
    nodes: tuple[Ints, ...]
    """By level its nodes."""
    sources: tuple[Ints, ...]
    """By level the nodes that those wait for."""
    firsts: tuple[Ints, ...]
    """By level the place in its `sources` of the first one of each node; empty in the first level."""
    steps: Ints
    """By operation its step, from 0."""

    @classmethod
    def of(cls, before: Ints, after: Ints, meetings: Ints, steps: Ints) -> StepGraph:
        """The graph in which `after` waits for `before`, and `meetings` has the meeting of each operation, or -1.

        Raises CircleError.
        """
        count = len(steps)
        meets = np.flatnonzero(meetings >= 0)
        number = 1 + int(meetings.max(initial=-1))
        total = count + number
        target = np.where(meetings[after] >= 0, count + meetings[after], after)
        source = np.concatenate([before, count + meetings[meets]])
        target = np.concatenate([target, meets])
        level = _levels(source, target, total)
        order = np.lexsort((target, level[target]))
        source, target = source[order], target[order]
        bounds = np.searchsorted(level[target], np.arange(1, int(level.max(initial=0)) + 2))
        nodes, sources, firsts = [np.flatnonzero(level == 0)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            found, first = np.unique(target[begin:end], return_index=True)
            nodes.append(found)
            sources.append(source[begin:end])
            firsts.append(first)
        return cls(count, tuple(nodes), tuple(sources), tuple(firsts), steps)

    def step_times(self, durations: Times) -> Times:
        """The time of each step, shape (steps, scenarios), for `durations` of shape (operations, scenarios)."""
        nodes = sum(map(len, self.nodes))
        width = max(1, MOST_CELLS // max(1, nodes))
        parts = [self._simulated(durations[:, at : at + width], nodes) for at in range(0, durations.shape[1], width)]
        return np.concatenate(parts, axis=1)

    def _simulated(self, durations: Times, nodes: int) -> Times:
        ends = np.zeros((nodes, durations.shape[1]))
        ends[: self.operations] = durations
        for at, sources, firsts in zip(self.nodes[1:], self.sources[1:], self.firsts[1:], strict=True):
            ends[at] += np.maximum.reduceat(ends[sources], firsts, axis=0)
        out = np.zeros((1 + int(self.steps.max(initial=-1)), durations.shape[1]))
        np.maximum.at(out, self.steps, ends[: self.operations])
        return out


def _levels(source: Ints, target: Ints, total: int) -> Ints:
    """By node the length of the longest chain of waits that ends in it. Raises CircleError."""
    order = np.argsort(source, kind="stable")
    next_of = target[order]
    begin = np.searchsorted(source[order], np.arange(total + 1))
    waits = np.bincount(target, minlength=total)
    level, ready, depth, seen = np.zeros(total, np.int64), np.flatnonzero(waits == 0), 0, 0
    while len(ready):
        level[ready], seen = depth, seen + len(ready)
        lengths = begin[ready + 1] - begin[ready]
        offsets = np.repeat(begin[ready] - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
        reached = next_of[offsets + np.arange(int(lengths.sum()))]
        touched, times = np.unique(reached, return_counts=True)
        waits[touched] -= times
        ready, depth = touched[waits[touched] == 0], depth + 1
    if seen < total:
        raise CircleError(f"{total - seen:,} operations wait for each other in a circle")
    return level
