"""Writes objects as the recorder's C++ pickler does: protocol 2, strings and shared dicts memoised, lists never."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any


def torch_pickle(value: object) -> bytes:
    """The bytes of `value` (dict, list, tuple of two, str, int, float, bool, None) with the recorder's opcodes."""
    return _Writer().dump(value)


class _Writer:
    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")
        self.memo: dict[object, int] = {}
        self.uses: Counter[int] = Counter()

    def dump(self, value: object) -> bytes:
        self._count(value)
        self._put(value)
        self._index(b"q", b"r", len(self.memo))  # the whole is memoised, too
        return bytes(self.out + b".")

    def _count(self, value: Any) -> None:
        self.uses[id(value)] += isinstance(value, dict)
        if isinstance(value, dict | list | tuple):
            for item in value.values() if isinstance(value, dict) else value:
                self._count(item)

    def _put(self, value: Any) -> None:
        if value is None or isinstance(value, bool):
            self.out += {None: b"N", True: b"\x88", False: b"\x89"}[value]
        elif isinstance(value, int):
            self._integer(value)
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif isinstance(value, str):
            self._memoised(("s", value), value)
        elif isinstance(value, dict):
            self._memoised(("d", id(value)), value)
        elif isinstance(value, tuple):
            for item in value:
                self._put(item)
            self.out += b"\x86"
        else:
            self._items(b"](", value, b"e")

    def _memoised(self, key: object, value: Any) -> None:
        if key in self.memo:
            self._index(b"h", b"j", self.memo[key])
            return
        if isinstance(value, str):
            text = value.encode()
            self.out += b"X" + struct.pack("<I", len(text)) + text
        else:
            self._items(b"}(", [x for pair in value.items() for x in pair], b"u")
        if isinstance(value, str) or self.uses[id(value)] > 1:
            self._index(b"q", b"r", self.memo.setdefault(key, len(self.memo)))

    def _index(self, short: bytes, long: bytes, index: int) -> None:
        self.out += short + bytes([index]) if index < 256 else long + struct.pack("<I", index)

    def _items(self, start: bytes, values: list[Any], end: bytes) -> None:
        self.out += start
        for value in values:
            self._put(value)
        self.out += end

    def _integer(self, value: int) -> None:
        if 0 <= value < 256:
            self.out += b"K" + bytes([value])
        elif 0 <= value < 65536:
            self.out += b"M" + struct.pack("<H", value)
        elif -(2**31) <= value < 2**31:
            self.out += b"J" + struct.pack("<i", value)
        else:
            raw = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
            self.out += b"\x8a" + bytes([len(raw)]) + raw
