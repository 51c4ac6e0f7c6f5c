"""Layout of a pickled dump: the places of its fields, if it has the recorder's form.

The first entry names every key; later entries refer to the keys in the memo.
"""

from __future__ import annotations

import io
import re
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from rankscope.parsers.flight_recorder import opcodes as op
from rankscope.parsers.flight_recorder.dump_columns import CALL_KEYS, NUMBER_KEYS, number_values
from rankscope.parsers.flight_recorder.fields import EntryFields, field_positions
from rankscope.parsers.flight_recorder.opcodes import Mask, OtherLayoutError, entry_end
from rankscope.parsers.matrices import NULL, Numbers
from rankscope.parsers.safe_values import SafeUnpickler

DURATION_KEY = "duration_ms"
"""The only optional key of an entry."""
MOST_KEYS = 256
"""Most keys of an entry; no version has a tenth of them, and each is a step over all entries."""
MOST_SPELLED_SHARE = 0.5
"""Share of entries with spelled-out frames above which all stacks are walked by opcode."""
_TEXTS = ("profiling_name", "state", "thread_name", "thread_id")
_KINDS = {
    "frames": "stack", "retired": "flag", "is_p2p": "flag", "process_group": "pair", **dict.fromkeys(_TEXTS, "text"),
}  # fmt: skip
_NUMBERS = frozenset(key for keys in NUMBER_KEYS.values() for key in keys)
_PUT = rb"(?:q.|r.{4}|\x94)?"
_ENTRIES = rb"\]" + _PUT + rb"\((?=\}" + _PUT + rb"\()"
_BARE = re.compile(rb"\x80." + _ENTRIES, re.DOTALL)
_NAMED_ENTRIES = re.compile(rb"(?:X\x07\x00\x00\x00|\x8c\x07)entries" + _PUT + _ENTRIES, re.DOTALL)


