"""Writes objects as the recorder's C++ pickler does: protocol 2, strings and shared dicts memoised, lists never."""

from __future__ import annotations

import struct
from typing import Any

_CONTAINERS = frozenset({dict, list, tuple})
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
            if type(holder) is dict:
                if id(holder) in met:
                    self.shared.add(id(holder))
                    continue
                met.add(id(holder))
                holder = holder.values()
            waiting += [item for item in holder if type(item) in _CONTAINERS]

    def _put(self, value: Any) -> None:
        kind = type(value)
        if kind is str or kind is dict:
            reference = self.references.get(value if kind is str else id(value))
            if reference is None:
                self._put_new(value)
            else:
                self.out += reference
        elif kind is int:
            self.out += _integer(value)
        elif value is None or kind is bool:
            self.out += _CONSTANTS[value]
        elif kind is float:
            self.out += b"G" + _DOUBLE(value)
        elif kind is tuple:
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
            references = self.references
            for name, item in value.items():
                reference = references.get(name) if type(name) is str else None
                if reference is None:
                    self._put(name)
                else:
                    self.out += reference
                kind = type(item)
                if kind is int:
                    self.out += _integer(item)
                elif item is None or kind is bool:
                    self.out += _CONSTANTS[item]
                else:
                    self._put(item)
            self.out += b"u"
            if id(value) not in self.shared:
                return
        index = len(self.references)
        self.out += _indexed(b"q", b"r", index)
        self.references[value if isinstance(value, str) else id(value)] = _indexed(b"h", b"j", index)


def _indexed(short: bytes, long: bytes, index: int) -> bytes:
    return short + bytes([index]) if index < 256 else long + struct.pack("<I", index)


_DOUBLE = struct.Struct(">d").pack
_TWO, _FOUR = struct.Struct("<H").pack, struct.Struct("<i").pack
_BYTES = tuple(b"K" + bytes([value]) for value in range(256))


def _integer(value: int) -> bytes:
    if 0 <= value < 256:
        return _BYTES[value]
    if 0 <= value < 65536:
        return b"M" + _TWO(value)
    if -(2**31) <= value < 2**31:
        return b"J" + _FOUR(value)
    raw = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw
