"""A driver that sends only changed cells; over a slow link it waits until the terminal has drawn them."""

from __future__ import annotations

import os
import re
import threading
from asyncio import TimerHandle
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from rich.cells import cell_len
from textual import events
from textual._ansi_sequences import SYNC_END, SYNC_START
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

ASK = "\x1b[2;1H\x1b[6n"
"""Asks the terminal for the place of its cursor: it answers after it has drawn the data before.

The cursor moves to the second line first: an answer from the first line looks like a function key.
"""
_MOVES = re.compile(r"\x1b\[[0-9;]*H")
PATIENCE = 2.0
"""Seconds without an answer after which the driver stops waiting for the terminal."""


class ChangedCellsDriver(LinuxDriver):
    """Keeps the cells of the terminal, and sends only changes."""

    waits = False
    """Whether to wait for the terminal before the next frame."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self._cells: ChangedCells | None = None
        self._synchronized = False
        self._timer: TimerHandle | None = None
        """Runs while an answer of the terminal is due."""
        self._answer = threading.Event()

    def write(self, data: str) -> None:
        """Sends data to the terminal: only the changed cells of a frame, all other data as it is."""
        if data in (SYNC_START, SYNC_END):
            self._synchronized = True
            return
        if "\x1b[" in data and self._grid().draw(data):
            self._send()
            return
        if _MOVES.search(data):
            self.forget()
        super().write(data)

    def _grid(self) -> ChangedCells:
        """The cells of the terminal; they are unknown after its size has changed."""
        width, height = self._app.size
        if self._cells is None or (self._cells.width, self._cells.height) != (width, height):
            self._cells = ChangedCells(width, height, erases_in_colour=erases_in_colour(os.environ))
        return self._cells

    def _send(self) -> None:
        if self._timer is not None or self._cells is None:
            return
        changes = self._cells.changes()
        if not changes:
            return
        ask = ASK if self.waits else ""
        start, end = (SYNC_START, SYNC_END) if self._synchronized else ("", "")
        self._answer.clear()
        super().write(f"{start}{changes}{end}{ask}")
        if self.waits:
            self._timer = self._loop.call_later(PATIENCE, self._lost_patience)

    def _lost_patience(self) -> None:
        self.waits = False
        self._timer = None
        self._send()

    def _answered(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._send()

    def process_message(self, message: Message) -> None:
        """Removes the terminal's answers from the input; runs in the thread that reads keys."""
        if isinstance(message, events.CursorPosition):
            self._answer.set()
            self._loop.call_soon_threadsafe(self._answered)
            return
        super().process_message(message)

    def start_application_mode(self) -> None:
        """Takes the terminal; its cells are unknown then."""
        self.forget()
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def stop_application_mode(self) -> None:
        """Gives the terminal back after its last answer, which would otherwise reach the command line."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._answer.wait(PATIENCE)
        super().stop_application_mode()

    def forget(self) -> None:
        """Sends all cells again with the next frame."""
        if self._cells is not None:
            self._cells.forget()


def driver_for(*, waits: bool) -> type[ChangedCellsDriver]:
    """The class of driver for a link: over a slow one it waits for the terminal."""
    return type("ChangedCellsDriver", (ChangedCellsDriver,), {"waits": waits})


_TOKEN = re.compile(r"\x1b\[([0-9;]*)([Hm])|([^\x1b\n\r]+)|([\n\r])")
_DISPUTED = re.compile(r"[^\x00-\x7f\u2500-\u259f]")
"""Characters of uncertain width: terminals differ. Lines with them are sent whole."""
GAP = 4
"""Most unchanged cells between two changed ones that are sent again: a move over them takes as many bytes."""
BLANKS = 4
"""Least number of blanks at the end of a line that are erased instead of written."""

Cell = tuple[str, str]
"""The character ("" behind a wide one) and the parameters of its SGR sequence."""
_BLANK: Cell = (" ", "")


class ChangedCells:
    """The cells that the terminal shows, and the wanted cells."""

    def __init__(self, width: int, height: int, *, erases_in_colour: bool = True) -> None:
        self.width, self.height = width, height
        self._erases_in_colour = erases_in_colour
        self._wanted: list[list[Cell]] = [[_BLANK] * width for _ in range(height)]
        self._shown: list[list[Cell] | None] = [None] * height

    def forget(self) -> None:
        """Makes the next `changes` send everything: the cells of the terminal are unknown."""
        self._shown = [None] * self.height

    def draw(self, frame: str) -> bool:
        """Reads a frame of cursor moves, styles and text; False, with no effect, if it holds anything else."""
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
        """Puts text into the wanted cells; returns the column after it."""
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
        """The data that makes the terminal show the wanted cells; "" if it does already."""
        out: list[str] = []
        style = self._clear(out) if not any(self._shown) else ""
        for row, (wanted, shown) in enumerate(zip(self._wanted, self._shown, strict=True)):
            if wanted == shown:
                continue
            for start, end in _stretches(wanted, shown):
                out.append(f"\x1b[{row + 1};{start + 1}H")
                cells = wanted[start:end]
                blanks = self._blanks_at_end(cells) if end == self.width else 0
                style = _send(cells, blanks, out, style)
            self._shown[row] = list(wanted)
        if style:
            out.append("\x1b[m")
        return "".join(out)

    def _clear(self, out: list[str]) -> str:
        """Erases all lines in the style of most blanks, so that these are not sent; returns the style."""
        blanks = Counter(style for line in self._wanted for char, style in line if char == " ")
        style = next(iter(blanks.most_common(1)), ("", 0))[0]
        if not self._can_erase(style):
            return ""
        # line by line: tmux forgets the ground when it erases all at once
        lines = "".join(f"\x1b[{row};1H\x1b[K" for row in range(1, self.height + 1))
        out.append(f"\x1b[{_change('', style)}m{lines}")
        self._shown = [[(" ", style)] * self.width for _ in self._wanted]
        return style

    def _can_erase(self, style: str) -> bool:
        return not style or (self._erases_in_colour and _parts(style).attributes <= {"1", "2"})

    def _blanks_at_end(self, cells: list[Cell]) -> int:
        """The number of blanks of one style at the end of some cells that the terminal can erase."""
        style = cells[-1][1]
        if not self._can_erase(style):
            return 0
        blank = (" ", style)
        blanks = next((i for i, cell in enumerate(reversed(cells)) if cell != blank), len(cells))
        return blanks if blanks > BLANKS else 0


@lru_cache(1024)
def _style(parameters: str) -> str:
    """The parameters of a style without those that have no effect after a reset."""
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
    """The different parts of a line, as (first, one after the last); near ones are joined."""
    if shown is None or _DISPUTED.search("".join(char for char, _ in (*wanted, *shown))):
        return [(0, len(wanted))]
    changed = [at for at, (new, old) in enumerate(zip(wanted, shown, strict=True)) if new != old]
    breaks = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(changed)) if b - a > GAP), len(changed)]
    return [(changed[a], changed[b - 1] + 1) for a, b in pairwise(breaks)]


def _send(cells: list[Cell], blanks: int, out: list[str], style: str) -> str:
    """Adds the sequences for neighbouring cells to `out`, the last `blanks` erased; returns the style after them."""
    written = cells[: len(cells) - blanks]
    for char, wanted in [*written, ("\x1b[K", cells[-1][1])] if blanks else written:
        if wanted != style:
            out.append(f"\x1b[{_change(style, wanted)}m")
            style = wanted
        out.append(char)
    return style


class _Parts(NamedTuple):
    attributes: frozenset[str]
    ink: str
    ground: str


_OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "7": "27", "9": "29"}


@lru_cache(1024)
def _parts(style: str) -> _Parts:
    """The attributes and the two colours in the parameters of a style."""
    left, attributes = style.split(";"), set()
    ink = ground = ""
    while left and left != [""]:
        count = {"5": 3, "2": 5}.get(left[1], 1) if left[0] in ("38", "48") and len(left) > 1 else 1
        value, left = ";".join(left[:count]), left[count:]
        if value[0] in "39" and len(value) > 1:
            ink = value
        elif value[0] in "41" and len(value) > 1:
            ground = value
        else:
            attributes.add(value)
    return _Parts(frozenset(attributes), ink, ground)


@lru_cache(4096)
def _change(before: str, after: str) -> str:
    """The shortest parameters that lead from one style to another: "" resets everything."""
    if not after:
        return ""
    old, new = _parts(before), _parts(after)
    gone = old.attributes - new.attributes
    off = {_OFF.get(one, "0") for one in gone}
    # one sequence turns off both bold and dim
    again = new.attributes & {"1", "2"} if "22" in off else frozenset()
    codes = [*sorted(off), *sorted((new.attributes - old.attributes) | again)]
    codes += [new.ink or "39"] if new.ink != old.ink else []
    codes += [new.ground or "49"] if new.ground != old.ground else []
    whole = f"0;{after}"
    # terminals without colours may not know the sequences that turn off one attribute
    return whole if gone and ("0" in off or not new.ink + new.ground) else min(";".join(codes), whole, key=len)


def erases_in_colour(environ: Mapping[str, str]) -> bool:
    """Whether the terminal erases with the present ground: GNU screen does not, tmux under the same name does."""
    return not environ.get("TERM", "").startswith("screen") or "TMUX" in environ
