"""Which of some spans lies around each of others, on the same track."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankscope.parsers.columnar import Numbers

Places = npt.NDArray[np.int64]


def around(track: Places, start: Numbers, end: Numbers, inner: Places, outer: Places) -> Places:
    """For each span `inner` the place within `outer` of the latest begun one that covers it; -1 without one.

    `inner` and `outer` are rows of `track`, `start` and `end`. Only the latest begun one is looked at: those around
    operations do not lie in one another.
    """
    rows, own = np.concatenate([outer, inner]), len(outer)
    order = np.lexsort((np.arange(len(rows)) >= own, start[rows], track[rows]))
    last = np.maximum.accumulate(np.where(order < own, np.arange(len(rows)), -1))
    before = np.full(len(rows), -1, np.int64)
    before[order] = np.where(last >= 0, order[last], -1)
    found = before[own:]
    rival = outer[np.maximum(found, 0)] if own else inner
    covers = (found >= 0) & (track[rival] == track[inner]) & (end[rival] >= end[inner])
    return np.where(covers, found, -1)


def place_of(values: Numbers, table: Numbers) -> Places:
    """For each value a place in `table` where it stands; -1 where it does not."""
    found = np.full(len(values), -1, np.int64)
    if not len(table):
        return found
    order = np.argsort(table, kind="stable")
    at = np.minimum(np.searchsorted(table[order], values), len(table) - 1)
    place = order[at]
    found[table[place] == values] = place[table[place] == values]
    return found
