"""The span under a cell, and the spans before and after it."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from rankscope.features.traces.page.activity import COMMUNICATION, COMPUTE, HOST_KINDS, MEMORY, MOVING, NOTHING
from rankscope.features.traces.page.lanes import KINDS, TraceLanes, activities_of
from rankscope.features.traces.page.span_arrays import Spans
from rankscope.features.traces.page.trace_rows import Row

Ints = NDArray[np.int64]
MOST = 200_000
"""Most spans that start in one cell and are looked at; if there are more, the first ones stand for all."""
_BY_WEIGHT = (*COMMUNICATION, COMPUTE, MEMORY, *reversed(HOST_KINDS))


def tracks_of(lanes: TraceLanes, row: Row) -> list[int]:
    """The tracks that a row shows."""
    if row.strand >= 0:
        return list(lanes.strands[row.strand].tracks)
    strands = [lanes.strands[s] for s in lanes.strands_of[row.lanes[0]]]
    if row.kind == "host":
        strands = [s for s in strands if s.kind in ("host", "communication")]
    return [track for strand in strands for track in strand.tracks]


@cache
def _shown(kind: str) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = np.isin(np.arange(256), list(activities_of(kind) if kind else _BY_WEIGHT))
    return mask


def shown_in(row: Row) -> NDArray[np.bool_]:
    """By activity, whether a row shows it."""
    return _shown(row.kind)


def kind_of(lanes: TraceLanes, span: int) -> str:
    """The kind of row that shows a span; "" if none does."""
    activity = int(lanes.spans.activity[span])
    return next((k for k in KINDS if activity in activities_of(k)), "")


def candidates(spans: Spans, track: int, first: int, last: int) -> Ints:
    """Spans of a track that run at any time from `first` up to `last`, aligned; the outer before the inner."""
    begin, end = spans.between(track, first, last)
    outer = np.array(spans.active(track, first)[::-1], np.int64)
    return np.concatenate([outer, np.arange(begin, min(end, begin + MOST))])


def span_at(lanes: TraceLanes, row: Row, first: int, last: int) -> int | None:
    """The span for a cell from `first` up to `last`: the one that covers most of it, the inner before the outer.

    In a row of all activities of a rank, collectives come before kernels, and devices before hosts.
    """
    spans, shown = lanes.spans, shown_in(row)
    best: tuple[float, ...] | None = None
    chosen: int | None = None
    for track in tracks_of(lanes, row):
        at = candidates(spans, track, first, last)
        at = at[shown[spans.activity[at]]]
        if not len(at):
            continue
        shift = int(spans.shift[track])
        inside = np.minimum(spans.end[at] + shift, last) - np.maximum(spans.start[at] + shift, first)
        half = inside * 2 >= last - first
        # The innermost of those that take half of the cell, else the one that takes most.
        score = np.where(half, last - first + spans.depth[at].astype(np.int64), inside)
        top = int(at[int(score.argmax())])
        weight = _weight(int(spans.activity[top])) if not row.kind and row.strand < 0 else 0.0
        rated = (weight, float(score.max()))
        if best is None or rated > best:
            best, chosen = rated, top
    return chosen


def _weight(activity: int) -> float:
    if activity >= MOVING and activity != NOTHING:
        return 3.0
    return {COMPUTE: 2.0, MEMORY: 1.0}.get(activity, 0.0)


def neighbour(lanes: TraceLanes, row: Row, unit: int, step: int) -> int | None:
    """The span that begins next after `unit` in a row (`step` 1), or last before it (-1)."""
    spans, wanted = lanes.spans, shown_in(row)
    found: list[tuple[int, int]] = []
    for track in tracks_of(lanes, row):
        low, high = int(spans.bounds[track]), int(spans.bounds[track + 1])
        shift = int(spans.shift[track])
        at = low + int(np.searchsorted(spans.start[low:high], unit - shift, side="right" if step > 0 else "left"))
        at = _next_shown(spans, at if step > 0 else at - 1, step, (low, high), wanted)
        if low <= at < high:
            found.append((int(spans.start[at]) + shift, at))
    return (min(found) if step > 0 else max(found))[1] if found else None


def _next_shown(spans: Spans, at: int, step: int, bounds: tuple[int, int], shown: NDArray[np.bool_]) -> int:
    low, high = bounds
    while low <= at < high:
        first, last = (at, min(at + 4096, high)) if step > 0 else (max(at - 4095, low), at + 1)
        hits = np.flatnonzero(shown[spans.activity[first:last]])
        if len(hits):
            return first + int(hits[0 if step > 0 else -1])
        at = last if step > 0 else first - 1
    return -1
