"""The whole run in one line: the worst code of all lanes in each column of the screen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.tui.letters import CODES, SHIFT, Codes, Mark
from rankscope.tui.model import Model
from rankscope.tui.times import Times

_CHARACTERS = {
    Mark.DONE: ".", Mark.LATE: ",", Mark.VERY_LATE: ";",
    Mark.UNSURE: ".", Mark.GONE: "?", Mark.SCHEDULED: "#", Mark.STARTED: "#", Mark.MISMATCH: "*",
    Mark.MISMATCH_PENDING: "*", Mark.ABSENT: "!", Mark.MISSING: "#", Mark.WRONG_NUMBERS: "%",
}  # fmt: skip
TABLE: Codes = np.frombuffer(
    "".join(_CHARACTERS.get(Mark(v >> SHIFT), " ") for v in range(CODES)).encode("ascii"), np.uint8
)
"""The character of each code in the overview."""


@dataclass(frozen=True)
class Strip:
    """Equal stretches of the run, each in one character."""

    low: int
    high: int
    """Units at which the run begins and ends."""
    text: str

    def window(self, first: int, last: int) -> tuple[int, int]:
        """Cells of the part of the run from `first` up to `last`: the first, and one after the last."""
        size, count = max(self.high - self.low, 1), len(self.text)
        begin = min(max((first - self.low) * count // size, 0), max(count - 1, 0))
        return begin, min(max(-(-(last - self.low) * count // size), begin + 1), count)


def _strip_of_codes(low: int, high: int, codes: Codes) -> Strip:
    text = TABLE[codes].tobytes().decode("ascii")
    return Strip(low, high, text)


def worst_by_column(model: Model) -> Codes:
    """The worst code of all lanes in each column."""
    items, out = model.items, np.zeros(max(model.width, 1), np.uint8)
    np.maximum.at(out, items.col, items.code)
    return out


def sequence_strip(columns: Codes, width: int) -> Strip:
    """The overview of the sequence axis in at most `width` cells."""
    count = min(len(columns), max(width, 1))
    starts = np.arange(count) * len(columns) // count
    return _strip_of_codes(0, len(columns), np.maximum.reduceat(columns, starts))


def time_strip(times: Times, width: int) -> Strip:
    """The overview of the time axis in `width` cells: operations that start or go on; those without end go on."""
    count = max(width, 1)
    out = np.zeros(count, np.uint8)
    size = max(times.high - times.low, 1)
    share = (times.start - times.low) / size
    cells = np.clip((share * count).astype(np.int64), 0, count - 1)
    np.maximum.at(out, cells, times.code)
    ends = np.minimum(times.end, times.high) - times.low
    last = np.clip((ends / size * count).astype(np.int64), cells, count - 1)
    busy = np.zeros(count + 1, np.int64)
    np.add.at(busy, cells, 1)
    np.add.at(busy, last + 1, -1)
    out = np.where((out == 0) & (np.cumsum(busy)[:count] > 0), np.uint8(Mark.DONE << SHIFT), out)
    marks = times.code >> SHIFT
    pending = (marks == Mark.SCHEDULED) | (marks == Mark.STARTED)
    forever = np.zeros(count, np.uint8)
    np.maximum.at(forever, cells[pending], times.code[pending])
    return _strip_of_codes(times.low, times.high, np.maximum(out, np.maximum.accumulate(forever)))
