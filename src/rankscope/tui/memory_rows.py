"""Lines of memory below the lanes: cells of each rank at the time scale of its lane, and its bytes at the cursor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankscope.tui.board import AnyBoard, Board
from rankscope.tui.lane_paint import Line
from rankscope.tui.palette import CURSOR


def last_rows(board: AnyBoard, rows: Sequence[int]) -> list[int]:
    """The rows below which memory is drawn: each of operations, and the last of each rank of traces."""
    if isinstance(board, Board):
        return list(rows)
    return [row for row in rows if row + 1 >= board.count or board.rows[row + 1].first]


def memory_lines(board: AnyBoard, rows: Sequence[int], gutter: int) -> list[Line]:
    """A line for each of `last_rows`."""
    last, track = last_rows(board, rows), board.track
    if track is None or not last:
        return []
    ranks = [board.ranks_of(row) for row in last]
    if isinstance(board, Board):
        edges = board.view.edges(board.width)[None, :]
    else:
        edges = board.cells_of([board.rows[row] for row in last])[1]
    cells = track.cells(ranks, edges)
    styles, cursor = cells.styles.copy(), board.view.cell_of(board.unit)
    inside = 0 <= cursor < styles.shape[1]
    out = []
    for at, row in enumerate(last):
        end = int(edges[min(at, len(edges) - 1), cursor + 1]) if inside else None
        head = f"{track.held_at(ranks[at], end) if end is not None else '':>{gutter - 1}} "
        if inside and row == board.row:
            styles[at, cursor] |= CURSOR
        text = np.pad(cells.text[at], (0, max(board.width - cells.text.shape[1], 0)), constant_values=ord(" "))
        style = np.pad(styles[at], (0, max(board.width - styles.shape[1], 0)))
        out.append(Line(head[-gutter:], False, False, text.tobytes(), style.tobytes()))
    return out
