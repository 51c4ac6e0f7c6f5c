"""The line between lanes of traces and detail, and the overview of the whole run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from rich.text import Text

from rankscope.text.wording import duration, plural
from rankscope.tui.filters import Filter, describe
from rankscope.tui.footer import DIM, Found, found_text
from rankscope.tui.order import ORDERINGS
from rankscope.tui.traces.activity import COUNT, KINDS, WAITING, legend
from rankscope.tui.traces.lanes import TraceLanes
from rankscope.tui.traces.trace_board import TraceBoard
from rankscope.tui.traces.trace_cells import Asked, draw

WAITERS = 0.25
"""Share of waiting ranks from which the overview shows the wait."""


def status_lines(board: TraceBoard, wanted: Filter, found: Found | None, width: int, *, ascii_only: bool) -> list[Text]:
    """A rule with the state of the lanes and the agreement of clocks, and a line with the meaning of letters."""
    rule = "-" if ascii_only else "\u2500"
    pieces = [_rows_text(board)]
    if board.lined is not None:
        pieces.append(f"lined up on {plural(len(board.lined.arrived), 'arrival')}, esc ends it")
    if wanted:
        pieces.append(f"only {describe(wanted, board.model)}")
    if found is not None:
        pieces.append(found_text(found))
    if board.marker is not None:
        pieces.append(f"marker {'+' if board.unit >= board.marker else '-'}{duration(abs(board.unit - board.marker))}")
    if board.ordering != "rank":
        pieces.append(ORDERINGS[board.ordering])
    pieces.append(board.lanes.note)
    text = f"{rule} " + f" {rule} ".join(pieces) + " "
    if len(text) > width:
        text = text[: width - 4] + "... "
    key = f"  {legend(board.lanes.present, width - 2)}"
    return [Text.assemble(text, (rule * (width - len(text)), DIM)), Text(key, DIM)]


def _rows_text(board: TraceBoard) -> str:
    text = plural(len({rank for at in range(board.count) for rank in board.ranks_of(at)}), "rank")
    if board.count > board.height:
        text += f", rows {board.top + 1}-{min(board.top + board.height, board.count)} of {board.count}"
    return text


@dataclass(frozen=True)
class TraceStrip:
    """The whole run in one line."""

    low: int
    high: int
    text: str

    def window(self, first: int, last: int) -> tuple[int, int]:
        """Cells of the part of the run from `first` up to `last`: the first, and one after the last."""
        size, count = max(self.high - self.low, 1), len(self.text)
        begin = min(max((first - self.low) * count // size, 0), max(count - 1, 0))
        return begin, min(max(-(-(last - self.low) * count // size), begin + 1), count)


def strip_of(lanes: TraceLanes, width: int) -> TraceStrip:
    """The activity of most ranks in each column; if many wait for others, the wait."""
    count = max(width, 1)
    edges = lanes.low + (lanes.high - lanes.low) * np.arange(count + 1) // count
    rows = [Asked(lane) for lane in range(len(lanes.ranks))]
    if not rows:
        return TraceStrip(lanes.low, lanes.high, " " * count)
    cells = draw(lanes.cover, lanes.key_of, rows, np.broadcast_to(edges, (len(rows), count + 1)))
    waits = (cells.codes >= WAITING) & (cells.codes < COUNT)
    many = waits.mean(axis=0) >= WAITERS
    out = [_most(cells.text[:, at]) for at in range(count)]
    for at in np.flatnonzero(many).tolist():
        out[at] = KINDS[int(np.bincount(cells.codes[waits[:, at], at]).argmax())].letter
    return TraceStrip(lanes.low, lanes.high, "".join(out))


def _most(column: np.typing.NDArray[np.uint8]) -> str:
    return chr(int(np.bincount(column).argmax()))
