"""Logs among the files: told by what stands in them, and read as a stream."""

from __future__ import annotations

import contextlib
from typing import IO, TYPE_CHECKING

from rankscope.parsers.files import layers
from rankscope.parsers.files.limits import memory_limit

if TYPE_CHECKING:
    from rankscope.parsers.logs.model import LogContent

KIND = "log"
MEMORY_BYTES = 32 << 20
"""Decoding a log or a range of one takes what a dump of this size may take."""


def read(stream: IO[bytes], size: int, part: tuple[int, int] | None = None) -> LogContent | None:
    """The log in a stream that stands at its beginning; None if it is none.

    `part` (number, of how many) says that the stream is a plain file of `size` bytes that can be searched: with more
    than one, a range of it is read.
    """
    from rankscope.parsers.logs import recognise

    first = _first(stream, recognise.HEAD_BYTES)
    found = recognise.looks_like_log(first)
    if not found and part is not None and size > len(first) and b"\0" not in first:
        found = recognise.sampled(stream, size)
        stream.seek(len(first))
    if not found:
        return None
    from rankscope.parsers.logs import decode

    with memory_limit(MEMORY_BYTES):
        if part is None or part[1] == 1:
            return decode.decode(stream, first)
        return decode.decode_part(stream, size, *part)


def _first(stream: IO[bytes], count: int) -> bytes:
    """The first bytes of a stream, as far as it can be read: damage shows again when all of it is read."""
    read = getattr(stream, "read1", stream.read)
    found = bytearray()
    with contextlib.suppress(*layers.DAMAGE):
        while len(found) < count and (chunk := read(count - len(found))):
            found += chunk
    return bytes(found)
