"""Logs among the files: told by what stands in them, and read as a stream."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from hashlib import blake2b
from typing import IO

from rankscope.parsers.decoded import Stretch
from rankscope.parsers.files import layers
from rankscope.parsers.files.limits import memory_limit
from rankscope.parsers.logs.decode import cut, decode_range
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
        found = tells(first)
    return first if found else None


def grows(stream: IO[bytes], size: int, named: bool = False) -> bool:
    """Whether a plain file is a log that can be read from any line on; the stream is moved. `named`: see `read`."""
    from rankscope.parsers.logs.nccl import ras

    stream.seek(0)
    first = _recognised(stream, size, named)
    return first is not None and not ras.looks_like_document(first)


def is_marked(stream: IO[bytes], start: int, marked: str) -> bool:
    """Whether what was read of a log up to `start` still stands there; the stream is moved."""
    return start > 0 and mark(stream, start) == marked


def tail(stream: IO[bytes], size: int, start: int, before: str, ended: bool) -> Iterator[tuple[LogContent, Stretch]]:
    """What stands behind `start` in a log that grows; see `stretches`."""
    with memory_limit(MEMORY_BYTES):
        yield from stretches(stream, size, start, before, ended)


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


# A log that still grows, read from where reading stopped: each time only what is new, and a little before it.

HOLD_BYTES = 1 << 14
"""So much of the end, and up to the next head, is read again when more follows."""
STEP_BYTES = 16 << 20
"""More is read in steps of so many bytes."""
MARK_BYTES = 256


def mark(stream: IO[bytes], at: int) -> str:
    """What tells a file whose first `at` bytes were read from another one in its place: a hash of their two ends."""
    stream.seek(0)
    seen = blake2b(stream.read(min(MARK_BYTES, at)), digest_size=8)
    stream.seek(max(0, at - MARK_BYTES))
    seen.update(stream.read(min(MARK_BYTES, at)))
    return f"{at}:{seen.hexdigest()}"


def stretches(
    stream: IO[bytes], size: int, start: int, before: str, ended: bool
) -> Iterator[tuple[LogContent, Stretch]]:
    """What stands between `start`, where a line begins, and `size`, in order; only the last stretch is not firm.

    `before` is the mark of what stands before `start`; "" at the beginning. A file that is emptied meanwhile tells no
    more. A last line without its end waits for it, unless the log has `ended`.
    """
    until = size if ended else _last_line_end(stream, start, size)
    firm = min(cut(stream, max(start, until - HOLD_BYTES)), until) if until - start > HOLD_BYTES else start
    while start < firm:
        end = min(cut(stream, start + STEP_BYTES), firm) if firm - start > STEP_BYTES else firm
        found = _stretch(stream, start, end, True)
        if before and mark(stream, start) != before:
            return
        yield found
        start, before = end, found[1].mark
    if until > start:
        found = _stretch(stream, start, until, False)
        if not before or mark(stream, start) == before:
            yield found


def _stretch(stream: IO[bytes], start: int, end: int, firm: bool) -> tuple[LogContent, Stretch]:
    stream.seek(start)
    content = decode_range(stream, start, end, ranged=True)
    return content, Stretch(start, end, mark(stream, end), firm)


def _last_line_end(stream: IO[bytes], start: int, size: int) -> int:
    """Where the last whole line ends; `start` if none does."""
    while size > start:
        begin = max(start, size - HOLD_BYTES)
        stream.seek(begin)
        found = stream.read(size - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        size = begin
    return start


# Whether a file that has the name of a log tells anything, where no line of it is unmistakably one of a job.

_NOTHING = ("noise", "context")


def tells(text: bytes) -> bool:
    """Whether the readers find an end, an error or a peer in a piece of a file."""
    if text.count(b"\0") > len(text) // 16:
        return False
    found = decode_range(io.BytesIO(text), 0, None)
    return bool(found.ras or found.inspected) or any(e.values.get("role") not in _NOTHING for e in found.events)
