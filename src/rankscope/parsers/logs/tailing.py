"""A log that still grows, read from where reading stopped: each time only what is new, and a little before it.

What stands in the last lines may go on: a traceback, a record cut by another process. So they are read now, to be
shown, and once more with what follows them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from hashlib import blake2b
from typing import IO

from rankscope.parsers.decoded import Stretch
from rankscope.parsers.logs.decode import cut, decode_range
from rankscope.parsers.logs.model import LogContent

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
