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
    found = np.full(len(inner), -1, np.int64)
    if not len(inner) or not len(outer):
        return found
    order = np.lexsort((start[outer], track[outer]))
    tracks, starts = track[outer][order], start[outer][order]
    for one in np.unique(track[inner]).tolist():
        low, high = np.searchsorted(tracks, [one, one + 1])
        mine = np.flatnonzero(track[inner] == one)
        at = low + np.searchsorted(starts[low:high], start[inner[mine]], side="right") - 1
        covering = np.where(at >= low, order[np.maximum(at, 0)], -1)
        covered = (covering >= 0) & (end[outer[np.maximum(covering, 0)]] >= end[inner[mine]])
        found[mine] = np.where(covered, covering, -1)
    return found


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
