"""Where the fields of a pickled dump are, if it is written as the recorder writes it.

Found from its first entry, which names every key; from then on keys are references to the memo.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from rankscope.parsers.columnar import NULL, Numbers
from rankscope.parsers.flight_recorder.columns import CALL_KEYS, NUMBER_KEYS
from rankscope.parsers.flight_recorder.fields import Fields, positions
from rankscope.parsers.flight_recorder.pickles import unpickle

_DURATION = "duration_ms"
_KINDS = {"frames": "stack", "retired": "flag", "is_p2p": "flag", "process_group": "pair"}
_NUMBERS = frozenset(key for keys in NUMBER_KEYS.values() for key in keys)


class OtherLayoutError(Exception):
    """The file is not laid out as the recorder does it."""


class Layout:
    """The entries after the first, and after `walk` what was read of them; arrays have one value for each."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        first_end = data.index(b"u}(", data.index(b"entries"))
        example = unpickle(data[: first_end + 1] + b"eu.")["entries"][0]
        self.kinds = {key: _kind(key, value) for key, value in example.items() if key != _DURATION}
        keys = [*self.kinds, _DURATION]
        self.refs = {key: ref for key in keys if (ref := _reference(data, key)) is not None}
        self.starts, self.ends = _bounds(data, first_end, self.refs[next(iter(self.kinds))])
        self.fields = Fields(data, self.starts + 2)
        self.numbers: dict[str, Numbers] = {}
        self.calls: dict[str, tuple[Numbers, ...]] = {}
        self.stacks: list[bytes] = []
        self.lists: list[bytes] = []
        self.millis: npt.NDArray[np.float64] | None = None

    def walk(self) -> None:
        """Reads all fields of all entries. Raises OtherLayoutError, or KeyError for a key without a reference."""
        runs = [[key for key, _ in run] for _, run in groupby(self.kinds.items(), key=lambda item: item[1] == "list")]
        followers: list[str | None] = [*(run[0] for run in runs[1:]), None]
        for run, follower in zip(runs, followers, strict=True):
            if self.kinds[run[0]] == "list":
                self._take_lists(follower)
                continue
            for i, key in enumerate(run):
                self.fields.expect(self.refs[key])
                self._read(key, run[i + 1] if i + 1 < len(run) else follower)

    def whole(self) -> npt.NDArray[np.bool_]:
        """Which entries had what was expected, from beginning to end. Where the last one ends is not known."""
        whole: npt.NDArray[np.bool_] = self.fields.good & (self.fields.at == self.ends)
        whole[-1] = False
        return whole

    def thinned(self, left_out: npt.NDArray[np.bool_]) -> bytes:
        """The dump without some of its entries; what stands behind the last one is taken for a part of it."""
        kept = np.flatnonzero(~left_out)
        pairs = zip(self.starts[kept].tolist(), self.ends[kept].tolist(), strict=True)
        parts = [self.data[start : end + 1] for start, end in pairs]
        return self.data[: int(self.starts[0])] + b"".join(parts)

    def absent(self) -> Numbers:
        """A column without a value."""
        return np.full(len(self.starts), NULL, np.int64)

    def _read(self, key: str, follower: str | None) -> None:
        kind = self.kinds[key]
        if kind == "stack":
            self.stacks = self._regions(follower)
            return
        value: Any = getattr(self.fields, kind)()
        if key in _NUMBERS:
            self.numbers[key] = value
        elif key in CALL_KEYS:
            self.calls[key] = value if isinstance(value, tuple) else (value,)
        if key == "time_created_ns" and _DURATION in self.refs:
            self.millis = self.fields.optional_float(self.refs[_DURATION])

    def _take_lists(self, follower: str | None) -> None:
        """Takes keys and lists as bytes, unread: few of them differ."""
        if self.lists:
            raise OtherLayoutError
        self.lists = self._regions(follower)

    def _regions(self, follower: str | None) -> list[bytes]:
        """The bytes up to the next key, and moves over them."""
        begins, ends = self.fields.at, self.ends
        if follower is not None:
            marks = _after_lists(self.data, self.refs[follower])
            ends = np.minimum(marks[np.searchsorted(marks[:-1], begins)], self.ends)
        self.fields.move_to(ends)
        data = self.data
        return [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


def _bounds(data: bytes, first_end: int, first_key: bytes) -> tuple[Numbers, Numbers]:
    """Where each entry but the first begins, and the place of the "u" that ends it; for the last, the end of all."""
    starts = positions(data, b"}(" + first_key)
    starts = starts[starts > first_end]
    before = np.frombuffer(data, np.uint8)
    # Python's pickler ends a list after every 1000 items and goes on with it
    parted = (before[starts - 3] == ord("u")) & (before[starts - 2] == ord("e")) & (before[starts - 1] == ord("("))
    follows = (before[starts - 1] == ord("u")) | parted
    ends = (starts - np.where(parted, 3, 1))[follows]
    return starts[follows], np.append(ends[1:], len(data))


def _after_lists(data: bytes, key: bytes) -> Numbers:
    """Where `key` follows the end of a list; the last number is the length of the data."""
    found = positions(data, key)
    before = np.frombuffer(data, np.uint8)[found - 1]
    ends_list = (before == ord("e")) | (before == ord("a")) | (before == ord("]"))
    return np.append(found[ends_list], len(data))


def _kind(key: str, value: Any) -> str:
    """How to read a key, also one that is not known."""
    if key in _KINDS:
        return _KINDS[key]
    if key in _NUMBERS or key in ("pg_id", "timeout_ms"):
        return "integer"
    kinds = {list: "list", bool: "flag", int: "integer", float: "skip_float", str: "reference", type(None): "integer"}
    if type(value) not in kinds:
        raise OtherLayoutError
    return kinds[type(value)]


def _reference(data: bytes, key: str) -> bytes | None:
    """How the file refers to a key, which it spells out once; None if it does not."""
    spelled = b"X" + len(key).to_bytes(4, "little") + key.encode()
    at = data.find(spelled)
    if at < 0:
        return None
    at += len(spelled)
    if data[at : at + 1] == b"q":
        return b"h" + data[at + 1 : at + 2]
    return b"j" + data[at + 1 : at + 5] if data[at : at + 1] == b"r" else None
