"""Finds out which cells of the terminal a frame changes, so that nothing else has to be sent.

Textual repaints whole widgets and resets the style after every piece of text; over a slow link nine tenths of the
bytes are colours of cells that stay as they are.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

from rich.cells import cell_len

_TOKEN = re.compile(r"\x1b\[([0-9;]*)([Hm])|([^\x1b\n\r]+)|([\n\r])")
_DISPUTED = re.compile(r"[^\x00-\x7f\u2500-\u259f]")
"""Characters of whose width terminals may think otherwise: their lines are sent whole."""
GAP = 4
"""So many unchanged cells between two changed ones are sent again: moving over them takes as many bytes."""
BLANKS = 4
"""So many blanks at the end of a line are erased instead of written."""

Cell = tuple[str, str]
"""The character ("" behind a wide one) and the parameters of its SGR sequence."""
_BLANK: Cell = (" ", "")


class Cells:
    """What the terminal shows, and what it is to show."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self._wanted: list[list[Cell]] = [[_BLANK] * width for _ in range(height)]
        self._shown: list[list[Cell] | None] = [None] * height

    def forget(self) -> None:
        """Everything has to be sent again: nobody knows what the terminal shows."""
        self._shown = [None] * self.height

    def draw(self, frame: str) -> bool:
        """Takes in a frame of cursor moves, styles and text; False, and nothing done, if it holds anything else."""
        tokens = list(_TOKEN.finditer(frame))
        if sum(len(token[0]) for token in tokens) != len(frame):
            return False
        row = column = 0
        style = ""
        for token in tokens:
            if token[2] == "H":
                row, column = _position(token[1])
            elif token[2] == "m":
                style = _style(token[1])
            elif token[3]:
                column = self._write(row, column, token[3], style)
        return True

    def _write(self, row: int, column: int, text: str, style: str) -> int:
        """Puts text into the wanted cells; the column after it."""
        cells = [(char, style) for char in text] if text.isascii() else _wide_cells(text, style)
        end = column + len(cells)
        if 0 <= row < self.height and column < self.width:
            line = self._wanted[row]
            if line[column][0] == "" and column:
                line[column - 1] = (" ", line[column - 1][1])
            if end < self.width and line[end][0] == "":
                line[end] = (" ", line[end][1])
            line[column : min(end, self.width)] = cells[: self.width - column]
        return end

    def changes(self) -> str:
        """What to send so that the terminal shows what it is to show; "" if it does."""
        out: list[str] = []
        style = ""
        for row, (wanted, shown) in enumerate(zip(self._wanted, self._shown, strict=True)):
            if wanted == shown:
                continue
            for start, end in _stretches(wanted, shown):
                out.append(f"\x1b[{row + 1};{start + 1}H")
                style = _send(wanted[start:end], out, style, to_end=end == self.width)
            self._shown[row] = list(wanted)
        if style:
            out.append("\x1b[m")
        return "".join(out)


@lru_cache(1024)
def _style(parameters: str) -> str:
    """The parameters of a style without those that change nothing after a reset."""
    if "38" in parameters or "48" in parameters:
        return parameters
    return ";".join(part for part in parameters.split(";") if part not in ("", "0", "39", "49"))


def _position(parameters: str) -> tuple[int, int]:
    """Row and column of a cursor move, from 0."""
    row, _, column = parameters.partition(";")
    return int(row or 1) - 1, int(column.partition(";")[0] or 1) - 1


def _wide_cells(text: str, style: str) -> list[Cell]:
    cells: list[Cell] = []
    for char in text:
        size = cell_len(char)
        if size:
            cells += [(char, style), *[("", style)] * (size - 1)]
        elif cells:
            at = next(i for i in range(len(cells) - 1, -1, -1) if cells[i][0] or not i)
            cells[at] = (cells[at][0] + char, style)
    return cells


def _stretches(wanted: list[Cell], shown: list[Cell] | None) -> list[tuple[int, int]]:
    """Where a line differs, as (first, one after the last); near ones are joined."""
    if shown is None or _DISPUTED.search("".join(char for char, _ in (*wanted, *shown))):
        return [(0, len(wanted))]
    changed = [at for at, (new, old) in enumerate(zip(wanted, shown, strict=True)) if new != old]
    breaks = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(changed)) if b - a > GAP), len(changed)]
    return [(changed[a], changed[b - 1] + 1) for a, b in pairwise(breaks)]


def _send(cells: list[Cell], out: list[str], style: str, *, to_end: bool) -> str:
    """Adds the sequences for neighbouring cells to `out`; the style that holds after them."""
    blanks = 0
    if to_end:
        blanks = next((i for i, cell in enumerate(reversed(cells)) if cell != _BLANK), len(cells))
    for char, wanted in cells[: len(cells) - blanks] if blanks > BLANKS else cells:
        if wanted != style:
            out.append(f"\x1b[0;{wanted}m" if wanted else "\x1b[m")
            style = wanted
        out.append(char)
    if blanks > BLANKS:
        out.append("\x1b[m\x1b[K" if style else "\x1b[K")
        style = ""
    return style
