"""Values that entries put into the memo, and which entries may be left out.

The recorder puts only texts and frames there. Python's pickler puts every list, tuple and dict, each under the next
index. An entry with such a value may be left out only if nothing refers to it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from rankscope.parsers.flight_recorder.entry_forms import EntryForm
from rankscope.parsers.flight_recorder.opcodes import (
    GET1,
    GET4,
    MEMOIZE,
    PUT1,
    PUT4,
    OtherLayoutError,
    walk_opcodes,
)
from rankscope.parsers.matrices import Mask, Numbers
from rankscope.parsers.safe_values import SafeUnpickler

ENTRIES_PER_PUT = 16
"""If at most one of so many entries puts a value into the memo, those entries are not left out."""


class MemoPuts:
    """The memo values of each entry: first and last index where the file writes them, or the number of values."""

    def __init__(self, count: int) -> None:
        self.first = np.zeros(count, np.int64)
        self.last = np.full(count, -1, np.int64)
        self.rising = np.ones(count, np.bool_)
        """Whether each index is greater than the one before it."""
        self.implied = np.full(count, -1, np.int64)
        """The number of values without a written index, which take the next one; -1 if it is not known."""

    def note(self, which: Numbers, form: EntryForm, words: Numbers, starts: Numbers) -> None:
        """Notes the written puts of the entries `which`, of one form, that begin at `starts`; `words` begin at each
        byte."""
        masks = np.array([(1 << 8 * put.size) - 1 for put in form.puts])
        written = words[starts[:, None] + np.array([put.at for put in form.puts])] & masks
        self.first[which], self.last[which] = written[:, 0], written[:, -1]
        self.rising[which] = (np.diff(written, axis=1) > 0).all(axis=1)

    def assign_indices(self, data: bytes, starts: Numbers, ends: Numbers, known: int) -> None:
        """Gives an index to values without one. `known` is the size of the memo before the first entry.

        Raises OtherLayoutError if the file mixes both ways to write them.
        """
        if not (self.implied > 0).any():
            return
        if (self.last >= 0).any():
            raise OtherLayoutError("memo entries with and without an index")
        for place in np.flatnonzero(self.implied[:-1] < 0).tolist():
            self.implied[place] = _implied(data, int(starts[place]), int(ends[place]))
        next_index = known + np.cumsum(self.implied)
        self.first, self.last = next_index - self.implied, next_index - 1

    def unused(self, left_out: Mask, without: Callable[[Mask], bytes]) -> Mask:
        """The entries of `left_out` whose memo values nothing refers to in the dump `without` them.

        Each of them has the references of one that is there.
        """
        some = left_out & (self.last >= self.first)
        if np.count_nonzero(some) * ENTRIES_PER_PUT <= np.count_nonzero(left_out):
            return left_out & ~some
        referred = _referred(without(left_out))
        kept = left_out & self.rising
        return kept & (np.searchsorted(referred, self.last, "right") <= np.searchsorted(referred, self.first))

    def check(self, reader: SafeUnpickler, left_out: Mask) -> None:
        """Raises OtherLayoutError if left-out entries put two values under one index, or the reader of the others has
        one there."""
        some = left_out & (self.last >= self.first)
        if (self.implied[left_out] > 0).any() or not some.any():
            return
        first, last = self.first[some], self.last[some]
        defined = np.fromiter(reader.memo.copy(), np.int64)
        place = np.searchsorted(first, defined, "right") - 1
        if ((place >= 0) & (defined <= last[place])).any() or (first[1:] <= last[:-1]).any():
            raise OtherLayoutError("a place of the memo is used twice")


def _implied(data: bytes, start: int, end: int) -> int:
    opcodes = [argument.opcode for argument in walk_opcodes(data, start, end)]
    if PUT1 in opcodes or PUT4 in opcodes:
        raise OtherLayoutError("memo entries with and without an index")
    return opcodes.count(MEMOIZE)


def _referred(data: bytes) -> Numbers:
    """The indices that any bytes in `data` could refer to, in order."""
    padded = data + bytes(4)
    array = np.frombuffer(padded, np.uint8)
    words: npt.NDArray[np.uint32] = np.ndarray((len(data) + 1,), "<u4", padded, strides=(1,))
    short, long = array[1:-3][array[:-4] == GET1], words[1:][array[:-4] == GET4]
    return np.union1d(short, long).astype(np.int64)
