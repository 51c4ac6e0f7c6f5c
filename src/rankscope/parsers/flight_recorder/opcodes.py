"""Opcodes of pickled plain data: their lengths, the end of the first entry of a dump, and the memo.

The recorder puts only texts and frames there. Python's pickler puts every list, tuple and dict, each under the next
index. An entry with such a value may be left out only if nothing refers to it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rankscope.parsers.matrices import Numbers

MARK, EMPTY_DICT, EMPTY_LIST = ord("("), ord("}"), ord("]")
APPEND, APPENDS, SETITEM, SETITEMS = ord("a"), ord("e"), ord("s"), ord("u")
INT1, INT2, INT4, LONG1, FLOAT = ord("K"), ord("M"), ord("J"), 0x8A, ord("G")
NONE, TRUE, FALSE, TUPLE2 = ord("N"), 0x88, 0x89, 0x86
GET1, GET4 = ord("h"), ord("j")
PUT1, PUT4, MEMOIZE = ord("q"), ord("r"), 0x94
TEXT1, TEXT4 = 0x8C, ord("X")
FRAME = 0x95
MOST_STEPS = 1 << 17
"""Most opcodes of an entry that are walked."""

LENGTHS: npt.NDArray[np.int64] = np.zeros(256, np.int64)
"""Bytes of each opcode with its argument; 0 where the argument has a variable length, or no dump has the opcode."""
LENGTHS[[MARK, EMPTY_DICT, EMPTY_LIST, APPEND, APPENDS, SETITEM, SETITEMS, NONE, TRUE, FALSE, TUPLE2, MEMOIZE]] = 1
LENGTHS[[INT1, GET1, PUT1]] = 2
LENGTHS[INT2] = 3
LENGTHS[[INT4, GET4, PUT4]] = 5
LENGTHS[FLOAT] = 9
_PUTS = (PUT1, PUT4, MEMOIZE)
PUT_LENGTHS = np.where(np.isin(np.arange(256), _PUTS), LENGTHS, 0)
"""Bytes of each opcode that puts the last object into the memo; 0 for all others."""
ARGUMENT_SIZES = {LONG1: 1, TEXT1: 1, TEXT4: 4}
"""Opcodes with an argument of variable length, and the bytes of its length field."""
_PLAIN_LENGTHS: list[int] = LENGTHS.tolist()
_PROTOCOL_BYTES = 2


class OtherLayoutError(Exception):
    """The file has another layout than the fast reader expects; the message says why, in words of rankscope."""


def walk_opcodes(data: bytes, at: int, end: int) -> Iterator[tuple[int, int]]:
    """Each opcode from `at` to `end` and its place. Raises OtherLayoutError for one that no dump has."""
    for _ in range(MOST_STEPS):
        if at >= end:
            return
        opcode = data[at]
        yield opcode, at
        length = _PLAIN_LENGTHS[opcode]
        if not length:
            width = ARGUMENT_SIZES.get(opcode)
            if width is None:
                raise OtherLayoutError("an opcode that no recorder writes")
            length = 1 + width + int.from_bytes(data[at + 1 : at + 1 + width], "little")
        at += length
    raise OtherLayoutError("an entry of too many opcodes")


def entry_end(data: bytes, start: int) -> tuple[int, bool]:
    """The place of the "u" that ends the entry at `start`, and whether its lists go into the memo."""
    depth, last, lists_put = 0, 0, False
    for opcode, at in walk_opcodes(data, start, len(data)):
        if opcode == MARK:
            depth += 1
        elif opcode in (APPENDS, SETITEMS):
            depth -= 1
            if not depth:
                return at, lists_put
        elif last == EMPTY_LIST and opcode in _PUTS:
            lists_put = True
        last = opcode
    raise OtherLayoutError("the first entry does not end")


def without_frames(data: bytes) -> bytes:
    """A pickle of protocol 4 or later without its frames; any other pickle unchanged.

    Raises OtherLayoutError where the frames do not follow each other to the end.
    """
    if data[_PROTOCOL_BYTES : _PROTOCOL_BYTES + 1] != bytes([FRAME]):
        return data
    parts, at = [data[:_PROTOCOL_BYTES]], _PROTOCOL_BYTES
    while at < len(data):
        if data[at] == FRAME:
            begin = at + 9
            at = begin + int.from_bytes(data[at + 1 : begin], "little")
        elif data[at] == TEXT4:  # a long text stands between frames
            begin = at
            at += 5 + int.from_bytes(data[at + 1 : at + 5], "little")
        else:
            raise OtherLayoutError("frames do not follow each other")
        parts.append(data[begin:at])
    if at > len(data):
        raise OtherLayoutError("the last frame is not whole")
    return b"".join(parts)


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
        lengths: Numbers = PUT_LENGTHS[opcodes]
        if not lengths.any():
            return lengths
        self.implied[which] += opcodes == MEMOIZE
        written = lengths > 1
        if written.any():
            index = heads >> 8 & np.where(opcodes == PUT1, 0xFF, 0xFFFFFFFF)
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
        if opcode in (PUT1, PUT4):
            raise OtherLayoutError("memo entries with and without an index")
        count += opcode == MEMOIZE
    return count


def _referred(data: bytes) -> Numbers:
    """The indices, below the length of `data`, that any bytes in it could refer to, in order."""
    array = np.frombuffer(data, np.uint8)
    referred = np.zeros(len(data), np.bool_)
    short = np.zeros(1 << 8, np.bool_)
    short[array[np.flatnonzero(array[:-1] == GET1) + 1]] = True
    referred[: len(short)] = short[: len(referred)]
    last = len(array) - 4
    for begin in range(0, last, PIECE_BYTES):
        at = np.flatnonzero(array[begin : min(begin + PIECE_BYTES, last)] == GET4) + begin + 1
        index = np.zeros(len(at), np.int64)
        for i in range(4):
            index |= array[at + i].astype(np.int64) << 8 * i
        referred[index[index < len(data)]] = True
    return np.flatnonzero(referred)
