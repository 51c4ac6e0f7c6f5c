"""Writes objects as the recorder's C++ pickler does: protocol 2, strings and shared dicts memoised, lists never."""

from __future__ import annotations

import struct
from typing import Any

_CONTAINERS = (dict, list, tuple)
_CONSTANTS = {None: b"N", True: b"\x88", False: b"\x89"}


def torch_pickle(value: object) -> bytes:
    """The bytes of `value` (dict, list, tuple of two, str, int, float, bool, None) with the recorder's opcodes."""
    return _Writer().dump(value)


class _Writer:
    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")
        self.references: dict[object, bytes] = {}
        """By string, or id of a dict, what refers to it."""
        self.shared: set[int] = set()
        """Ids of dicts that are met more than once."""

    def dump(self, value: object) -> bytes:
        self._find_shared(value)
        self._put(value)
        self.out += _indexed(b"q", b"r", len(self.references))  # the whole is memoised, too
        return bytes(self.out + b".")

    def _find_shared(self, value: object) -> None:
        waiting, met = [value], set[int]()
        while waiting:
            holder: Any = waiting.pop()
            if isinstance(holder, dict):
                if id(holder) in met:
                    self.shared.add(id(holder))
                    continue
                met.add(id(holder))
                holder = holder.values()
            elif not isinstance(holder, list | tuple):
                continue
            waiting += [item for item in holder if isinstance(item, _CONTAINERS)]

    def _put(self, value: Any) -> None:
        if isinstance(value, str | dict):
            reference = self.references.get(value if isinstance(value, str) else id(value))
            if reference is None:
                self._put_new(value)
            else:
                self.out += reference
        elif value is None or isinstance(value, bool):
            self.out += _CONSTANTS[value]
        elif isinstance(value, int):
            self.out += _integer(value)
        elif isinstance(value, float):
            self.out += b"G" + struct.pack(">d", value)
        elif isinstance(value, tuple):
            for item in value:
                self._put(item)
            self.out += b"\x86"
        else:
            self.out += b"]("
            for item in value:
                # most items are frames that stand further up
                reference = self.references.get(id(item))
                if reference is None:
                    self._put(item)
                else:
                    self.out += reference
            self.out += b"e"

    def _put_new(self, value: str | dict[Any, Any]) -> None:
        if isinstance(value, str):
            text = value.encode()
            self.out += b"X" + struct.pack("<I", len(text)) + text
        else:
            self.out += b"}("
            for name, item in value.items():
                self._put(name)
                self._put(item)
            self.out += b"u"
            if id(value) not in self.shared:
                return
        index = len(self.references)
        self.out += _indexed(b"q", b"r", index)
        self.references[value if isinstance(value, str) else id(value)] = _indexed(b"h", b"j", index)


def _indexed(short: bytes, long: bytes, index: int) -> bytes:
    return short + bytes([index]) if index < 256 else long + struct.pack("<I", index)


def _integer(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if 0 <= value < 65536:
        return b"M" + struct.pack("<H", value)
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw
