"""The cells of the lanes as characters and styles, made from arrays only: no widget, no terminal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankscope.tui.axis import View
from rankscope.tui.letters import (
    CHARACTERS,
    NUMBER,
    PENDING,
    SHIFT,
    SIGNED,
    SILENT,
    Codes,
    Mark,
    crowded,
    edges_in,
    fill_gaps,
    fill_running,
    mark_of,
    name,
    worst,
)
from rankscope.tui.model import Model
from rankscope.tui.times import Times

Ints = NDArray[np.int64]

_SPACE, _DOT, _DASH, _TILDE = (np.uint8(ord(char)) for char in " .-~")
BESIDE = {Mark.SCHEDULED: ".", Mark.LATE: "'", Mark.VERY_LATE: '"'}
"""Characters beside the letter, where there is room: a colour alone tells nobody."""
LABELLED = 8
"""Characters from which a cell also holds the sequence number; with twice as many, the whole name."""


@dataclass(frozen=True)
class LaneCells:
    """The cells of some lanes: characters, and the style of each as `palette.cell_style` numbers them."""

    text: Codes
    styles: Codes
    codes: Codes
    """The code of each cell, before it is spread over its characters."""


def draw(model: Model, times: Times | None, view: View, lanes: Ints, width: int) -> LaneCells:
    """The cells of `lanes` in `width` characters, as lanes x characters."""
    edges = view.edges(width)
    if view.kind == "time" and times is not None:
        codes, text = _on_time(times, lanes, edges)
        return LaneCells(text, marks_of(codes), codes)
    positions = edges_in(model.items.col, model.bounds, lanes, edges)
    codes = fill_gaps(worst(model.items.code, positions), model.gap_until[lanes], edges)
    text = np.where(crowded(positions) & _quiet(codes), _DOT, CHARACTERS[codes])
    if view.chars == 1:
        return LaneCells(text, marks_of(codes), codes)
    styles = marks_of(codes).repeat(view.chars, axis=1)
    return LaneCells(_spread(model, positions, codes, text, view.chars), styles, codes)


def cell_codes(model: Model, times: Times | None, view: View, lanes: Ints, width: int) -> Codes:
    """Only the codes of `draw`."""
    return draw(model, times, View(view.kind, view.first, view.per, 1), lanes, view.cells(width)).codes


def marks_of(codes: Codes) -> Codes:
    """The mark of each code; it decides the style."""
    return (codes >> SHIFT).astype(np.uint8)


def _quiet(codes: Codes) -> NDArray[np.bool_]:
    """Cells with only completed operations: there no single letter stands for the others."""
    quiet: NDArray[np.bool_] = (codes >> SHIFT) == Mark.DONE
    return quiet


def _on_time(times: Times, lanes: Ints, edges: Ints) -> tuple[Codes, Codes]:
    positions = edges_in(times.start, times.bounds, lanes, edges)
    begun = worst(times.code, positions)
    running, _ = times.running(lanes, edges)
    codes = fill_running(begun, running)
    pending = np.isin(running >> SHIFT, PENDING)
    goes_on = np.where(running == 0, _SPACE, np.where(pending, _TILDE, _DASH))
    text = np.where(begun == 0, goes_on, np.where(crowded(positions) & _quiet(begun), _DOT, CHARACTERS[begun]))
    return codes, text.astype(np.uint8)


def _spread(model: Model, positions: Ints, codes: Codes, text: Codes, chars: int) -> Codes:
    """Characters of cells that are `chars` wide: the letter first, then number or name if it fits."""
    lanes, cells = codes.shape
    out = np.full((lanes, cells, chars), _SPACE, np.uint8)
    out[:, :, 0] = text
    for mark, as_if in SIGNED.items():
        odd = (codes >> SHIFT) == mark
        out[odd, 1] = CHARACTERS[(codes[odd] & NUMBER) | np.uint8(as_if << SHIFT)]
    for mark, beside in BESIDE.items():
        out[(codes >> SHIFT) == mark, 1] = ord(beside)
    if chars >= LABELLED:
        for lane, cell in np.argwhere(positions[:, 1:] > positions[:, :-1]).tolist():
            label = _label(model, int(positions[lane, cell]), int(positions[lane, cell + 1]), chars)
            out[lane, cell, : len(label)] = np.frombuffer(label, np.uint8)
    return out.reshape(lanes, cells * chars)


def _label(model: Model, first: int, last: int, chars: int) -> bytes:
    """The letter and the number of the worst item of a cell, or its name and number if they fit."""
    at = first + int(model.items.code[first:last].argmax())
    value, seq = int(model.items.code[at]), int(model.items.seq[at])
    number = str(seq) if seq >= 0 else ""
    letter = chr(CHARACTERS[value])
    wide = chars >= 2 * LABELLED and mark_of(value) not in (*SILENT, *SIGNED)
    word = name(value)[: chars - 2 - len(number)] if wide else letter
    return f"{word}{BESIDE.get(mark_of(value), '')} {number}"[: chars - 1].encode("ascii")
