"""The styles of a theme, for terminals with any number of colours. Letters carry the full meaning without colours."""

from __future__ import annotations

from functools import cache

from rich.style import Style

from rankscope.tui.letters import Mark
from rankscope.tui.options import Look
from rankscope.tui.themes import base_style, face_style

MEMBER = 32
"""Added to a style: the cell belongs to the collective under the cursor."""
CURSOR = 64
"""Added to a style: the cell is under the cursor."""
BUSY, COPY, HOST, PATIENT, FAINT, THIN = range(len(Mark), len(Mark) + 6)
"""Styles beside those of marks: a device computes, data moves, a host works, a host waits, nothing happens, a device
computes now and then."""
HELD = THIN + 1
"""The first of five styles for memory that a rank holds, the fullest last."""
_CELLS: dict[int, str] = {
    Mark.DONE: "done", Mark.UNSURE: "unsure", Mark.GONE: "gone", Mark.SCHEDULED: "scheduled", Mark.STARTED: "started",
    Mark.MISMATCH: "mismatch", Mark.MISMATCH_PENDING: "mismatch", Mark.MISSING: "missing", Mark.ABSENT: "absent",
    Mark.WRONG_NUMBERS: "mismatch",
    BUSY: "busy", COPY: "copy", HOST: "host", PATIENT: "patient", FAINT: "faint", THIN: "thin",
    **{HELD + at: f"heat{at}" for at in range(5)},
}  # fmt: skip
"""The face of each style of a cell."""


@cache
def cell_style(number: int, look: Look, *, lit: bool = True) -> Style:
    """The style of a cell: a mark, with MEMBER and CURSOR added if they apply; `lit` where the lanes have the keys."""
    base = base_style(look) + face_style(_CELLS.get(number % MEMBER, "text"), look)
    if number & CURSOR:
        # reversed twice would be as if it were not under the cursor
        return base + (Style(bold=True, reverse=not base.reverse) if lit else Style(bold=True, underline=True))
    return base + Style(underline=True) if number & MEMBER else base
