"""The entries of a pickled dump as bytes, sorted into kinds: entries of one kind differ only in their numbers.

The first entry names every key; later entries refer to the keys in the memo. So the mark of an entry and the reference
to the first key part the bytes: a piece reaches from there to the mark of the next entry.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from rankscope.parsers.flight_recorder import opcodes as op
from rankscope.parsers.flight_recorder.entry_forms import DURATION_KEY, FormTable
from rankscope.parsers.flight_recorder.memo_puts import MemoPuts
from rankscope.parsers.flight_recorder.model import NUMBERS
from rankscope.parsers.flight_recorder.opcodes import OtherLayoutError
from rankscope.parsers.matrices import Mask, Numbers
from rankscope.parsers.safe_values import safe_unpickler

FEWEST_WORDS, MOST_WORDS = 32, 2048
"""Words of eight bytes that pieces are padded to, each twice as many as the next; longer pieces are unpickled."""
BLOCK_WORDS = 1 << 17
"""Words that are looked at together: they stay in the cache, and a file of short pieces must not take many times its
size."""
_OPTIONAL_KEY = DURATION_KEY.encode()
"""The only key that an entry may lack: a later one names it."""
_PUT = re.compile(rb"(?:q.|r.{4}|\x94)?", re.DOTALL)
_FIRST_KEY = rb"\]" + _PUT.pattern + rb"\(\}" + _PUT.pattern + rb"\((?:\x8c(.)|X(.{4}))"
_BARE = re.compile(rb"\x80." + _FIRST_KEY, re.DOTALL)
_NAMED = re.compile(rb"(?:X\x07\x00\x00\x00|\x8c\x07)entries" + _PUT.pattern + _FIRST_KEY, re.DOTALL)


class PickledEntries:
    """The pieces of a dump behind its first entry; arrays have one value for each."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        bare = _BARE.match(data)
        opening = bare or _NAMED.search(data)
        if opening is None:
            raise OtherLayoutError("no list of entries")
        closing = b"e." if bare else b"eu."
        begin = opening.end() + int.from_bytes(opening[1] or opening[2], "little")
        put = _PUT.match(data, begin)
        # the first entry with its first key alone
        (first, *_), _ = _keys(data[: put.end() if put else begin] + b"Nu" + closing)
        self.separator = b"(" + first
        self.marks = positions(data, self.separator)
        self.marks = self.marks[self.marks > begin]
        if not len(self.marks):
            raise OtherLayoutError("no entry is like the first")
        self.keys, self.known = _keys(data[: self.marks[0]] + b"0" + closing)
        """The keys by their references, and the size of the memo before the second entry."""
        named = int(np.searchsorted(self.marks[:-1], data.find(_OPTIONAL_KEY, begin)))
        if named:
            self.keys, _ = _keys(data[: self.marks[named]] + b"0" + closing)
        self.starts = self.marks + len(self.separator)
        self.ends = np.append(self.marks[1:], len(data))
        self.alike = np.arange(len(self.starts))
        """The first piece of the kind of each; a piece that has no kind stands for itself."""
        self.numbers: Numbers = np.zeros((len(self.starts), len(NUMBERS)), np.int64)
        """The numbers of pieces that have a kind, in columns of NUMBERS."""
        self.puts = MemoPuts(len(self.starts))

    def classify(self) -> Mask:
        """Finds `alike`, `numbers` and `puts`. The pieces that repeat an earlier one, and that nothing refers to."""
        padded = self.data + bytes(8 * MOST_WORDS)
        lengths = self.ends - self.starts
        # what stands behind the entries belongs to the last piece
        lengths[-1] = len(padded)
        shorter, width, longest = 0, FEWEST_WORDS, lengths[:-1].max(initial=0)
        while width <= MOST_WORDS and shorter < longest:
            which = np.flatnonzero((lengths > shorter) & (lengths <= 8 * width))
            for begin in range(0, len(which), BLOCK_WORDS // width):
                self._classify(padded, which[begin : begin + BLOCK_WORDS // width], width)
            shorter, width = 8 * width, 2 * width
        self.puts.assign_indices(self.data, self.starts, self.ends, self.known)
        repeated = self.alike != np.arange(len(self.alike))
        return self.puts.unused(repeated, self.without)

    def _classify(self, padded: bytes, which: Numbers, width: int) -> None:
        """Finds them for the pieces `which`, of at most `width` words."""
        starts, ends = self.starts[which], self.ends[which]
        table = _table(tuple(self.keys.items()), width)
        windows = np.ndarray((len(self.data),), f"V{8 * width}", padded, strides=(1,))
        rows: Numbers = windows[starts].view("<i8").reshape(-1, width)
        forms, first = table.match(rows, ends - starts, lambda i: self.data[starts[i] : ends[i]])
        self.alike[which] = which[first]
        self.puts.implied[which] = table.implied[forms]
        copies = np.flatnonzero(first != np.arange(len(first)))
        which, starts, forms = which[copies], starts[copies], forms[copies]
        words: Numbers = np.ndarray((len(self.data),), "<i8", padded, strides=(1,))
        self.numbers[which] = table.numbers_at(words, starts, forms)
        for number, form in enumerate(table.forms):
            mine = np.flatnonzero(forms == number) if form.puts else ()
            if len(mine):
                self.puts.note(which[mine], form, words, starts[mine])

    def without(self, left_out: Mask) -> bytes:
        """The dump without some of its pieces.

        It makes up for memo entries without index that these have.
        """
        kept = np.flatnonzero(~left_out)
        missing = np.diff(np.cumsum(np.where(left_out, self.puts.implied, 0))[kept], prepend=0)
        spans = zip(missing.tolist(), self.marks[kept].tolist(), self.ends[kept].tolist(), strict=True)
        parts = [self.data[: int(self.marks[0])]]
        for count, mark, end in spans:
            # these objects are not needed: None takes their memo places and is removed
            parts += [b"N" + bytes([op.MEMOIZE]) * count + b"0" if count else b"", self.data[mark:end]]
        return b"".join(parts)


def positions(data: bytes, text: bytes) -> Numbers:
    """The places of `text`, of at least three bytes, in `data`."""
    array = np.frombuffer(data, np.uint8)
    count = max(0, len(data) - len(text) + 1)
    begins = array[:count] == text[0]
    for i in (1, 2):
        begins &= array[i : count + i] == text[i]
    found = np.flatnonzero(begins)
    for i, byte in enumerate(text[3:], 3):
        found = found[array[found + i] == byte]
    return found


@lru_cache(64)
def _table(keys: tuple[tuple[bytes, str], ...], width: int) -> FormTable:
    return FormTable(dict(keys), keys[0][1], width)


def _keys(data: bytes) -> tuple[dict[bytes, str], int]:
    """The keys of the entries of a dump by their references, and the size of the memo.

    Raises OtherLayoutError if the memo lacks one of the keys.
    """
    reader = safe_unpickler(data)
    document = reader.load()
    memo = reader.memo.copy()
    places = {id(value): index for index, value in memo.items()}
    entries = document if isinstance(document, list) else document["entries"]
    keys = dict.fromkeys(key for entry in entries for key in entry)
    if not all(id(key) in places for key in keys):
        raise OtherLayoutError("a key that is not in the memo")
    return {_reference(places[id(key)]): key for key in keys}, len(memo)


def _reference(index: int) -> bytes:
    return bytes([op.GET1, index]) if index < 256 else bytes([op.GET4]) + index.to_bytes(4, "little")
