"""A place in each of many pickled entries, moved over one field of all of them at a time.

Entries that do not have what is expected are marked, and what is read of them means nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankscope.parsers.columnar import NULL, Numbers

_INT1, _INT2, _INT4, _LONG1 = ord("K"), ord("M"), ord("J"), 0x8A
_GET1, _GET4 = ord("h"), ord("j")
_NONE, _TRUE, _FALSE, _FLOAT, _TUPLE2 = ord("N"), 0x88, 0x89, ord("G"), 0x86
_LENGTHS = {_INT1: 2, _INT2: 3, _INT4: 5, _NONE: 1, _GET1: 2, _GET4: 5}
_FLOAT_LENGTH = 9
_INTEGERS = (_INT1, _INT2, _INT4, _LONG1, _NONE)
_REFERENCES = (_GET1, _GET4, _NONE)
_SLACK = 4096
"""A place that went astray moves at most a dozen bytes with each field, and stays where there are bytes."""
SMALL = 1 << 20
"""So many possible rows are counted in a table; of more, the rows are sorted."""
FLAGS = {_TRUE: True, _FALSE: False, _NONE: None}
"""What the values of `flag` mean."""


class Fields:
    """The places, and whether all was as expected so far."""

    def __init__(self, data: bytes, at: Numbers) -> None:
        self.at = at
        self.good = np.ones(len(at), np.bool_)
        self._words: Numbers = np.ndarray((len(data) + _SLACK - 8,), "<i8", data + bytes(_SLACK), strides=(1,))
        self._ahead: Numbers | None = None

    def _head(self) -> Numbers:
        """At least five bytes from each place on."""
        if self._ahead is None:
            self._ahead = self._words[self.at]
        return self._ahead

    def move_to(self, at: Numbers) -> None:
        """Goes on at other places."""
        self.at = at
        self._ahead = None

    def expect(self, text: bytes) -> None:
        """Moves over `text`, at most five bytes."""
        head = self._head()
        self.good &= (head & ((1 << 8 * len(text)) - 1)) == int.from_bytes(text, "little")
        short = self._ahead is not None and len(text) == 2
        self.move_to(self.at + len(text))
        # a key is mostly two bytes, and what follows it was fetched with it
        self._ahead = head >> 16 if short else None

    def integer(self) -> Numbers:
        """Moves over an integer or None (NULL)."""
        return self._value(_INTEGERS)

    def reference(self) -> Numbers:
        """Moves over a reference to the memo, or None (NULL)."""
        return self._value(_REFERENCES)

    def flag(self) -> Numbers:
        """Moves over True, False or None; see FLAGS."""
        opcodes = self._head() & 0xFF
        self.good &= (opcodes == _TRUE) | (opcodes == _FALSE) | (opcodes == _NONE)
        self.move_to(self.at + 1)
        return opcodes

    def pair(self) -> tuple[Numbers, Numbers]:
        """Moves over a tuple of two references."""
        first, second = self.reference(), self.reference()
        self.expect(bytes([_TUPLE2]))
        return first, second

    def optional_float(self, key: bytes) -> npt.NDArray[np.float64]:
        """Moves over a key and its float where the key is there; NaN elsewhere."""
        pattern = key + bytes([_FLOAT])
        there = (self._words[self.at] & ((1 << 8 * len(pattern)) - 1)) == int.from_bytes(pattern, "little")
        values = self._words[self.at + len(pattern)].byteswap().view(np.float64)
        self.move_to(self.at + there * (len(key) + _FLOAT_LENGTH))
        return np.where(there, values, np.nan)

    def skip_float(self) -> None:
        """Moves over a float."""
        self.good &= (self._head() & 0xFF) == _FLOAT
        self.move_to(self.at + _FLOAT_LENGTH)

    def _value(self, allowed: tuple[int, ...]) -> Numbers:
        head = self._head()
        opcodes = head & 0xFF
        first = int(opcodes[0])
        if first in allowed and bool((opcodes == first).all()):
            values, lengths = self._decoded(first, head, self.at)
            self.move_to(self.at + lengths)
            return values
        return self._mixed(allowed, head, opcodes)

    def _mixed(self, allowed: tuple[int, ...], head: Numbers, opcodes: Numbers) -> Numbers:
        """The values where not all are written alike."""
        values = np.zeros(len(head), np.int64)
        moves = np.zeros(len(head), np.int64)
        for opcode in allowed:
            mine = opcodes == opcode
            if mine.any():
                values[mine], moves[mine] = self._decoded(opcode, head[mine], self.at[mine])
        self.good &= moves > 0
        self.move_to(self.at + moves)
        return values

    def _decoded(self, opcode: int, head: Numbers, at: Numbers) -> tuple[Numbers, Any]:
        """The values at places that all have `opcode`, and how many bytes they take."""
        values: Numbers
        if opcode == _LONG1:
            size = head >> 8 & 0xFF
            bits = 64 - 8 * np.minimum(size, 8)
            values = self._words[at + 2] << bits >> bits
            return values, np.where((size > 0) & (size <= 8), size + 2, 0)
        if opcode in (_INT1, _GET1):
            values = head >> 8 & 0xFF
        elif opcode == _INT2:
            values = head >> 8 & 0xFFFF
        elif opcode == _GET4:
            values = head >> 8 & 0xFFFFFFFF
        elif opcode == _INT4:
            values = head << 24 >> 32
        else:
            values = np.full(len(head), NULL, np.int64)
        return values, _LENGTHS[opcode]


def combined(parts: list[Numbers]) -> tuple[Numbers, Numbers]:
    """The places of the distinct rows of several columns, and for each row which of these it is."""
    total, size = np.zeros(len(parts[0]), np.int64), 1
    for part in parts:
        low, high = int(part.min()), int(part.max())
        if low == high:
            continue
        if high - low >= 1 << 31:
            part = np.unique(part, return_inverse=True)[1]  # noqa: PLW2901 - the same column in small numbers
            low, high = 0, int(part.max())
        if size * (high - low + 1) >= 1 << 62:
            total = np.unique(total, return_inverse=True)[1]
            size = int(total.max()) + 1
        total, size = total * (high - low + 1) + (part - low), size * (high - low + 1)
    if size > SMALL:
        _, first, codes = np.unique(total, return_index=True, return_inverse=True)
        return first, codes
    there = np.zeros(size, np.bool_)
    there[total] = True
    distinct = np.flatnonzero(there)
    place = np.empty(size, np.int64)
    place[distinct] = np.arange(len(distinct))
    codes = place[total]
    first = np.empty(len(distinct), np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return first, codes


def positions(data: bytes, text: bytes) -> Numbers:
    """Where `text`, of at least two bytes, stands in `data`."""
    pair = int.from_bytes(text[:2], "little")
    # two bytes at a time, from even places and from odd ones: several times faster than one by one
    halves = [np.frombuffer(data, "<u2", (len(data) - shift) // 2, shift) == pair for shift in (0, 1)]
    found = np.sort(
        np.concatenate([2 * np.flatnonzero(half) + shift for shift, half in enumerate(halves)]), kind="stable"
    )
    found = found[found <= len(data) - len(text)]
    array = np.frombuffer(data, np.uint8)
    for i, byte in enumerate(text[2:], 2):
        found = found[array[found + i] == byte]
    return found
