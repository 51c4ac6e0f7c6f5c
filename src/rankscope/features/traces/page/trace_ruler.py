"""The two lines over the lanes of traces: the steps of the rank under the cursor, and the time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rankscope.features.traces.page.trace_board import TraceBoard
from rankscope.tui.axis import View, nice

Ints = NDArray[np.int64]
APART = 11
"""Characters between two times, at least."""
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))


def step_line(board: TraceBoard, width: int) -> str:
    """`|step 3           |step 4` at the begins of the steps of the rank under the cursor."""
    line = [" "] * width
    if not board.rows:
        return "".join(line)
    starts, numbers = board.lanes.steps_of[board.lane]
    shift = board.moment - board.unit
    free = 0
    for start, number in zip(starts.tolist(), numbers, strict=True):
        at = board.view.cell_of(start - shift)
        text = f"|step {number}"
        if at < 0 <= board.view.cell_of(start - shift + 1) + width and _holds_edge(starts, start, board, shift):
            at = 0
        if at < free or at >= width:
            continue
        text = text if at + len(text) <= width else "|"
        line[at : at + len(text)] = text
        free = at + len(text) + 1
    return "".join(line)


def _holds_edge(starts: Ints, start: int, board: TraceBoard, shift: int) -> bool:
    """Whether the step that begins at `start` is the one that runs at the left edge of the window."""
    before = np.flatnonzero(starts - shift <= board.view.first)
    return len(before) > 0 and int(starts[before[-1]]) == start


def time_line(board: TraceBoard, width: int) -> str:
    """`|0 ms      |50 ms     |100 ms`: time since the first window began; in a line-up, since the collective."""
    view = board.view
    zero = board.lined.arrived[board.lined.anchor] if board.lined is not None else board.low
    every = nice(APART * view.per)
    size, unit = next((size, unit) for size, unit in _UNITS if every >= size or size == 1)
    line = [" "] * width
    tick = zero + -(-(view.first - zero) // every) * every
    while (at := view.cell_of(tick)) < width:
        ns = tick - zero
        sign = "+" if board.lined is not None and ns > 0 else ""
        text = "|" + f"{sign}{ns // size} {unit}"
        if at >= 0 and at + len(text) <= width:
            line[at : at + len(text)] = text
        tick += every
    return "".join(line)


def cells_of_steps(starts: Ints, view: View, shift: int, width: int) -> list[int]:
    """The cells with the begins of steps."""
    cells = (starts - shift - view.first) // view.per
    return [cell for cell in cells.tolist() if 0 <= cell < width]
