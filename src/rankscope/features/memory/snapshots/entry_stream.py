"""Unpickling of a snapshot whose entries are taken one by one, so that a history of any length needs little memory.

A pickle of `torch.cuda.memory._dump_snapshot` is one object, with a dict for each entry of its history. The stream adds
an opcode behind each entry that hands it over: a number stays in the list, and the memo keeps None for the dict.
"""

from __future__ import annotations

import io
import re
from typing import IO, Any

from rankscope.features.memory.snapshots.allocation_history import HistoryRows
from rankscope.parsers.safe_values import RefusedError, SafeUnpickler, safe_unpickler

BLOCK_BYTES = 1 << 20
MOST_BEGIN = 512 << 20
"""Most bytes before the history: segments and their blocks."""
_ACTION = re.compile(rb"\x8c\x06action\x94")
_FRAME, _GET1, _GET4 = 0x95, 0x68, 0x6A
_OPEN, _TAKEN = b"}\x94(", b"N\x940}("
"""A dict in the memo, and one without place in it: None has its place."""


class EntryUnpickler(SafeUnpickler):
    """Unpickler that resolves no global, and adds to `rows` each entry that the stream hands over."""

    def __init__(self, stream: IO[bytes], rows: HistoryRows) -> None:
        # the number of the row stays in the list; a method of its own would be a second call for each entry
        self.persistent_load = rows.add  # type: ignore[method-assign]
        super().__init__(stream)


class UnframedBytes:
    """The bytes of a pickle without its frames (PEP 3154): a frame must not change its length.

    Bytes of the file are unchanged from the first place on where no frame begins.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._left, self._odd = stream, 0, stream.read(2)
        self.is_framed = True

    def read(self) -> bytes:
        """The next bytes, about `BLOCK_BYTES`; none at the end."""
        block, self._odd = bytearray(self._odd), b""
        if not self.is_framed:
            return bytes(block) + self._stream.read(BLOCK_BYTES)
        while len(block) < BLOCK_BYTES and self._enters():
            part = self._stream.read(min(self._left, BLOCK_BYTES))
            if not part:
                break
            block += part
            self._left -= len(part)
        return bytes(block) or self._rest_of_odd()

    def _enters(self) -> bool:
        """Whether it is in a frame, or enters the next one."""
        if not self._left:
            head = self._stream.read(9)
            if head and (len(head) < 9 or head[0] != _FRAME):
                self.is_framed, self._odd = False, head
            elif head:
                self._left = int.from_bytes(head[1:], "little")
        return self._left > 0

    def _rest_of_odd(self) -> bytes:
        return b"" if self.is_framed else self.read()


class EntryStream(io.RawIOBase):
    """The bytes of a pickle, with the opcode behind each entry but a few, which stay dicts."""

    def __init__(self, begin: bytes, rest: UnframedBytes, key: bytes) -> None:
        self._block, self._rest, self._key = begin, rest, key
        self._at = 0

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Reads up to `len(buffer)` bytes."""
        if self._at >= len(self._block):
            self._block, self._at = self._next(), 0
        part = self._block[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _next(self) -> bytes:
        framed = self._rest.is_framed
        block = self._rest.read()
        return marked_entries(block, self._key) if framed else block


def marked_entries(block: bytes, key: bytes) -> bytes:
    """The block with the opcode (Q) between an entry and the next one.

    The pickler parts a list after 1,000 entries: the last of a part stays a dict, as does one at the end of a block.
    """
    return block.replace(b"u" + _OPEN + key, b"uQ" + _TAKEN + key) if key else block


def entry_stream(stream: IO[bytes]) -> io.BufferedReader:
    """The stream of a pickle with entries to hand over; unchanged if it has no history of the usual form."""
    rest, begin, found = UnframedBytes(stream), bytearray(), None
    while found is None and len(begin) < MOST_BEGIN and (block := rest.read()):
        seen = max(0, len(begin) - 16)
        begin += block
        found = _ACTION.search(begin, seen)
    if found is None or not rest.is_framed:
        return io.BufferedReader(EntryStream(bytes(begin), rest, b""), BLOCK_BYTES)
    known = bytes(begin[: found.end()])
    key = _key_in(known)
    whole = known + marked_entries(bytes(begin[found.end() :]), key)
    return io.BufferedReader(EntryStream(whole, rest, key), BLOCK_BYTES)


def _key_in(begin: bytes) -> bytes:
    """The reference to the key "action", with which an entry begins, in a pickle that ends with the key itself."""
    reader = safe_unpickler(begin + b".")
    try:
        if reader.load() != "action":
            return b""
    except (RefusedError, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - damaged bytes raise what they like; the reader of the whole says so
        return b""
    place = len(reader.memo.copy()) - 1
    return bytes([_GET1, place]) if place < 256 else bytes([_GET4]) + place.to_bytes(4, "little")
