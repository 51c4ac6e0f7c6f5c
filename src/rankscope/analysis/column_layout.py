"""Places operations in columns wave by wave: in each, every operation whose members are all there takes its column."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

LONGEST = 60_000
"""Waves after which ranks go on in program order; each costs some 20 microseconds and more with many ranks."""
CIRCLE_WORK = 16
"""Members looked at to find circles, for each row there is; after that ranks go on in program order."""


class _Lanes:
    """Where every lane stands. A last row that nobody can join ends each lane."""

    def __init__(self, instance: Ints, bounds: Ints) -> None:
        count = len(bounds) - 1
        self.blocked = int(instance.max(initial=-1)) + 1
        lanes = np.repeat(np.arange(count), np.diff(bounds))
        self.at = np.arange(len(instance)) + lanes
        self.rows = np.full(len(instance) + count, self.blocked, np.int64)
        self.rows[self.at] = instance
        self.lane = np.empty(len(self.rows), np.int64)
        self.lane[self.at] = lanes
        self.head = bounds[:-1] + np.arange(count)
        self.ends = bounds[1:] + np.arange(count)
        self.lane[self.ends] = np.arange(count)
        self.columns = np.full(len(self.rows), -1, np.int64)
        self.missing = np.bincount(instance, minlength=self.blocked + 1)
        self.missing[self.blocked] = 2**62
        self._instance = instance
        self.work_left = CIRCLE_WORK * len(self.rows) + 1_000_000
        self._arrive(self.head)

    # only needed where lanes wait for each other in a circle

    @cached_property
    def members(self) -> Ints:
        """Rows by the operation they belong to; those of operation i begin at `offsets[i]`."""
        members: Ints = self.at[np.argsort(self._instance, kind="stable")]
        return members

    @cached_property
    def offsets(self) -> Ints:
        """Where the members of each operation begin."""
        return np.concatenate([[0], np.cumsum(np.bincount(self._instance, minlength=self.blocked))])

    def _arrive(self, heads: Ints) -> None:
        np.subtract.at(self.missing, self.rows[heads], 1)

    def advance(self, ready: NDArray[np.bool_], column: int) -> None:
        """Gives the first rows of the lanes in `ready` their column and goes on to the next."""
        heads = self.head[ready]
        self.columns[heads] = column
        self.head[ready] = heads + 1
        self._arrive(heads + 1)


def columns_in_waves(instance: Ints, bounds: Ints, longest: int = LONGEST) -> Ints:
    """The column of each row. Lane i holds rows `bounds[i]:bounds[i+1]`; rows of one operation share an instance.

    Where lanes wait for each other in a circle, one operation of each circle is let go without its other members.
    After `longest` columns, or where there are circles without end, what is left follows in program order.
    """
    lanes = _Lanes(instance, bounds)
    for column in range(longest):
        ready = _ready(lanes)
        if ready is None:
            break
        lanes.advance(ready, column)
    _in_program_order(lanes)
    columns: Ints = lanes.columns[lanes.at]
    return columns


def _ready(lanes: _Lanes) -> NDArray[np.bool_] | None:
    """The lanes that can go on; None if none can, or if finding out which takes too long."""
    current = lanes.rows[lanes.head]
    ready: NDArray[np.bool_] = lanes.missing[current] == 0
    if ready.any():
        return ready
    waiting = current != lanes.blocked
    if not waiting.any() or lanes.work_left < 0:
        return None
    return np.isin(current, _one_of_each_circle(lanes, np.unique(current[waiting])))


def _one_of_each_circle(lanes: _Lanes, stuck: Ints) -> Ints:
    """Of each circle of instances that wait for each other, the first."""
    after = np.searchsorted(stuck, _waits_for(lanes, stuck))
    lowest = np.arange(len(stuck))
    # Doubling the stride: after so many rounds everybody stands on a circle and has seen the whole of it.
    for _ in range(max(1, len(stuck).bit_length())):
        lowest = np.minimum(lowest, lowest[after])
        after = after[after]
    return stuck[np.unique(lowest[after])]


def _waits_for(lanes: _Lanes, stuck: Ints) -> Ints:
    """For each stuck instance, the one at which a member stands that has yet to reach it."""
    sizes = lanes.offsets[stuck + 1] - lanes.offsets[stuck]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    flat = np.arange(starts[-1]) + np.repeat(lanes.offsets[stuck] - starts[:-1], sizes)
    rows = lanes.members[flat]
    lanes.work_left -= len(rows)
    late = np.where(rows > lanes.head[lanes.lane[rows]], rows, len(lanes.rows))
    first = np.minimum.reduceat(late, starts[:-1])
    waits_for: Ints = lanes.rows[lanes.head[lanes.lane[first]]]
    return waits_for


def _in_program_order(lanes: _Lanes) -> None:
    """Places what is left after the last column that was given."""
    left = np.arange(len(lanes.rows)) - lanes.head[lanes.lane]
    lanes.columns = np.where(left >= 0, lanes.columns.max(initial=-1) + 1 + left, lanes.columns)
