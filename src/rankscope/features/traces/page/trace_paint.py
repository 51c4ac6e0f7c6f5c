"""Turns a board of traces into lines of the screen."""

from __future__ import annotations

import re

import numpy as np

from rankscope.features.traces.page.activity import IDLE, MOVING, STEP, WAITING
from rankscope.features.traces.page.lanes import TraceLanes
from rankscope.features.traces.page.trace_board import TraceBoard
from rankscope.features.traces.page.trace_cells import draw
from rankscope.features.traces.page.trace_rows import Row
from rankscope.features.traces.page.trace_ruler import cells_of_steps
from rankscope.features.traces.page.trace_selection import shown_in, tracks_of
from rankscope.features.traces.path_section import NO_RANK
from rankscope.text.wording import duration, rank_ranges, short_name
from rankscope.tui.lane_paint import Gutter, Line
from rankscope.tui.letters import CURSOR, Codes

_PARTS = {"host": "host", "compute": "compute", "communication": "comm", "memory": "copy"}


def gutter_for(width: int, ranks: int) -> Gutter:
    """The gutter of a widget `width` wide over so many ranks."""
    digits = len(str(max(ranks - 1, 0)))
    label = max(2 * digits + 1, 4) if width < 100 else min(4 * digits + 4, 16)
    return Gutter(label, 8 if width < 100 else 18)


def compose(board: TraceBoard, gutter: Gutter, count: int = 0) -> tuple[list[Line], Codes]:
    """The content of the rows in view, or of `count` rows from their first on, and the codes of their cells."""
    rows = board.rows[board.top : board.top + (count or board.height)]
    if not rows:
        return [], np.zeros(0, np.uint8)
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
    return out, cells.codes


def _mark_steps(board: TraceBoard, rows: list[Row], text: Codes) -> None:
    """Draws STEP at the begin of each step of a rank, in empty cells only."""
    for at, row in enumerate(rows):
        lane = row.lanes[0]
        starts, _ = board.lanes.steps_of[lane]
        shift = board.lined.shift(lane) if board.lined is not None else 0
        cells = np.array(cells_of_steps(starts, board.view, shift, board.width), np.int64)
        if len(cells) * 4 <= board.width:
            free = cells[(text[at, cells] == ord(IDLE)) | (text[at, cells] == ord(" "))]
            text[at, free] = ord(STEP)


def _mark_cursor(board: TraceBoard, styles: Codes) -> None:
    at = board.view.cell_of(board.unit)
    row = board.row - board.top
    if 0 <= at < styles.shape[1] and 0 <= row < len(styles):
        styles[row, at] |= CURSOR


def head_text(board: TraceBoard, row: Row, ranks: list[int], gutter: Gutter, *, current: bool, blamed: bool) -> str:
    """`>!2    host     `: the cursor, `!` for ranks to blame, the ranks, the part of their activities."""
    marks = (">" if current else " ") + ("!" if blamed else " ")
    label = NO_RANK if board.lanes.dataset.is_rankless else rank_ranges(ranks, gutter.label)
    shown = label if row.first or current else ""
    return f"{marks}{shown:<{gutter.label}} {_part(board, row, ranks, gutter.note):<{gutter.note}} "


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


# Writes the names of spans over their cells, if there is room.

ROOM = 6
"""Characters from which a span may show its name."""
LEAST = 9
"""Least number of characters of a longer name that are shown."""


def write_names(board: TraceBoard, rows: list[Row], text: Codes, codes: Codes) -> None:
    """Writes names into the characters of some rows: the first character of a span stays its letter.

    A span has its name only if the codes of its cells show it, and not another span in it or beside it.
    """
    for at, row in enumerate(rows):
        for first, last, span in _wide(board, row):
            if _shows(codes[at, first:last], int(board.lanes.spans.activity[span])):
                _write(text[at], first, last, name_of(board.lanes, span))


def _shows(codes: Codes, activity: int) -> bool:
    """Whether most of these cells show an activity, or the wait for it."""
    same = (codes == activity) | (codes == activity - MOVING + WAITING if activity >= MOVING else False)
    return bool(same.mean() > 0.5) if len(codes) else False


def _wide(board: TraceBoard, row: Row) -> list[tuple[int, int, int]]:
    """(first character, one after the last, span) of spans with room for a name, the outer before the inner."""
    lanes, view, width = board.lanes, board.view, board.width
    spans = lanes.spans
    shift = board.lined.shift(row.lanes[0]) if board.lined is not None else 0
    first, last = view.first + shift, view.unit_of(view.cells(width)) + shift
    wanted = shown_in(row)
    out = []
    for track in tracks_of(lanes, row):
        begin, end = spans.between(track, first, last)
        outer = np.array(spans.active(track, first)[::-1], np.int64)
        at = np.concatenate([outer, spans.at_least(begin, end, ROOM * view.per)])
        own = int(spans.shift[track])
        low = np.maximum(spans.start[at] + own, first) if len(at) else at
        high = np.minimum(spans.end[at] + own, last) if len(at) else at
        at_long = (high - low >= ROOM * view.per) & wanted[spans.activity[at]] if len(at) else np.zeros(0, np.bool_)
        cells = ((low[at_long] - first) // view.per, (high[at_long] - first) // view.per)
        out += list(zip(cells[0].tolist(), cells[1].tolist(), at[at_long].tolist(), strict=True))
    return out


def _write(line: Codes, first: int, last: int, name: str) -> None:
    """Writes the name after the first character and before the last of a span, with a space on either side."""
    room = min(last, len(line)) - first - 3
    if room < min(len(name), LEAST):
        return
    shown = name[:room]
    words = f" {shown} ".encode("ascii", "replace")
    line[first + 1 : first + 1 + len(words)] = np.frombuffer(words, np.uint8)


def name_of(lanes: TraceLanes, span: int) -> str:
    """The name of a span on the screen: the operation for a collective."""
    row = int(lanes.spans.op[span])
    op = lanes.dataset.traced["op"][row] if row >= 0 else None
    return str(op) if op else short_name(lanes.spans.name_of(span))
