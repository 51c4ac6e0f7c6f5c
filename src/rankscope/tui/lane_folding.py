"""Folds ranks with equal cells in view into one row of the screen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.tui.bins import find
from rankscope.tui.letters import Codes

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Rows:
    """Rows of the screen, each of one or more lanes."""

    order: Ints
    """Lanes in their order."""
    starts: Ints
    """Row i holds lanes `order[starts[i]:starts[i+1]]`."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    def lanes(self, row: int) -> Ints:
        """The lanes of a row."""
        found: Ints = self.order[self.starts[row] : self.starts[row + 1]]
        return found

    def leads(self, first: int, last: int) -> Ints:
        """The lane that stands for each of the rows from `first` up to `last`."""
        found: Ints = self.order[self.starts[first : min(last, len(self))]]
        return found

    def row_of(self, lane: int) -> int:
        """The row of a lane; 0 if it is in none."""
        place = np.flatnonzero(self.order == lane)
        return int(np.searchsorted(self.starts, place[0], side="right")) - 1 if len(place) else 0


def running_looks(codes: Codes, columns: NDArray[np.int32]) -> Hashes:
    """Sums of a hash of the look and the column of each item, with a 0 before the first.

    The difference of two sums identifies the items between them, so a window of a lane costs two look-ups.
    """
    with np.errstate(over="ignore"):
        mixed = _mix(codes.astype(np.uint64) + (columns.astype(np.uint64) << np.uint64(8)))
        return np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])


def _mix(values: Hashes) -> Hashes:
    """Spreads the bits of numbers (the finalizer of splitmix64, Steele et al. 2014)."""
    values = (values + np.uint64(0x9E3779B97F4A7C15)) & np.uint64(2**64 - 1)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def window_looks(
    sums: Hashes, columns: NDArray[np.int32], bounds: Ints, until: Ints, window: tuple[int, int]
) -> Hashes:
    """A number for each lane that identifies its look in the columns of `window` (first, one after the last)."""
    first, last = window
    low, high = bounds[:-1], bounds[1:]
    begin = find(columns, low, high, np.full(len(low), first))
    end = find(columns, low, high, np.full(len(low), last))
    gap = np.clip(until, first, last).astype(np.uint64)
    with np.errstate(over="ignore"):
        return sums[end] - sums[begin] + _mix(gap)


def cell_looks(cells: Codes) -> Hashes:
    """A number for each lane that identifies its cells."""
    with np.errstate(over="ignore"):
        weights = _mix(np.arange(cells.shape[1], dtype=np.uint64))
        looks: Hashes = _mix(cells.astype(np.uint64) + weights[None, :]).sum(axis=1, dtype=np.uint64)
    return looks


def fold(order: Ints, looks: Hashes, alone: NDArray[np.bool_]) -> Rows:
    """Neighbours in `order` with one look share a row; lanes in `alone` share no row."""
    if not len(order):
        return Rows(order, np.zeros(1, np.int64))
    look, apart = looks[order], alone[order]
    breaks = (look[1:] != look[:-1]) | apart[1:] | apart[:-1]
    return Rows(order, np.concatenate([[0], np.flatnonzero(breaks) + 1, [len(order)]]).astype(np.int64))
