"""Parallel reading of pickled entries: a place in each entry, moved over one field of all entries at a time.

Entries with an unexpected byte are marked as bad, and their values mean nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rankscope.parsers.flight_recorder import opcodes as op
from rankscope.parsers.flight_recorder.opcodes import Mask, MemoPuts
from rankscope.parsers.matrices import NULL, Numbers

_INTEGERS = (op.INT1, op.INT2, op.INT4, op.LONG1, op.NONE)
_REFERENCES = (op.GET1, op.GET4, op.NONE)
_SLACK = 4096
"""Spare bytes behind the data: a wrong place moves at most a dozen bytes with each field."""
SMALL_TABLE = 1 << 20
"""Most possible rows that are counted in a table; with more, the rows are sorted."""
FLAG_VALUES = {op.TRUE: True, op.FALSE: False, op.NONE: None}
"""Values of the opcodes of `flag`."""
SINGLE_REFERENCE = NULL + 1
"""Second value of a pair that is itself one reference, which is the first value."""


class EntryFields:
    """The current places, and whether each entry was as expected so far."""

    def __init__(self, data: bytes, at: Numbers, ends: Numbers) -> None:
        self.at = at
        self.ends = ends
        self.good = np.ones(len(at), np.bool_)
        self.puts = MemoPuts(len(at))
        self.texts: dict[bytes, int] = {}
        """Texts that entries spell out."""
        self._data = data
        self._words: Numbers = np.ndarray((len(data) + _SLACK - 8,), "<i8", data + bytes(_SLACK), strides=(1,))
        self._ahead: Numbers | None = None

    def _head(self) -> Numbers:
        """At least five bytes from each place on."""
        if self._ahead is None:
            self._ahead = self._words[self.at]
        return self._ahead

    def heads(self, at: Numbers) -> Numbers:
        """Eight bytes from each of these places on."""
        heads: Numbers = self._words[at]
        return heads

    def move_to(self, at: Numbers) -> None:
        """Moves to other places."""
        self.at = at
        self._ahead = None

    def expect(self, text: bytes) -> None:
        """Moves over `text`, at most five bytes."""
        head = self._head()
        self.good &= (head & ((1 << 8 * len(text)) - 1)) == int.from_bytes(text, "little")
        short = self._ahead is not None and len(text) == 2
        self.move_to(self.at + len(text))
        # a key is mostly two bytes, so its next bytes were loaded with it
        self._ahead = head >> 16 if short else None

    def integer(self) -> Numbers:
        """Moves over an integer or None (NULL)."""
        return self._value(_INTEGERS)

    def reference(self) -> Numbers:
        """Moves over a reference to the memo, or None (NULL)."""
        return self._value(_REFERENCES)

    def flag(self) -> Numbers:
        """Moves over True, False or None; see FLAG_VALUES."""
        opcodes = self._head() & 0xFF
        self.good &= (opcodes == op.TRUE) | (opcodes == op.FALSE) | (opcodes == op.NONE)
        self.move_to(self.at + 1)
        return opcodes

    def put(self) -> None:
        """Moves over an opcode that puts the last value into the memo, where there is one."""
        self.move_to(self.at + self.puts.note(slice(None), self._head()))

    def opcodes(self) -> Numbers:
        """The opcode at each place."""
        opcodes: Numbers = self._head() & 0xFF
        return opcodes

    def text(self) -> Numbers:
        """Moves over a reference to the memo, None (NULL), or a spelled-out text: -1 - its index in `texts`."""
        heads = self._head()
        opcodes = heads & 0xFF
        if bool((opcodes == op.GET1).all()):
            return self.reference()
        spelled = (opcodes == op.TEXT1) | (opcodes == op.TEXT4)
        if not spelled.any():
            return self.reference()
        short = opcodes == op.TEXT1
        begins = self.at + np.where(short, 2, 5)
        ends = begins + (heads >> 8 & np.where(short, 0xFF, 0xFFFFFFFF))
        # no text reaches into the next entry: all texts together are no longer than the file
        good = self.good & (ends <= self.ends)
        ends = np.where(good, ends, begins)
        values = self.reference()
        values[spelled] = self._spellings(begins[spelled], ends[spelled])
        self._go_back(spelled, ends, good)
        self.put()
        return values

    def _spellings(self, begins: Numbers, ends: Numbers) -> Numbers:
        places = zip(begins.tolist(), ends.tolist(), strict=True)
        known, data = self.texts, self._data
        return np.array([-1 - known.setdefault(data[begin:end], len(known)) for begin, end in places], np.int64)

    def _go_back(self, where: Mask, at: Numbers, good: Mask) -> None:
        """Moves some places back to where they belong."""
        self.good = np.where(where, good, self.good)
        self.move_to(np.where(where, at, self.at))

    def pair(self, follower: bytes | None) -> tuple[Numbers, Numbers]:
        """Moves over a tuple of two texts, or one reference, before the key `follower`; that one and
        SINGLE_REFERENCE."""
        first = self.text()
        alone, at, good = self._stands(follower), self.at, self.good.copy()
        second = self.text()
        self.expect(bytes([op.TUPLE2]))
        if alone.any():
            self._go_back(alone, at, good)
            second[alone] = SINGLE_REFERENCE
        self.put()
        return first, second

    def _stands(self, follower: bytes | None) -> Mask:
        """The entries in which a key comes next, or without one the end of the entry."""
        if follower is None:
            at_end: Mask = self.at == self.ends
            return at_end
        stands: Mask = self._head() & ((1 << 8 * len(follower)) - 1) == int.from_bytes(follower, "little")
        return stands

    def optional_float(self, follower: bytes | None) -> tuple[npt.NDArray[np.float64], int | None]:
        """Moves over an optional key and its float, before the key `follower`; the floats and the key.

        A missing float is NaN.
        """
        words = self._words[self.at]
        short = (words & 0xFF == op.GET1) & (words >> 16 & 0xFF == op.FLOAT)
        there = short | (words & 0xFF == op.GET4) & (words >> 40 & 0xFF == op.FLOAT)
        there &= ~self._stands(follower)
        keys = (words >> 8 & np.where(short, 0xFF, 0xFFFFFFFF))[there]
        if not len(keys):
            return np.full(len(there), np.nan), None
        self.good[there] &= keys == keys[0]
        lengths = np.where(short, 2, 5)
        values = self._words[self.at + lengths + 1].byteswap().view(np.float64)
        self.move_to(self.at + there * (lengths + int(op.LENGTHS[op.FLOAT])))
        return np.where(there, values, np.nan), int(keys[0])

    def skip_float(self) -> None:
        """Moves over a float."""
        self.good &= (self._head() & 0xFF) == op.FLOAT
        self.move_to(self.at + op.LENGTHS[op.FLOAT])

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
        """The values where entries write them with different opcodes."""
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
        """The values at places with the same `opcode`, and their length in bytes."""
        values: Numbers
        if opcode == op.LONG1:
            size = head >> 8 & 0xFF
            bits = 64 - 8 * np.minimum(size, 8)
            values = self._words[at + 2] << bits >> bits
            return values, np.where((size > 0) & (size <= 8), size + 2, 0)
        if opcode in (op.INT1, op.GET1):
            values = head >> 8 & 0xFF
        elif opcode == op.INT2:
            values = head >> 8 & 0xFFFF
        elif opcode == op.GET4:
            values = head >> 8 & 0xFFFFFFFF
        elif opcode == op.INT4:
            values = head << 24 >> 32
        else:
            values = np.full(len(head), NULL, np.int64)
        return values, int(op.LENGTHS[opcode])


def combine_fields(parts: list[Numbers]) -> tuple[Numbers, Numbers]:
    """The indices of the distinct rows of several columns, and for each row its index among them."""
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
    if size > SMALL_TABLE:
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


def field_positions(data: bytes, text: bytes) -> Numbers:
    """The places of `text`, of at least two bytes, in `data`."""
    pair = int.from_bytes(text[:2], "little")
    # compares two bytes at a time, at even and at odd places: several times faster than single bytes
    halves = [np.frombuffer(data, "<u2", (len(data) - shift) // 2, shift) == pair for shift in (0, 1)]
    found = np.sort(
        np.concatenate([2 * np.flatnonzero(half) + shift for shift, half in enumerate(halves)]), kind="stable"
    )
    found = found[found <= len(data) - len(text)]
    array = np.frombuffer(data, np.uint8)
    for i, byte in enumerate(text[2:], 2):
        found = found[array[found + i] == byte]
    return found
