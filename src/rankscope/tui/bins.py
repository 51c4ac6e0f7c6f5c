"""Codes for the cells of visible lanes: the worst operation in each cell."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.tui.letters import SHIFT, Codes, Mark

Ints = NDArray[np.int64]


def find(values: NDArray[np.integer], low: Ints, high: Ints, wanted: Ints) -> Ints:
    """For each element, the first position in `values[low:high]` not below `wanted`; all arrays have one shape.

    A binary search in many lanes at once: its cost does not depend on the number of other lanes.
    """
    low, high = low.copy(), high.copy()
    if not len(values):
        return low
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        middle = (low + high) >> 1
        below = (values[np.minimum(middle, len(values) - 1)] < wanted) & (low < high)
        low = np.where(below, middle + 1, low)
        high = np.where(below, high, middle)
    return low


def edges_in(values: NDArray[np.integer], bounds: Ints, lanes: Ints, edges: Ints) -> Ints:
    """Positions in `values` of the cell edges of each lane, as lanes x edges."""
    shape = (len(lanes), len(edges))
    low = np.broadcast_to(bounds[lanes][:, None], shape)
    high = np.broadcast_to(bounds[lanes + 1][:, None], shape)
    return find(values, low, high, np.broadcast_to(edges[None, :], shape))


def worst(codes: Codes, positions: Ints) -> Codes:
    """The highest code between neighbouring positions of each lane; 0 where there is none."""
    lanes, count = positions.shape
    if count < 2 or not lanes:
        return np.zeros((lanes, max(count - 1, 0)), np.uint8)
    first, last = positions[:, 0], positions[:, -1]
    flat = np.concatenate(
        [*(codes[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)), np.zeros(1, np.uint8)]
    )
    shift = np.concatenate([[0], np.cumsum(last - first)])[:-1] - first
    local = (positions + shift[:, None]).ravel()
    found: Codes = np.maximum.reduceat(flat, local).reshape(lanes, count)[:, :-1]
    return np.where(positions[:, 1:] > positions[:, :-1], found, 0).astype(np.uint8)


def crowded(positions: Ints) -> NDArray[np.bool_]:
    """Cells that hold more than one operation."""
    return np.diff(positions, axis=1) > 1


def fill_gaps(cells: Codes, until: Ints, edges: Ints) -> Codes:
    """Marks cells before the first row of a lane: older rows were overwritten, or there is no dump."""
    gone = (edges[None, 1:] <= until[:, None]) & (cells < (Mark.GONE << SHIFT))
    return np.where(gone, np.uint8(Mark.GONE << SHIFT), cells)


def fill_running(cells: Codes, running: Codes) -> Codes:
    """Marks cells without a start with the operation that still runs there."""
    return np.where(cells == 0, running, cells)