class PickleLayout:
    """The entries after the first, and their fields after `walk`; each array has one value for each entry."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        bare = _BARE.match(data)
        opening = bare or _NAMED_ENTRIES.search(data)
        if opening is None:
            raise OtherLayoutError("no list of two or more entries")
        first_end, self.lists_put = entry_end(data, opening.end())
        reader = SafeUnpickler(io.BufferedReader(io.BytesIO(data[: first_end + 1] + (b"e." if bare else b"eu."))))
        document = reader.load()
        (example,) = document if bare else document["entries"]
        if len(example) > MOST_KEYS:
            raise OtherLayoutError("an entry of too many keys")
        memo = reader.memo.copy()
        self.known = len(memo)
        """Size of the memo before the second entry of the dump."""
        self.kinds = {key: _kind(key, value) for key, value in example.items() if key != DURATION_KEY}
        self.refs = _references(list(example), memo)
        self.starts, begins, self.ends = _bounds(data, first_end, self.refs[next(iter(self.kinds))])
        if len(self.starts) == 0:
            raise OtherLayoutError("no entry is like the first")
        self.fields = EntryFields(data, begins, self.ends)
        self.numbers: dict[str, Numbers] = {}
        self.calls: dict[str, tuple[Numbers, ...]] = {}
        self.stacks: list[bytes] = []
        self.stacks_spelled = False
        """Whether most entries spell out their stacks; then each stack was walked by opcode."""
        self.lists: list[bytes] = []
        self.millis: npt.NDArray[np.float64] | None = None
        self.duration: int | None = None
        """The memo index of the key of `millis`, if any entry has it."""

    def walk(self) -> None:
        """Reads all fields of all entries. Raises OtherLayoutError."""
        self.fields.put()
        self.fields.expect(b"(")
        runs = [[key for key, _ in run] for _, run in groupby(self.kinds.items(), key=lambda item: item[1] == "list")]
        followers: list[str | None] = [*(run[0] for run in runs[1:]), None]
        for run, follower in zip(runs, followers, strict=True):
            if self.kinds[run[0]] == "list":
                self._take_lists(self._key(follower))
                continue
            for key, after in zip(run, [*run[1:], follower], strict=True):
                self.fields.expect(self.refs[key])
                self._read(key, self._key(after))

    def _key(self, key: str | None) -> bytes | None:
        return None if key is None else self.refs[key]

    def whole(self) -> Mask:
        """The entries that are as expected from beginning to end. The end of the last one is not known."""
        whole: Mask = self.fields.good & (self.fields.at == self.ends)
        whole[-1] = False
        return whole

    def thinned(self, left_out: Mask) -> bytes:
        """The dump without some of its entries; bytes behind the last entry count as its part.

        It makes up for memo entries without index that the removed entries had.
        """
        kept = np.flatnonzero(~left_out)
        missing = np.diff(np.cumsum(np.where(left_out, self.fields.puts.implied, 0))[kept], prepend=0)
        spans = zip(missing.tolist(), self.starts[kept].tolist(), self.ends[kept].tolist(), strict=True)
        parts = [self.data[: int(self.starts[0])]]
        for count, start, end in spans:
            # these objects are not needed: None takes their memo places and is removed
            parts += [b"N" + bytes([op.MEMOIZE]) * count + b"0" if count else b"", self.data[start : end + 1]]
        return b"".join(parts)

    def absent(self) -> Numbers:
        """A column without values."""
        return np.full(len(self.starts), NULL, np.int64)

    def _read(self, key: str, follower: bytes | None) -> None:
        kind = self.kinds[key]
        if kind == "stack":
            self.stacks = self._stacks(follower)
            return
        value: Any = self.fields.pair(follower) if kind == "pair" else getattr(self.fields, kind)()
        if key in _NUMBERS:
            self.numbers[key] = value
        elif key in CALL_KEYS:
            self.calls[key] = value if isinstance(value, tuple) else (value,)
        if key == "time_created_ns":
            millis, self.duration = self.fields.optional_float(follower)
            self.millis = None if self.duration is None else millis

    def _take_lists(self, follower: bytes | None) -> None:
        """Takes keys and lists as raw bytes: few of them differ."""
        if self.lists:
            raise OtherLayoutError("lists in two places")
        ends = self._ends(follower)
        self.lists = without_puts(self.fields, self.data, ends) if self.lists_put else self._regions(ends)

    def _stacks(self, follower: bytes | None) -> list[bytes]:
        """The list of frames of each entry, or the reference to one, as bytes."""
        fields, begins = self.fields, self.fields.at
        ends = self._ends(follower)
        is_list = fields.opcodes() == op.EMPTY_LIST
        fields.move_to(begins + is_list)
        fields.put()
        self.stacks_spelled = self._spelled()
        if not self.stacks_spelled and bool((fields.at == begins + is_list).all()):
            fields.move_to(begins)
            return self._regions(ends)
        heads = [b"]" if one else b"" for one in is_list.tolist()]
        rest = without_puts(fields, self.data, ends) if self.stacks_spelled else self._regions(ends)
        return [head + region for head, region in zip(heads, rest, strict=True)]

    def _spelled(self) -> bool:
        """Whether most entries spell out their frames, behind the opcode of the list."""
        heads = self.fields.heads(self.fields.at)
        opcodes = np.where(heads & 0xFF == op.MARK, heads >> 8, heads) & 0xFF
        return bool(np.mean(opcodes == op.EMPTY_DICT) > MOST_SPELLED_SHARE)

    def _ends(self, follower: bytes | None) -> Numbers:
        """The ends of lists: at the next key, or with the entry."""
        if follower is None:
            return self.ends
        marks = _after_lists(self.data, follower)
        ends: Numbers = np.minimum(marks[np.searchsorted(marks[:-1], self.fields.at)], self.ends)
        return ends

    def _regions(self, ends: Numbers) -> list[bytes]:
        """The bytes up to `ends`; moves over them."""
        begins, data = self.fields.at, self.data
        self.fields.move_to(ends)
        return [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def _bounds(data: bytes, first_end: int, first_key: bytes) -> tuple[Numbers, Numbers, Numbers]:
    """For each entry but the first: its begin, the place behind its "}", and the place of its final "u".

    For the last entry these are the end of the data.
    """
    marks = field_positions(data, b"(" + first_key)
    marks = marks[marks > first_end]
    before = np.frombuffer(data, np.uint8)
    starts, ends = np.full((2, len(marks)), -1, np.int64)
    for put, length in ((None, 0), (op.MEMOIZE, 1), (op.PUT1, 2), (op.PUT4, 5)):
        begins = marks - length - 1
        fits = (before[begins] == op.EMPTY_DICT) & (starts < 0)
        if put is not None:
            fits &= before[begins + 1] == put
        # Python's pickler splits a list into parts of 1000 items
        parted = (
            (before[begins - 3] == op.SETITEMS) & (before[begins - 2] == op.APPENDS) & (before[begins - 1] == op.MARK)
        )
        fits &= parted | (before[begins - 1] == op.SETITEMS)
        starts, ends = np.where(fits, begins, starts), np.where(fits, begins - np.where(parted, 3, 1), ends)
        if (starts > 0).all():
            break
    there = starts > first_end
    return starts[there], starts[there] + 1, np.append(ends[there][1:], len(data))


def _after_lists(data: bytes, key: bytes) -> Numbers:
    """The places of `key` behind the end of a list, or of a reference to one; the last number is the length of the
    data."""
    found = field_positions(data, key)
    before = np.frombuffer(data, np.uint8)
    last = before[found - 1]
    ends_list = (last == op.APPENDS) | (last == op.APPEND) | (last == op.EMPTY_LIST) | (last == op.MEMOIZE)
    for length, get, put in ((2, op.GET1, op.PUT1), (5, op.GET4, op.PUT4)):
        if ends_list.all():
            break
        opcodes = before[found - length]
        ends_list |= (opcodes == get) | (opcodes == put)
    return np.append(found[ends_list], len(data))


def _kind(key: str, value: Any) -> str:
    """The way to read a key, also an unknown one."""
    if key in _KINDS:
        return _KINDS[key]
    if key in _NUMBERS or key in ("pg_id", "timeout_ms"):
        return "integer"
    kinds = {list: "list", bool: "flag", int: "integer", float: "skip_float", str: "text", type(None): "integer"}
    if type(value) not in kinds:
        raise OtherLayoutError("an entry holds what no recorder writes")
    return kinds[type(value)]


def _references(keys: list[str], memo: dict[int, Any]) -> dict[str, bytes]:
    """The references of the file to keys. Raises OtherLayoutError if the memo lacks one of them."""
    places = {id(value): index for index, value in memo.items()}
    if not all(id(key) in places for key in keys):
        raise OtherLayoutError("a key that is not in the memo")
    return {key: _reference(places[id(key)]) for key in keys}


def _reference(index: int) -> bytes:
    return bytes([op.GET1, index]) if index < 256 else bytes([op.GET4]) + index.to_bytes(4, "little")


# Lists of many pickled entries at once, without memo opcodes: then equal lists have equal bytes.

_MARKS = [op.MARK, op.APPEND, op.APPENDS, op.SETITEMS, op.EMPTY_DICT, op.EMPTY_LIST]
_ALLOWED = [*_MARKS, op.GET1, op.GET4, op.INT1, op.INT2, op.INT4]
_LENGTHS = np.where(np.isin(np.arange(256), _ALLOWED), op.LENGTHS, op.PUT_LENGTHS)
"""Bytes of the opcodes in lists of numbers, texts or frames; 0 for variable lengths, and for all other opcodes."""
_BEYOND_DATA = 1 << 62
"""A place behind all data."""
MOST_STEPS = 1024
"""Most opcodes of a list; the unpickler reads longer ones, because parallel steps do not pay for few entries."""


def without_puts(fields: EntryFields, data: bytes, ends: Numbers) -> list[bytes]:
    """The bytes of each entry up to `ends`; moves over them. Marks entries with anything but lists as bad."""
    if fields.puts.implied.any():
        return _each_kind(fields, data, ends)
    begins, which = fields.at, np.arange(len(ends))
    kept = np.ones(len(data) + 1, np.bool_)
    fields.good &= _walk(fields, which, ends, kept)
    fields.move_to(ends)
    left_out = np.flatnonzero(~kept[:-1])
    thin = np.frombuffer(data, np.uint8)[kept[:-1]].tobytes()
    begins, ends = (places - np.searchsorted(left_out, places) for places in (np.minimum(begins, ends), ends))
    return [thin[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def _each_kind(fields: EntryFields, data: bytes, ends: Numbers) -> list[bytes]:
    """As `without_puts`, for memo opcodes without index: equal lists have equal bytes, so one of each is walked."""
    spans = zip(np.minimum(fields.at, ends).tolist(), ends.tolist(), strict=True)
    regions = [data[begin:end] for begin, end in spans]
    _, codes = number_values(regions)
    which = np.unique(codes, return_index=True)[1]
    before = fields.puts.implied.copy()
    whole = _walk(fields, which, ends, None) & (fields.at[which] <= ends[which])
    fields.good &= whole[codes]
    fields.puts.implied = before + (fields.puts.implied - before)[which][codes]
    fields.move_to(ends)
    return regions


def _walk(fields: EntryFields, which: Numbers, ends: Numbers, kept: Mask | None) -> Mask:
    """Whether lists alone bring each of the entries `which` to its end; removes memo opcodes from `kept`."""
    at = fields.at.copy()
    going = which[at[which] < ends[which]]
    for _ in range(MOST_STEPS):
        if not len(going):
            break
        places = at[going]
        heads = fields.heads(places)
        puts = fields.puts.note(going, heads)
        if kept is not None:
            _leave_out(kept, places, puts)
        lengths = _lengths(heads)
        at[going] = places = np.where(lengths > 0, places + lengths, _BEYOND_DATA)
        going = going[places < ends[going]]
    reached: Mask = at[which] == ends[which]
    return reached


def _lengths(heads: Numbers) -> Numbers:
    """The length in bytes of the opcode at each place; 0 for an opcode that does not belong there."""
    opcodes = heads & 0xFF
    lengths: Numbers = _LENGTHS[opcodes]
    if lengths.all():
        return lengths
    short = (opcodes == op.TEXT1) | (opcodes == op.LONG1)
    lengths = np.where(short, 2 + (heads >> 8 & 0xFF), lengths)
    return np.where(opcodes == op.TEXT4, 5 + (heads >> 8 & 0xFFFFFFFF), lengths)


def _leave_out(kept: Mask, at: Numbers, lengths: Numbers) -> None:
    at, lengths = at[lengths > 0], lengths[lengths > 0]
    for i in range(5):
        kept[at[lengths > i] + i] = False
