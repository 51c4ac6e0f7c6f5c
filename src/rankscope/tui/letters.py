"""The cells of lanes: a byte for each, its mark and its letter, the worst of several, and the styles of a theme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.style import Style

from rankscope.analysis.arrays import filled_array
from rankscope.tui.options import Look
from rankscope.tui.themes import base_style, face_style

Codes = NDArray[np.uint8]


class Mark(IntEnum):
    """The meaning of a cell, the worst last: a cell with several operations shows the highest mark."""

    EMPTY = 0
    DONE = 1
    LATE = 2
    """An operation that is over, which its rank issued late; see `late_marks`."""
    VERY_LATE = 3
    UNSURE = 4
    """The operation exists, its state is not known."""
    GONE = 5
    """No row and no known reason: overwritten, filtered, or no dump."""
    MISSING = 6
    """Proven never issued, by a rank that is held up, too."""
    SCHEDULED = 7
    STARTED = 8
    WRONG_NUMBERS = 9
    """An operation that is over, with numbers that break a rule."""
    MISMATCH = 10
    """An operation that differs from the operation of the other members, and is over."""
    MISMATCH_PENDING = 11
    """An operation that differs, and is not over."""
    ABSENT = 12
    """Proven never issued, by a rank that is to blame."""


SHIFT = 4
"""Bits of a code below the mark: the number of the letter."""
LETTERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("O", "other", ()),
    ("Y", "barrier", ("barrier",)),
    ("A", "all_reduce", ("all_reduce", "allreduce")),
    ("R", "reduce_scatter", ("reduce_scatter", "reducescatter")),
    ("G", "all_gather", ("all_gather", "allgather")),
    ("T", "all_to_all", ("all_to_all", "alltoall")),
    ("B", "broadcast", ("broadcast",)),
    ("S", "send", ("send",)),
    ("V", "recv", ("recv",)),
    ("H", "gather", ("gather",)),
    ("C", "scatter", ("scatter",)),
    ("D", "reduce", ("reduce",)),
    ("K", "coalesced", ("coalesced",)),
)
"""Letter, what the legend says, and the parts of a name that call for it; the first that fits."""
NUMBER = (1 << SHIFT) - 1
"""The bits of a code that are the number of the letter."""
SILENT = (Mark.EMPTY, Mark.GONE, Mark.MISSING, Mark.ABSENT)
"""Marks of absent operations: they have no letter."""

PENDING = (Mark.SCHEDULED, Mark.STARTED)
"""Marks of unfinished operations that fit the others."""
OVER = (Mark.DONE, Mark.LATE, Mark.VERY_LATE)
"""Marks of operations that are over and fit the others."""
DIFFERING = (Mark.MISMATCH, Mark.MISMATCH_PENDING)
"""Marks of operations that differ from those of the other members."""
SIGNED: Mapping[Mark, Mark] = {
    Mark.MISMATCH: Mark.DONE, Mark.MISMATCH_PENDING: Mark.STARTED, Mark.WRONG_NUMBERS: Mark.DONE
}  # fmt: skip
"""Marks of operations with a sign in place of their letter, and the mark whose letter stands beside it."""
_SIGNS = {
    Mark.EMPTY: " ", Mark.GONE: "?", Mark.MISMATCH: "*", Mark.MISMATCH_PENDING: "*", Mark.MISSING: "!",
    Mark.ABSENT: "!", Mark.WRONG_NUMBERS: "%",
}  # fmt: skip


def letter_number(op: str | None) -> int:
    """The number of the letter for an operation, by its name without library."""
    name = (op or "").lower()
    for number, (_, _, parts) in enumerate(LETTERS):
        if any(part in name for part in parts):
            return number
    return 0


def op_codes(ops: pl.DataFrame) -> Codes:
    """The code of each row of ops: mark from its state, letter from its name."""
    marks, letters = _by_name(ops["state"], _mark_number), _by_name(ops["op"], letter_number)
    codes: Codes = (marks << np.uint8(SHIFT)) | letters
    return codes


_MARKS = {"scheduled": Mark.SCHEDULED, "started": Mark.STARTED, "completed": Mark.DONE}


def _mark_number(state: str | None) -> int:
    return int(_MARKS.get(state or "", Mark.UNSURE))


def _by_name(names: pl.Series, number: Callable[[str | None], int]) -> Codes:
    """The result of `number` for each name; called once for each existing name."""
    physical = names.to_physical().cast(pl.UInt32)
    last = physical.max()
    # the place after the last stands for null
    places = filled_array(physical, last + 1 if isinstance(last, int) else 0)
    row_of = np.full(int(places.max(initial=0)) + 1, -1, np.int32)
    row_of[places] = np.arange(len(places), dtype=np.int32)
    there = np.flatnonzero(row_of >= 0)
    table = np.zeros(len(row_of), np.uint8)
    table[there] = [number(name) for name in names.gather(row_of[there]).cast(pl.String).to_list()]
    codes: Codes = table.take(places)
    return codes


def code(mark: Mark, number: int = 0) -> int:
    """The code of a mark with a letter."""
    return (mark << SHIFT) | number


def mark_of(value: int) -> Mark:
    """The mark of a code."""
    return Mark(value >> SHIFT)


def _character(value: int) -> str:
    mark, number = mark_of(value), value & NUMBER
    letter = LETTERS[number][0] if number < len(LETTERS) else "O"
    return letter.lower() if mark in PENDING else _SIGNS.get(mark, letter)


CODES = len(Mark) << SHIFT
"""One more than the highest code."""
CHARACTERS: Codes = np.frombuffer("".join(map(_character, range(CODES))).encode("ascii"), np.uint8)
"""The character of each code."""


def name(value: int) -> str:
    """The operation of a code in the legend; upper or lower case tells whether it is done."""
    number = value & NUMBER
    text = LETTERS[number][1] if number < len(LETTERS) else "other"
    return text if mark_of(value) in PENDING else text.upper()


_MEANINGS = (
    ((Mark.ABSENT, Mark.MISSING), "! never issued"), (DIFFERING, "* differs"),
    ((Mark.WRONG_NUMBERS,), "% numbers off"), (PENDING, "lower case waits"),
    ((Mark.SCHEDULED,), "a. only queued"),
    ((Mark.LATE,), "A' late"), ((Mark.VERY_LATE,), 'A" very late'),
    ((Mark.GONE,), "? not known"), ((Mark.UNSURE,), "grey state unknown"),
)  # fmt: skip
"""The meaning of marks in few words, the most important first."""
_QUOTED = ("A' late", 'A" very late')
"""Meanings of marks that stand beside the letter, and so not in cells of one character."""


def legend(present: Codes, *, narrow: bool = False) -> list[str]:
    """The meaning of each of these codes: marks, then letters, then blanks.

    `narrow` cells have one character, so none has the dot of what is only queued.
    """
    marks = {mark_of(int(value)) for value in present} - ({Mark.SCHEDULED} if narrow else set())
    marks |= {Mark.STARTED} if any(mark_of(int(value)) in PENDING for value in present) else set()
    words = [meaning for of, meaning in _MEANINGS if not marks.isdisjoint(of)]
    words = ["shaded late" if narrow and word in _QUOTED else word for word in dict.fromkeys(words)]
    numbers = sorted({int(v) & NUMBER for v in present if mark_of(int(v)) not in SILENT})
    words += [f"{LETTERS[n][0]} {LETTERS[n][1]}" for n in numbers if n < len(LETTERS)]
    return [*dict.fromkeys(words), *(["blank nothing"] if Mark.EMPTY in marks else [])]


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
    Mark.DONE: "done", Mark.LATE: "late", Mark.VERY_LATE: "later", Mark.UNSURE: "unsure", Mark.GONE: "gone",
    Mark.SCHEDULED: "scheduled", Mark.STARTED: "started",
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


Ints = NDArray[np.int64]


def find(values: NDArray[np.integer], low: Ints, high: Ints, wanted: Ints) -> Ints:
    """For each element, the first position in `values[low:high]` not below `wanted`; all arrays have one shape.

    A binary search in many lanes at once: its cost does not depend on the number of other lanes.
    """
    low, high = low.copy(), high.copy()
    if not len(values):
        return low
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        middle = (low + high) >> 1
        below = (values[np.minimum(middle, len(values) - 1)] < wanted) & (low < high)
        low = np.where(below, middle + 1, low)
        high = np.where(below, high, middle)
    return low


def edges_in(values: NDArray[np.integer], bounds: Ints, lanes: Ints, edges: Ints) -> Ints:
    """Positions in `values` of the cell edges of each lane, as lanes x edges."""
    shape = (len(lanes), len(edges))
    low = np.broadcast_to(bounds[lanes][:, None], shape)
    high = np.broadcast_to(bounds[lanes + 1][:, None], shape)
    return find(values, low, high, np.broadcast_to(edges[None, :], shape))


def worst(codes: Codes, positions: Ints) -> Codes:
    """The highest code between neighbouring positions of each lane; 0 where there is none."""
    lanes, count = positions.shape
    if count < 2 or not lanes:
        return np.zeros((lanes, max(count - 1, 0)), np.uint8)
    first, last = positions[:, 0], positions[:, -1]
    flat = np.concatenate(
        [*(codes[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)), np.zeros(1, np.uint8)]
    )
    shift = np.concatenate([[0], np.cumsum(last - first)])[:-1] - first
    local = (positions + shift[:, None]).ravel()
    found: Codes = np.maximum.reduceat(flat, local).reshape(lanes, count)[:, :-1]
    return np.where(positions[:, 1:] > positions[:, :-1], found, 0).astype(np.uint8)


def crowded(positions: Ints) -> NDArray[np.bool_]:
    """Cells that hold more than one operation."""
    return np.diff(positions, axis=1) > 1


def fill_gaps(cells: Codes, until: Ints, edges: Ints) -> Codes:
    """Marks cells before the first row of a lane: older rows were overwritten, or there is no dump."""
    gone = (edges[None, 1:] <= until[:, None]) & (cells < (Mark.GONE << SHIFT))
    return np.where(gone, np.uint8(Mark.GONE << SHIFT), cells)


def fill_running(cells: Codes, running: Codes) -> Codes:
    """Marks cells without a start with the operation that still runs there."""
    return np.where(cells == 0, running, cells)
