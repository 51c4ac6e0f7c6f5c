"""Opcodes of pickled plain data: their lengths, and the end of the first entry of a dump."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

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
