"""A log as blocks of whole lines, without ever holding more than one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, NamedTuple

from rankscope.parsers.files.layers import CHUNK
from rankscope.parsers.logs.nccl.words import BEFORE, BEHIND

BLOCK_BYTES = 2 << 20
"""Larger ones are slower: they do not stay in the processor's memory."""


class Block(NamedTuple):
    """A text of whole lines, between two paddings of `words.PAD` bytes."""

    padded: bytearray
    size: int
    offset: int


def blocks(stream: IO[bytes], offset: int = 0, end: int | None = None, first: bytes = b"") -> Iterator[Block]:
    """The blocks of a stream that stands at `offset`, up to `end`; `first` was read of it already.

    A line longer than a block is cut. Raises what the stream raises, after all that came before is out.
    """
    rest = bytearray(first)
    while True:
        want = max(BLOCK_BYTES - len(rest), 1)
        want = want if end is None else min(want, end - offset - len(rest))
        error, chunk = _read(stream, want) if want > 0 else (None, b"")
        rest += chunk
        if chunk and error is None and len(rest) < BLOCK_BYTES:
            continue
        over = not chunk or error is not None
        cut = len(rest) if over else rest.rfind(b"\n") + 1 or len(rest)
        if cut:
            yield Block(bytearray(b"".join((BEFORE, memoryview(rest)[:cut], BEHIND))), cut, offset)
        offset += cut
        rest = rest[cut:]
        if error is not None:
            raise error
        if over:
            return


def _read(stream: IO[bytes], count: int) -> tuple[Exception | None, bytes]:
    """At most `count` bytes, and what was raised instead."""
    read = getattr(stream, "read1", stream.read)
    try:
        return None, read(min(count, CHUNK))
    except Exception as error:  # noqa: BLE001 - raised again by the caller once the rest is out
        return error, b""
