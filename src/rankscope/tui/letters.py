"""One letter for each operation, and one byte for each cell of the lanes: its mark, and its letter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.arrays import filled_array

Codes = NDArray[np.uint8]


class Mark(IntEnum):
    """The meaning of a cell, the worst last: a cell with several operations shows the highest mark."""

    EMPTY = 0
    DONE = 1
    UNSURE = 2
    """The operation exists, its state is not known."""
    GONE = 3
    """No row and no known reason: overwritten, filtered, or no dump."""
    MISSING = 4
    """Proven never issued, by a rank that is held up, too."""
    SCHEDULED = 5
    STARTED = 6
    WRONG_NUMBERS = 7
    """An operation that is over, with numbers that break a rule."""
    MISMATCH = 8
    """An operation that differs from the operation of the other members, and is over."""
    MISMATCH_PENDING = 9
    """An operation that differs, and is not over."""
    ABSENT = 10
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
    ((Mark.WRONG_NUMBERS,), "% numbers off"), (PENDING, "lower case pending"),
    ((Mark.GONE,), "? not known"), ((Mark.UNSURE,), "grey state unknown"),
)  # fmt: skip
"""The meaning of marks in few words, the most important first."""


def legend(present: Codes, width: int) -> str:
    """The meaning of these codes in at most `width` characters: marks, then letters, then blanks."""
    marks = {mark_of(int(value)) for value in present}
    words = [meaning for of, meaning in _MEANINGS if not marks.isdisjoint(of)]
    numbers = sorted({int(v) & NUMBER for v in present if mark_of(int(v)) not in SILENT})
    words += [f"{LETTERS[n][0]} {LETTERS[n][1]}" for n in numbers if n < len(LETTERS)]
    words += ["blank nothing"] if Mark.EMPTY in marks else []
    kept = ""
    for word in words:
        kept += f"  {word}" if len(kept) + len(word) + (2 if kept else 0) <= width else ""
        kept = kept.lstrip()
    return kept
