"""Turns what a board of traces shows into lines of the screen."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from rankscope.tui.detail.format import duration
from rankscope.tui.fold import rank_label
from rankscope.tui.letters import Codes
from rankscope.tui.paint import Line
from rankscope.tui.palette import CURSOR
from rankscope.tui.traces.activity import IDLE
from rankscope.tui.traces.board import TraceBoard
from rankscope.tui.traces.cells import draw
from rankscope.tui.traces.labels import write_names
from rankscope.tui.traces.rows import Row
from rankscope.tui.traces.ruler import cells_of_steps

_PARTS = {"host": "host", "compute": "compute", "communication": "comm", "memory": "copy"}


@dataclass(frozen=True)
class TraceGutter:
    """Widths of what stands left of the cells."""

    label: int
    part: int

    @property
    def width(self) -> int:
        """All of it: two marks, the ranks, the part, and a space after each."""
        return 2 + self.label + 1 + self.part + 1


def gutter_for(width: int, ranks: int) -> TraceGutter:
    """The gutter of a widget `width` wide over so many ranks."""
    digits = len(str(max(ranks - 1, 0)))
    label = max(2 * digits + 1, 4) if width < 100 else min(4 * digits + 4, 16)
    return TraceGutter(label, 8 if width < 100 else 18)


def compose(board: TraceBoard, gutter: TraceGutter) -> list[Line]:
    """What the rows in view show."""
    rows = board.rows[board.top : board.top + board.height]
    if not rows:
        return []
    asked, edges = board.cells_of(rows)
    cells = draw(board.lanes.cover, board.lanes.key_of, asked, edges)
    text, styles = cells.text.copy(), cells.styles.copy()
    _mark_steps(board, rows, text)
    write_names(board, rows, text, cells.codes)
    _mark_cursor(board, styles)
    out = []
    for at, row in enumerate(rows):
        ranks = board.ranks_of(board.top + at)
        current = board.top + at == board.row
        blamed = not board.blamed.isdisjoint(ranks)
        head = head_text(board, row, ranks, gutter, current=current, blamed=blamed)
        head = f"{head[:-1]}*" if row.first and not board.fresh.isdisjoint(ranks) else head
        out.append(Line(head, blamed, current, text[at].tobytes(), styles[at].tobytes()))
    return out


def _mark_steps(board: TraceBoard, rows: list[Row], text: Codes) -> None:
    """Draws `|` where a step of a rank begins and nothing else is there."""
    for at, row in enumerate(rows):
        lane = row.lanes[0]
        starts, _ = board.lanes.steps_of[lane]
        shift = board.lined.shift(lane) if board.lined is not None else 0
        cells = np.array(cells_of_steps(starts, board.view, shift, board.width), np.int64)
        if len(cells) * 4 <= board.width:
            free = cells[(text[at, cells] == ord(IDLE)) | (text[at, cells] == ord(" "))]
            text[at, free] = ord("|")


def _mark_cursor(board: TraceBoard, styles: Codes) -> None:
    at = board.view.cell_of(board.unit)
    row = board.row - board.top
    if 0 <= at < styles.shape[1] and 0 <= row < len(styles):
        styles[row, at] |= CURSOR


def head_text(
    board: TraceBoard, row: Row, ranks: list[int], gutter: TraceGutter, *, current: bool, blamed: bool
) -> str:
    """`>!2    host     `: the cursor, `!` for ranks to blame, the ranks, which part of what they do."""
    marks = (">" if current else " ") + ("!" if blamed else " ")
    shown = rank_label(ranks, gutter.label) if row.first or current else ""
    return f"{marks}{shown:<{gutter.label}} {_part(board, row, ranks, gutter.part):<{gutter.part}} "


def strand_label(name: str, width: int) -> str:
    """A thread or stream in at most `width` characters: "stream 7", "thread 100 (python)", "t100"."""
    number = re.search(r"\d+", name)
    if len(name) <= width or number is None:
        return name[:width]
    return f"{name[0]}{number[0]}"[:width]


def _part(board: TraceBoard, row: Row, ranks: list[int], width: int) -> str:
    if board.lined is not None and row.first:
        late = board.lined.late(row.lanes[0])
        return "first" if not late else f"+{duration(late).replace(' ', '')}"[:width]
    if row.strand >= 0:
        return strand_label(board.lanes.strands[row.strand].name, width)
    if row.kind:
        return _PARTS[row.kind]
    return f"x{len(ranks)}" if len(ranks) > 1 else ""
