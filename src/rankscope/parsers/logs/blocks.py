"""A log as blocks of whole lines, without ever holding more than one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

from rankscope.parsers.logs.nccl.words import BEFORE, PAD

BLOCK_BYTES = 1 << 21
"""Larger ones are slower: they do not stay in the processor's memory."""


class Block(NamedTuple):
    """A text of whole lines, good until the next is taken."""

    padded: bytearray
    """Begins with `words.BEFORE`; behind the text stand at least `words.PAD` bytes of anything."""
    size: int
    offset: int


def blocks(stream: IO[bytes], offset: int = 0, end: int | None = None, first: bytes = b"") -> Iterator[Block]:
    """The blocks of a stream that stands at `offset`, up to `end`; `first` was read of it already.

    A line longer than a block is cut. A file that is emptied while its writer goes on where it was begins with zeros:
    they are left out. Raises what the stream raises, after all that came before is out.
    """
    padded = bytearray(PAD + max(BLOCK_BYTES, len(first)) + PAD)
    padded[:PAD], padded[PAD : PAD + len(first)] = BEFORE, first
    have, at_start = len(first), offset == 0
    while True:
        room = len(padded) - 2 * PAD if end is None else min(len(padded) - 2 * PAD, end - offset)
        have, error = _fill(stream, padded, have, room)
        zeros = _without_zeros(padded, have) if at_start else 0
        offset, have, at_start = offset + zeros, have - zeros, at_start and zeros == have
        if zeros and error is None:
            continue
        over = error is not None or have < len(padded) - 2 * PAD
        cut = have if over else padded.rfind(b"\n", PAD, PAD + have) + 1 - PAD
        cut = cut if cut > 0 else have
        if cut:
            yield Block(padded, cut, offset)
        padded[PAD : PAD + have - cut] = padded[PAD + cut : PAD + have]
        offset, have = offset + cut, have - cut
        if error is not None:
            raise error
        if over:
            return


def _without_zeros(padded: bytearray, have: int) -> int:
    """Takes the zeros away with which a text of `have` bytes begins; how many there were."""
    if not have or padded[PAD]:
        return 0
    rest = padded[PAD : PAD + have].lstrip(b"\0")
    padded[PAD : PAD + len(rest)] = rest
    return have - len(rest)


def _fill(stream: IO[bytes], padded: bytearray, have: int, room: int) -> tuple[int, Exception | None]:
    """Reads until `room` bytes are there or the stream ends; how many there are, and what ended it before its end."""
    read: Callable[[memoryview], int] = getattr(stream, "readinto1", None) or stream.readinto  # type: ignore[attr-defined]
    with memoryview(padded) as view:
        while have < room:
            try:
                got = read(view[PAD + have : PAD + room])
            except Exception as error:  # noqa: BLE001 - raised again once the rest is out
                return have, error
            if not got:
                break
            have += got
    return have, None
