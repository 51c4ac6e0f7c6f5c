"""Covered parts of any stretch of time: with them, a frame costs the same for ten spans or millions.

Intervals of one key are merged until they are apart, and their lengths are summed up once. Then the covered part of a
cell is the difference of two sums, found by two binary searches.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.tui.letters import find

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Cover:
    """Intervals that do not touch each other, sorted by key, then by time."""

    bounds: Ints
    """Key i holds intervals `bounds[i]:bounds[i+1]`."""
    start: Ints
    end: Ints

    @cached_property
    def before(self) -> Ints:
        """Length of all intervals before each one, of other keys too; one more than there are intervals."""
        return np.concatenate([[0], np.cumsum(self.end - self.start)]).astype(np.int64)

    def until(self, keys: Ints, times: Ints) -> Ints:
        """Covered time of each key up to these times, as keys x times."""
        low = np.broadcast_to(self.bounds[keys][:, None], times.shape)
        high = np.broadcast_to(self.bounds[keys + 1][:, None], times.shape)
        at = find(self.start, low, high, times)
        last = np.maximum(at - 1, 0)
        cut = np.where(at > low, np.maximum(self.end[last] - times, 0), 0) if len(self.end) else 0
        covered: Ints = self.before[at] - self.before[low] - cut
        return covered

    def within(self, keys: Ints, edges: Ints) -> Ints:
        """Covered time of each cell between neighbouring edges, as keys x cells; edges are keys x edges."""
        return np.diff(self.until(keys, edges), axis=1)


def merged(key: NDArray[np.integer], start: Ints, end: Ints) -> pl.DataFrame:
    """Intervals, merged if they touch or overlap: key, start, end, sorted by key, then start."""
    kept = end > start
    keys: Ints = key[kept].astype(np.int64)
    order = _order(keys, start[kept])
    keys, start, end = keys[order], start[kept][order], end[kept][order]
    top = _running_max(keys, end)
    first = np.ones(len(keys), np.bool_)
    first[1:] = (keys[1:] != keys[:-1]) | (start[1:] > top[:-1])
    begins = np.flatnonzero(first)
    last = np.append(begins[1:], len(keys)) - 1 if len(begins) else begins
    return pl.DataFrame({"key": keys[begins], "start": start[begins], "end": top[last]})


def _order(key: Ints, start: Ints) -> Ints:
    """The order by key, then start; spans are sorted by start in their tracks, so the key is mostly enough."""
    small = key.astype(np.uint16) if len(key) and key.min() >= 0 and key.max() < 2**16 else key
    order: Ints = np.argsort(small, kind="stable")  # of 16 bits it is a radix sort
    same = key[order][1:] == key[order][:-1]
    if bool((np.diff(start[order])[same] < 0).any()):
        order = np.lexsort((start, key))
    return order


def _running_max(key: Ints, values: Ints) -> Ints:
    """The highest value up to each one, of equal keys; keys are sorted."""
    if not len(key):
        return values
    low, size = int(values.min()), int(values.max()) - int(values.min()) + 1
    number = np.concatenate([[0], np.cumsum(key[1:] != key[:-1])])
    if (int(number[-1]) + 1) * size >= 2**62:
        table = pl.DataFrame({"key": number, "value": values})
        return table.select(pl.col("value").cum_max().over("key"))["value"].to_numpy()
    # An offset for each key lifts it above all keys before it, so one pass is enough for all.
    lifted = values - low + number * size
    found: Ints = np.maximum.accumulate(lifted) - number * size + low
    return found


def cover_of(table: pl.DataFrame, keys: int) -> Cover:
    """The cover of merged intervals (see `merged`) of keys from 0 up to `keys`."""
    start, end = (table[name].to_numpy().astype(np.int64) for name in ("start", "end"))
    bounds = np.searchsorted(table["key"].to_numpy(), np.arange(keys + 1)).astype(np.int64)
    return Cover(bounds, start, end)
