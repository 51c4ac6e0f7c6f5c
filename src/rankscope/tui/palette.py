"""The colours of the lanes, for terminals with any number of colours. Letters carry the full meaning without colours.

The colours are those of Okabe and Ito ("Color universal design", 2008): people with any colour vision can tell them
apart. For 256 colours they are indices of the fixed colour cube, so no program on the way rounds them.
"""

from __future__ import annotations

from functools import cache

from rich.color import Color
from rich.style import Style

from rankscope.tui.letters import Mark
from rankscope.tui.options import Palette

MEMBER = 16
"""Added to a style: the cell belongs to the collective under the cursor."""
CURSOR = 32
"""Added to a style: the cell is under the cursor."""
BUSY, COPY, HOST, PATIENT, FAINT, THIN = range(len(Mark), len(Mark) + 6)
"""Styles beside those of marks: a device computes, data moves, a host works, a host waits, nothing happens, a device
computes now and then."""

_INK = {"black": ("#000000", 16, 0, 0), "white": ("#ffffff", 231, 15, 7)}
_GROUND = {
    "blue": ("#005a8c", 24, 4, 4),
    "sky": ("#56b4e9", 74, 14, 6),
    "orange": ("#e69f00", 178, 11, 3),
    "vermillion": ("#d55e00", 166, 9, 1),
    "purple": ("#cc79a7", 175, 13, 5),
    "grey": ("#4e4e4e", 239, 8, 0),
    "green": ("#009e73", 36, 10, 2),
}
_CELLS: dict[int, tuple[str, str | None, str]] = {
    Mark.DONE: ("white", "blue", ""),
    Mark.UNSURE: ("white", "grey", ""),
    Mark.GONE: ("white", "grey", ""),
    Mark.SCHEDULED: ("black", "orange", ""),
    Mark.STARTED: ("black", "sky", ""),
    Mark.MISMATCH: ("black", "purple", "bold"),
    Mark.MISMATCH_PENDING: ("black", "purple", "bold"),
    Mark.MISSING: ("vermillion", None, "bold"),
    Mark.ABSENT: ("white", "vermillion", "bold"),
    BUSY: ("black", "green", ""),
    COPY: ("black", "purple", ""),
    HOST: ("white", "grey", ""),
    PATIENT: ("sky", None, ""),
    THIN: ("green", None, "bold"),
}
_BARE: dict[int, str] = {
    Mark.DONE: "", Mark.UNSURE: "", Mark.GONE: "", Mark.SCHEDULED: "bold", Mark.STARTED: "bold",
    Mark.MISMATCH: "bold", Mark.MISMATCH_PENDING: "bold", Mark.MISSING: "bold", Mark.ABSENT: "bold",
}  # fmt: skip
_COLUMN = {"true": 0, "256": 1, "16": 2, "8": 3}


def colour(name: str, palette: Palette) -> Color | None:
    """A colour of this module by its name; None where the terminal has no colours."""
    if palette == "none":
        return None
    value = {**_INK, **_GROUND}[name][_COLUMN[palette]]
    return Color.parse(value) if isinstance(value, str) else Color.from_ansi(value)


@cache
def cell_style(number: int, palette: Palette) -> Style:
    """The style of a cell: a mark, with MEMBER and CURSOR added if they apply."""
    base = _base(number % MEMBER, palette)
    if number & CURSOR:
        return base + Style(reverse=True, bold=True)
    return base + Style(underline=True) if number & MEMBER else base


def _base(number: int, palette: Palette) -> Style:
    if palette == "none":
        return Style.parse(_BARE.get(number, "") or "none")
    if number not in _CELLS:
        return Style()
    ink, ground, extra = _CELLS[number]
    back = None if ground is None else colour(ground, palette)
    return Style(color=colour(ink, palette), bgcolor=back, bold=extra == "bold")


def named(name: str, palette: Palette, *, bold: bool = False) -> Style:
    """Text in one of the colours: for verdicts and hints. Without colours only bold is left."""
    return Style(color=colour(name, palette), bold=bold)


def badge(name: str, palette: Palette) -> Style:
    """A word on a ground of one of the colours."""
    if palette == "none":
        return Style(bold=True, reverse=True)
    ink = "white" if name in ("vermillion", "blue", "grey", "green") else "black"
    return Style(color=colour(ink, palette), bgcolor=colour(name, palette), bold=True)


_HEAT: tuple[tuple[str, str | None], ...] = (
    ("sky", None), ("white", "grey"), ("white", "blue"), ("black", "orange"), ("white", "vermillion"),
)  # fmt: skip
"""Ink and ground of the cells of a heat map, the hottest last."""


def heat_style(level: int, palette: Palette) -> Style:
    """The style of a cell of a heat map, `level` 0 to 4; the digit in the cell has the same meaning."""
    if palette == "none":
        return Style(bold=level == len(_HEAT) - 1)
    ink, ground = _HEAT[level]
    back = None if ground is None else colour(ground, palette)
    return Style(color=colour(ink, palette), bgcolor=back, bold=level == len(_HEAT) - 1)
