"""The memo of a pickle, as far as entries put something into it that nobody asks for again.

The recorder puts only texts and frames there. Python's pickler puts every list, tuple and dict, each under the next
index. An entry that puts something there may be left out only if nothing refers to it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rankscope.parsers.flight_recorder import opcodes as op
from rankscope.parsers.flight_recorder.opcodes import OtherLayoutError, walk_opcodes
from rankscope.parsers.matrices import Numbers

PIECE_BYTES = 1 << 22
"""So many bytes are searched for references at once: a file of nothing else must not take many times its size."""
ENTRIES_PER_PUT = 16
"""If no more than one in so many entries puts anything into the memo, those are not left out, whatever it is."""
Mask = npt.NDArray[np.bool_]


class MemoPuts:
    """What each entry puts into the memo: first and last index where they are written, or how many there are."""

    def __init__(self, count: int) -> None:
        self.first = np.zeros(count, np.int64)
        self.last = np.full(count, -1, np.int64)
        self.rising = np.ones(count, np.bool_)
        """Whether each index is greater than the one before it."""
        self.implied = np.zeros(count, np.int64)
        """How many have no index written: they take the next one."""

    def take(self, which: Numbers | slice, heads: Numbers) -> Numbers:
        """Notes what stands where `heads` begin, in the entries `which`; its length, 0 where it is no put."""
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

    def settle(self, data: bytes, starts: Numbers, ends: Numbers, good: Mask, known: int) -> None:
        """Gives those without an index theirs. `known` is how many came before the first of these entries.

        Raises OtherLayoutError if both ways to write them are mixed.
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
        """Which of the good entries put nothing into the memo that anything in `data` could refer to."""
        some = good & (self.last >= self.first)
        if np.count_nonzero(some) * ENTRIES_PER_PUT < np.count_nonzero(good):
            return good & ~some
        kept = good & self.rising & (self.last < len(data))
        referred = _referred(data)
        after_last = np.searchsorted(referred, self.last, "right")
        kept &= after_last <= np.searchsorted(referred, self.first)
        return kept

    def check(self, defined: Numbers, good: Mask) -> None:
        """Raises OtherLayoutError if an index of entries left out is `defined` by others, or twice by these."""
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
    """Each index below the length of `data` that any bytes in it could refer to, in order."""
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
