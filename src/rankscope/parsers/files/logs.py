"""Logs among the files: told by what stands in them, and read as a stream."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from rankscope.parsers.decoded import Stretch
from rankscope.parsers.files import layers
from rankscope.parsers.files.limits import memory_limit

if TYPE_CHECKING:
    from rankscope.parsers.logs.model import LogContent

MEMORY_BYTES = 32 << 20
"""Decoding a log or a range of one takes what a dump of this size may take."""
MOST_ZEROS = 1 << 32
"""So many bytes that are zero are passed over in the beginning of a file: it was emptied while a program that does not
append wrote to it, as logrotate's copytruncate does."""


def read(stream: IO[bytes], size: int, part: tuple[int, int] | None = None, named: bool = False) -> LogContent | None:
    """The log in a stream that stands at its beginning; None if it is none.

    `part` (number, of how many) says that the stream is a plain file of `size` bytes that can be searched: with more
    than one, a range of it is read. `named`: it has the name of a log, and is one if it tells anything.
    """
    first = _recognised(stream, size if part is not None else 0, named)
    if first is None:
        return None
    from rankscope.parsers.logs import decode

    with memory_limit(MEMORY_BYTES):
        if part is None or part[1] == 1:
            return decode.decode(stream, first)
        return decode.decode_part(stream, size, *part)


def _recognised(stream: IO[bytes], size: int, named: bool) -> bytes | None:
    """The first bytes of a log but zeros, behind which the stream then stands; None if it is none.

    `size` is that of a plain file, which can be searched, else 0.
    """
    from rankscope.parsers.logs import recognise

    first = _first(stream, recognise.HEAD_BYTES)
    found = recognise.looks_like_log(first)
    if not found and size > len(first) and b"\0" not in first:
        behind = stream.tell()
        found = recognise.sampled(stream, size)
        stream.seek(behind)
    if not found and named:
        from rankscope.parsers.logs.tailing import tells

        found = tells(first)
    return first if found else None


def grows(stream: IO[bytes], size: int, named: bool = False) -> bool:
    """Whether a plain file is a log that can be read from any line on; the stream is moved. `named`: see `read`."""
    from rankscope.parsers.logs.nccl import ras

    stream.seek(0)
    first = _recognised(stream, size, named)
    return first is not None and not ras.looks_like_document(first)


def is_marked(stream: IO[bytes], start: int, mark: str) -> bool:
    """Whether what was read of a log up to `start` still stands there; the stream is moved."""
    from rankscope.parsers.logs import tailing

    return start > 0 and tailing.mark(stream, start) == mark


def tail(stream: IO[bytes], size: int, start: int, before: str, ended: bool) -> Iterator[tuple[LogContent, Stretch]]:
    """What stands behind `start` in a log that grows; see `tailing.stretches`."""
    from rankscope.parsers.logs import tailing

    with memory_limit(MEMORY_BYTES):
        yield from tailing.stretches(stream, size, start, before, ended)


def _first(stream: IO[bytes], count: int) -> bytes:
    """The first bytes of a stream but zeros, as far as it can be read: damage shows again when all of it is read."""
    read = getattr(stream, "read1", stream.read)
    found, zeros = bytearray(), 0
    with contextlib.suppress(*layers.DAMAGE):
        while len(found) < count and zeros < MOST_ZEROS and (chunk := read(count - len(found))):
            rest = chunk if found else chunk.lstrip(b"\0")
            found += rest
            zeros += len(chunk) - len(rest)
    return bytes(found)
