"""The memo of a pickle: values that entries put there, and that nothing uses later.

The recorder puts only texts and frames there. Python's pickler puts every list, tuple and dict, each under the next
index. An entry with such a value may be left out only if nothing refers to it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankscope.parsers.flight_recorder import opcodes as op
from rankscope.parsers.flight_recorder.opcodes import OtherLayoutError, walk_opcodes
from rankscope.parsers.matrices import Numbers

PIECE_BYTES = 1 << 22
"""Bytes that are searched for references at once: a file full of references must not take many times its size."""
ENTRIES_PER_PUT = 16
"""If at most one of so many entries puts a value into the memo, those entries are not left out."""
Mask = npt.NDArray[np.bool_]


class MemoPuts:
    """Values that each entry puts into the memo: first and last index where the file writes them, or their number."""

    def __init__(self, count: int) -> None:
        self.first = np.zeros(count, np.int64)
        self.last = np.full(count, -1, np.int64)
        self.rising = np.ones(count, np.bool_)
        """Whether each index is greater than the one before it."""
        self.implied = np.zeros(count, np.int64)
        """The number of values without a written index: they take the next one."""

    def note(self, which: Numbers | slice, heads: Numbers) -> Numbers:
        """Notes the memo opcodes at `heads` in the entries `which`; their length, 0 for other opcodes."""
        opcodes = heads & 0xFF
        lengths: Numbers = op.PUT_LENGTHS[opcodes]
        if not lengths.any():
            return lengths
        self.implied[which] += opcodes == op.MEMOIZE
        written = lengths > 1
        if written.any():
            index = heads >> 8 & np.where(opcodes == op.PUT1, 0xFF, 0xFFFFFFFF)
            last = self.last[which]
            self.rising[which] &= ~written | (index > last)
            self.first[which] = np.where(written & (last < 0), index, self.first[which])
            self.last[which] = np.where(written, index, last)
        return lengths

    def assign_indices(self, data: bytes, starts: Numbers, ends: Numbers, good: Mask, known: int) -> None:
        """Gives an index to values without one. `known` is the size of the memo before the first of these entries.

        Raises OtherLayoutError if the file mixes both ways to write them.
        """
        if not self.implied[good].any():
            return
        counts = self.implied.copy()
        for place in np.flatnonzero(~good[:-1]).tolist():
            counts[place] = _implied(data, int(starts[place]), int(ends[place]))
        if (self.last[good] >= 0).any():
            raise OtherLayoutError("memo entries with and without an index")
        ends = known + np.cumsum(counts)
        self.first, self.last = ends - counts, ends - 1

    def unused(self, data: bytes, good: Mask) -> Mask:
        """The good entries whose memo values nothing in `data` can refer to, as a mask."""
        some = good & (self.last >= self.first)
        if np.count_nonzero(some) * ENTRIES_PER_PUT < np.count_nonzero(good):
            return good & ~some
        kept = good & self.rising & (self.last < len(data))
        referred = _referred(data)
        after_last = np.searchsorted(referred, self.last, "right")
        kept &= after_last <= np.searchsorted(referred, self.first)
        return kept

    def check(self, defined: Numbers, good: Mask) -> None:
        """Raises OtherLayoutError if others define a memo index of left-out entries (`defined`), or these define it
        twice."""
        some = good & (self.last >= self.first)
        if not some.any():
            return
        first, last = self.first[some], self.last[some]
        place = np.searchsorted(first, defined, "right") - 1
        if ((place >= 0) & (defined <= last[place])).any() or (first[1:] <= last[:-1]).any():
            raise OtherLayoutError("a place of the memo is used twice")


def _implied(data: bytes, start: int, end: int) -> int:
    count = 0
    for opcode, _ in walk_opcodes(data, start, end + 1):
        if opcode in (op.PUT1, op.PUT4):
            raise OtherLayoutError("memo entries with and without an index")
        count += opcode == op.MEMOIZE
    return count


def _referred(data: bytes) -> Numbers:
    """The indices, below the length of `data`, that any bytes in it could refer to, in order."""
    array = np.frombuffer(data, np.uint8)
    referred = np.zeros(len(data), np.bool_)
    short = np.zeros(1 << 8, np.bool_)
    short[array[np.flatnonzero(array[:-1] == op.GET1) + 1]] = True
    referred[: len(short)] = short[: len(referred)]
    last = len(array) - 4
    for begin in range(0, last, PIECE_BYTES):
        at = np.flatnonzero(array[begin : min(begin + PIECE_BYTES, last)] == op.GET4) + begin + 1
        index = np.zeros(len(at), np.int64)
        for i in range(4):
            index |= array[at + i].astype(np.int64) << 8 * i
        referred[index[index < len(data)]] = True
    return np.flatnonzero(referred)
