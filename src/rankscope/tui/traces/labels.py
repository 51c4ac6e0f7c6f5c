"""Writes the names of spans over their cells, where there is room for them."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from rankscope.report.escape import plain
from rankscope.tui.letters import Codes
from rankscope.tui.traces.activity import MOVING, WAITING
from rankscope.tui.traces.board import TraceBoard
from rankscope.tui.traces.lanes import TraceLanes
from rankscope.tui.traces.pick import shown_in, tracks_of
from rankscope.tui.traces.rows import Row

ROOM = 6
"""Characters from which on a span may have its name on it."""
LEAST = 9
"""Characters of a longer name that are shown, or none of it."""


def write_names(board: TraceBoard, rows: list[Row], text: Codes, codes: Codes) -> None:
    """Writes names into the characters of some rows: the first character of a span stays its letter.

    A span has its name only where its cells show it, by their codes, and not something in it or beside it.
    """
    for at, row in enumerate(rows):
        for first, last, span in _wide(board, row):
            if _shows(codes[at, first:last], int(board.lanes.spans.activity[span])):
                _write(text[at], first, last, name_of(board.lanes, span))


def _shows(codes: Codes, activity: int) -> bool:
    """Whether most of these cells show an activity, or the waiting for it."""
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
    """The name after the first character and before the last of a span, with a space on either side."""
    room = min(last, len(line)) - first - 3
    if room < min(len(name), LEAST):
        return
    shown = name[:room]
    words = f" {shown} ".encode("ascii", "replace")
    line[first + 1 : first + 1 + len(words)] = np.frombuffer(words, np.uint8)


def name_of(lanes: TraceLanes, span: int) -> str:
    """What a span is called on the screen: a collective by its operation."""
    row = int(lanes.spans.op[span])
    op = lanes.dataset.traced["op"][row] if row >= 0 else None
    return str(op) if op else short_name(lanes.spans.name_of(span))


# Names of spans, short enough for a cell of the screen and long enough to be known again.

_WRAPPERS = ("Kernel", "Kernel2", "device_kernel", "kernel", "GemmUniversal")
"""Names of templates that say nothing: their first argument is the name."""
_ARGUMENT = re.compile(r"<\s*([A-Za-z_]\w*)", re.ASCII)
_CPP = re.compile(r"void .*|[\w:~]+(?:<.*>)?\(.*\)|[\w:~]+<.*>", re.ASCII)
_NCCL = re.compile(r"(nccl\w*?Kernel)_(\w+)", re.ASCII)


@lru_cache(4096)
def short_name(name: str) -> str:
    """`void at::native::reduce_kernel<512, ...>(...)` is "reduce_kernel"; names that are no C++ stay as they are."""
    text = plain(name, 400)
    if match := _NCCL.match(text):
        return match[2]
    if re.match(r".*\.py\(\d+\): ", text):
        file, _, function = text.partition(": ")
        return f"{function} {file.rpartition('/')[2].replace('(', ':').rstrip(')')}"
    if text.startswith("<"):
        return text.strip("<>")
    if not _CPP.fullmatch(text):
        return text.removeprefix("aten::")
    bare = re.split(r"[<(]", text.removeprefix("void ").removeprefix("(anonymous namespace)::"), maxsplit=1)[0]
    last = bare.rpartition("::")[2]
    if last in _WRAPPERS and "<" in text:
        inner = _ARGUMENT.search(text)
        return inner[1] if inner else last
    return last or text
