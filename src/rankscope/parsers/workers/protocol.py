"""Messages between the program and its worker processes: a JSON header, then raw arrays.

Nothing is pickled, so a worker under control of a hostile file can only send numbers and text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import IO, Any

import orjson

_LENGTHS = struct.Struct("<QQ")


def send_message(stream: IO[bytes], header: dict[str, Any], body: Iterable[memoryview] = ()) -> None:
    """Writes one message."""
    text = orjson.dumps(header)
    parts = list(body)
    stream.write(_LENGTHS.pack(len(text), sum(part.nbytes for part in parts)) + text)
    for part in parts:
        stream.write(part)
    stream.flush()


def receive_message(read: Callable[[int], bytearray]) -> tuple[dict[str, Any], memoryview]:
    """Reads one message. `read(n)` returns exactly n bytes, and raises EOFError at the end."""
    text_length, body_length = _LENGTHS.unpack(read(_LENGTHS.size))
    header = orjson.loads(read(text_length))
    return header, memoryview(read(body_length))
