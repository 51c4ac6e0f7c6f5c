"""Blocks of whole lines of a stream of text, of which only one is in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

PAD_BYTES = 16
"""Bytes of padding before and behind the text of a block."""
LEADING_BYTES = b"x" * (PAD_BYTES - 1) + b"\n"
LINE_BYTES = 1 << 16
"""Longest text without a line end; longer ones are cut."""
_BINARY_MARKS = (b"\x80", b"PK", b"\x7fELF", b"\x89PNG", b"%PDF")


def is_text(first: bytes) -> bool:
    """Whether the beginning of a file is no binary."""
    return bool(first) and not first.startswith(_BINARY_MARKS) and first.count(b"\0") <= len(first) // 16


BLOCK_BYTES = 1 << 21
"""Bytes of a block; larger ones are slower, because they do not fit the processor's cache."""


class LineBlock(NamedTuple):
    """A text of whole lines, valid until the next block is taken."""

    padded: bytearray
    """The text after `LEADING_BYTES`, with at least PAD_BYTES more bytes behind it."""
    size: int
    offset: int

    @property
    def text(self) -> bytes:
        """A copy of the text."""
        return bytes(memoryview(self.padded)[PAD_BYTES : PAD_BYTES + self.size])


def line_blocks(stream: IO[bytes], offset: int = 0, end: int | None = None, first: bytes = b"") -> Iterator[LineBlock]:
    """The blocks of a stream that stands at `offset`, up to `end`; `first` holds bytes that were already read.

    A line longer than a block is cut. Leading zeros are left out: they come from a file that was emptied while its
    writer kept its place. An error of the stream is raised after all blocks before it.
    """
    padded = bytearray(PAD_BYTES + max(BLOCK_BYTES, len(first)) + PAD_BYTES)
    padded[:PAD_BYTES], padded[PAD_BYTES : PAD_BYTES + len(first)] = LEADING_BYTES, first
    have, at_start = len(first), offset == 0
    while True:
        room = len(padded) - 2 * PAD_BYTES if end is None else min(len(padded) - 2 * PAD_BYTES, end - offset)
        have, error = _fill(stream, padded, have, room)
        zeros = _without_zeros(padded, have) if at_start else 0
        offset, have, at_start = offset + zeros, have - zeros, at_start and zeros == have
        if zeros and error is None:
            continue
        over = error is not None or have < len(padded) - 2 * PAD_BYTES
        cut = have if over else padded.rfind(b"\n", PAD_BYTES, PAD_BYTES + have) + 1 - PAD_BYTES
        cut = cut if cut > 0 else have
        if cut:
            yield LineBlock(padded, cut, offset)
        padded[PAD_BYTES : PAD_BYTES + have - cut] = padded[PAD_BYTES + cut : PAD_BYTES + have]
        offset, have = offset + cut, have - cut
        if error is not None:
            raise error
        if over:
            return


def _without_zeros(padded: bytearray, have: int) -> int:
    """Removes leading zeros from a text of `have` bytes; returns their number."""
    if not have or padded[PAD_BYTES]:
        return 0
    rest = padded[PAD_BYTES : PAD_BYTES + have].lstrip(b"\0")
    padded[PAD_BYTES : PAD_BYTES + len(rest)] = rest
    return have - len(rest)


def _fill(stream: IO[bytes], padded: bytearray, have: int, room: int) -> tuple[int, Exception | None]:
    """Reads until `room` bytes are there or the stream ends; their number, and the error that ended the stream."""
    read: Callable[[memoryview], int] = getattr(stream, "readinto1", None) or stream.readinto  # type: ignore[attr-defined]
    with memoryview(padded) as view:
        while have < room:
            try:
                got = read(view[PAD_BYTES + have : PAD_BYTES + room])
            except Exception as error:  # noqa: BLE001 - raised again after the rest
                return have, error
            if not got:
                break
            have += got
    return have, None
