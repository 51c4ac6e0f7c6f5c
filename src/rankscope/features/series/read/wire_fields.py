"""Fields of protobuf messages, without their schema: https://protobuf.dev/programming-guides/encoding."""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10


class WireError(Exception):
    """A message that ends early, or is none."""


def wire_fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Number, wire type and value of each field: a whole number, or bytes. Raises WireError for damage."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield key >> 3, kind, value
            continue
        if kind == BYTES:
            size, at = varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise WireError(f"a field of type {kind}")
        if size > len(data) - at:
            raise WireError("a field ends behind its message")
        yield key >> 3, kind, data[at : at + size]
        at += size


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it. Raises WireError."""
    value = 0
    for count, byte in enumerate(data[at : at + _MOST_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & (1 << 64) - 1, at + count + 1
    raise WireError("a number ends early")


def signed(value: int) -> int:
    """A number of 64 bits, which may be negative."""
    return value - (1 << 64) if value >= 1 << 63 else value


def floats(data: memoryview, kind: str) -> float:
    """The first number of a field, "f" or "d"; NaN if there is none."""
    size = struct.calcsize(kind)
    return float(struct.unpack_from(f"<{kind}", data)[0]) if len(data) >= size else float("nan")
