"""Opcodes of pickled plain data, their lengths, and the frames of newer protocols."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

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

ARGUMENT_SIZES = [-1] * 256
"""Bytes of the argument of each opcode; -1 where it has a variable length, or no dump has the opcode."""
for _size, _opcodes in {
    0: (MARK, EMPTY_DICT, EMPTY_LIST, APPEND, APPENDS, SETITEM, SETITEMS, NONE, TRUE, FALSE, TUPLE2, MEMOIZE),
    1: (INT1, GET1, PUT1),
    2: (INT2,),
    4: (INT4, GET4, PUT4),
    8: (FLOAT,),
}.items():
    for _opcode in _opcodes:
        ARGUMENT_SIZES[_opcode] = _size
PUTS = (PUT1, PUT4, MEMOIZE)
"""Opcodes that put the last value into the memo."""
TAKEN = {APPEND: 1, SETITEM: 2, TUPLE2: 1}
"""Opcodes that take a fixed number of values from the stack: by how many it is shorter then."""
_SIZE_BYTES = {LONG1: 1, TEXT1: 1, TEXT4: 4}
"""Opcodes with an argument of variable length, and the bytes in which that stands."""
_PROTOCOL_BYTES = 2


class OtherLayoutError(Exception):
    """The file has another layout than the fast reader expects; the message says why, in words of rankscope."""


class Argument(NamedTuple):
    """An opcode, and the place and size of its argument; the size of a text stands before it."""

    opcode: int
    at: int
    size: int


def walk_opcodes(data: bytes, at: int, end: int) -> Iterator[Argument]:
    """Each opcode from `at` to `end`. Raises OtherLayoutError for one that no dump has."""
    for _ in range(MOST_STEPS):
        if at >= end:
            return
        opcode = data[at]
        begin = at + 1
        size = ARGUMENT_SIZES[opcode]
        if size < 0:
            width = _SIZE_BYTES.get(opcode)
            if width is None:
                raise OtherLayoutError("an opcode that no recorder writes")
            size = int.from_bytes(data[begin : begin + width], "little")
            begin += width
        yield Argument(opcode, begin, size)
        at = begin + size
    raise OtherLayoutError("an entry of too many opcodes")


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
