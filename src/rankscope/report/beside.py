"""Spans of one thread that overlap without one lying in the other: viewers draw them only in rows of their own.

Kernels of one stream do where the next may begin early (programmatic dependent launch), an operation of c10d and its
annotation where the one ends first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

Numbers = npt.NDArray[np.int64]
MOST_ROWS = 8
"""Rows of a thread beside its first; what finds no room there shares the last."""


def rows_beside(spans: pl.DataFrame) -> npt.NDArray[np.uint8]:
    """For each of `Dataset.spans` 0 where it can be drawn in the row of its track, else a row beside it from 1 on."""
    out = np.zeros(spans.height, np.uint8)
    track, start = spans["track"].to_numpy(), spans["start_ns"].to_numpy()
    end = start + spans["duration_ns"].to_numpy()
    moved = np.flatnonzero(_crosses(track, end, spans["depth"].to_numpy()))
    # one after the other: which row is free depends on those before
    free: dict[int, list[int]] = {}
    for row in moved.tolist():
        ends = free.setdefault(int(track[row]), [])
        at = next((i for i, until in enumerate(ends) if until <= start[row]), len(ends))
        if at == len(ends) < MOST_ROWS:
            ends.append(0)
        at = min(at, MOST_ROWS - 1)
        ends[at] = max(ends[at], int(end[row]))
        out[row] = at + 1
    return out


def _crosses(
    track: npt.NDArray[np.unsignedinteger], end: Numbers, depth: npt.NDArray[np.uint16]
) -> npt.NDArray[np.bool_]:
    """Which spans end behind one that was open when they began; sorted by track, then start."""
    out = np.zeros(len(end), np.bool_)
    order = np.argsort(depth, kind="stable")
    edges = np.searchsorted(depth[order], np.arange(int(depth.max(initial=0)) + 2))
    for level in range(1, len(edges) - 1):
        outer, inner = order[edges[level - 1] : edges[level]], order[edges[level] : edges[level + 1]]
        at = outer[np.maximum(np.searchsorted(outer, inner) - 1, 0)] if len(outer) else inner
        out[inner] = (track[at] == track[inner]) & (end[at] < end[inner])
    return out
