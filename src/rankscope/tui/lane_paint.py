"""Turns a board into lines of the screen: gutter, cells, remarks, and a line of memory below each rank."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from rich.segment import Segment
from textual.strip import Strip

from rankscope.text.wording import rank_ranges
from rankscope.tui.board import Board
from rankscope.tui.lane_cells import LaneCells
from rankscope.tui.letters import CURSOR, MEMBER, SHIFT, Codes, Mark, cell_style
from rankscope.tui.marks import REASONS
from rankscope.tui.options import Look
from rankscope.tui.themes import base_style, face_style

_KEPT = 512


@dataclass(frozen=True)
class Gutter:
    """Widths of the parts left of the cells."""

    label: int
    note: int
    """The number of ranks that share a row, or what a row shows of its ranks."""

    @property
    def width(self) -> int:
        """The width of all parts: two marks, label, note, and a space after each."""
        return 2 + self.label + 1 + self.note + 1


def gutter_for(width: int, lanes: int) -> Gutter:
    """The gutter of a widget `width` wide that shows `lanes` lanes."""
    digits = len(str(max(lanes - 1, 0)))
    return Gutter(max(2 * digits + 1, 6) if width < 100 else min(4 * digits + 4, 20), digits + 1)


@dataclass(frozen=True)
class Line:
    """The content of a row; equal lines look equal."""

    head: str
    blamed: bool
    current: bool
    text: bytes
    styles: bytes


class Painter:
    """Makes strips of the rows of a board, and keeps the made ones."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Line, int, Look, bool], Strip] = OrderedDict()

    def rows(self, lines: list[Line], width: int, look: Look, *, lit: bool) -> list[Strip]:
        """A strip for each of the lines; `lit` where the lanes have the keys."""
        return [self._strip((line, width, look, lit and line.current)) for line in lines]

    def _strip(self, key: tuple[Line, int, Look, bool]) -> Strip:
        found = self._kept.get(key)
        if found is None:
            line, width, look, lit = key
            strip = Strip(_segments(line, look, lit=lit), len(line.head) + len(line.text))
            found = self._kept[key] = strip.adjust_cell_length(width, base_style(look))
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return found


def _segments(line: Line, look: Look, *, lit: bool) -> list[Segment]:
    base = base_style(look)
    label = line.head.rstrip()
    head = base + face_style("critical" if line.blamed else "bold" if line.current else "text", look)
    if lit and not line.blamed:
        head += face_style("mark", look)
    styles = np.frombuffer(line.styles, np.uint8)
    text = line.text.decode("ascii")
    cuts = [0, *(np.flatnonzero(np.diff(styles)) + 1).tolist(), len(text)]
    runs = [Segment(text[a:b], cell_style(int(styles[a]), look, lit=lit)) for a, b in pairwise(cuts) if b > a]
    return [Segment(label, head), Segment(line.head[len(label) :], base), *runs]


def compose(board: Board, gutter: Gutter) -> tuple[list[Line], Codes]:
    """The content of the rows in view, and the codes of their cells."""
    leads = board.rows.leads(board.top, board.top + board.height)
    cells = board.cells(leads)
    text, styles = _to_width(cells, board.width)
    row = board.row - board.top
    if not len(leads):
        return [], cells.codes
    _mark_cursor(board, text, styles, row, board.members_at_cursor(leads))
    out = []
    for at in range(len(leads)):
        ranks = board.ranks_of(board.top + at)
        blamed = not board.blamed.isdisjoint(ranks)
        _remark(text[at], styles[at], cells.codes[at], board, int(leads[at]))
        failed = not board.model.failed.isdisjoint(ranks)
        group = board.group_label(board.top + at)
        head = head_text(ranks, gutter, current=at == row, blamed=blamed, failed=failed, group=group)
        head = head if board.fresh.isdisjoint(ranks) else f"{head[:-1]}*"
        out.append(Line(head, blamed, at == row, text[at].tobytes(), styles[at].tobytes()))
    return out, cells.codes


def head_text(
    ranks: list[int], gutter: Gutter, *, current: bool, blamed: bool, failed: bool = False, group: str = ""
) -> str:
    """`> 0-11     x12 `: the cursor, `!` for ranks to blame, `E` for others with a cause in a log, ranks, number.

    Before the ranks stands the `group` of a row, if it has one.
    """
    count = f"x{len(ranks)}" if len(ranks) > 1 else ""
    marks = (">" if current else " ") + ("!" if blamed else "E" if failed else " ") + (f"{group} " if group else "")
    label = rank_ranges(ranks)
    width = gutter.label - (len(group) + 1 if group else 0)
    if len(label) <= width:
        return f"{marks}{label:<{width}} {count:>{gutter.note}} "
    room = width + 1 + gutter.note
    words = (f"{len(ranks)} ranks like {ranks[0]}", f"{len(ranks)} like {ranks[0]}", f"{ranks[0]}..")
    return f"{marks}{next((text for text in words if len(text) <= room), words[-1][:room]):<{room}} "


def _to_width(cells: LaneCells, width: int) -> tuple[Codes, Codes]:
    """Text and styles of `cells`, filled up with blanks to `width` characters."""
    missing = width - cells.text.shape[1]
    pad = ((0, 0), (0, max(missing, 0)))
    text = np.pad(cells.text, pad, constant_values=ord(" "))[:, :width]
    return text, np.pad(cells.styles, pad)[:, :width]


def _mark_cursor(board: Board, text: Codes, styles: Codes, row: int, members: np.typing.NDArray[np.bool_]) -> None:
    chars = board.view.chars
    at = board.view.cell_of(board.unit) * chars
    if not 0 <= at < text.shape[1]:
        return
    styles[members, at] |= MEMBER
    if 0 <= row < len(styles):
        styles[row, at : at + min(chars, 2 if chars < 8 else chars)] |= CURSOR


def _remark(text: Codes, styles: Codes, codes: Codes, board: Board, lane: int) -> None:
    """Writes the reason for the end of a row after its last cell, if there is room."""
    if board.view.kind != "sequence":
        return
    known = np.flatnonzero(codes)
    if not len(known):
        return
    last = int(known[-1])
    words = ""
    if codes[last] >> SHIFT == Mark.ABSENT:
        words = "<- never arrived"
    elif codes[last] >> SHIFT == Mark.GONE and board.model.gap_until[lane]:
        reason = REASONS[board.model.gap_reason[lane]]
        words = "<- not logged" if reason == "no dump" and board.model.dataset.from_logs else f"<- {reason}"
    at = (last + 1) * board.view.chars + 1
    if words and at + len(words) <= len(text):
        text[at : at + len(words)] = np.frombuffer(words.encode("ascii"), np.uint8)
        styles[at : at + len(words)] = 0
