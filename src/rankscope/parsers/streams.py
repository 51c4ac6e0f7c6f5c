"""Streams over files and packed files: opened without waiting, decompressed with a bound."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import re
import resource
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeGuard

import zstandard

from rankscope.text.wording import byte_count

MOST_EXPANSION = 200
"""Largest factor by which a packed dump expands; real dumps expand by 5 to 100."""
FREE_BYTES = 64 << 20
"""Bytes that any packed file may expand to."""
MOST_LIMITS = 16
"""All members and layers of a file together may expand to so many times the limit of one."""
MEMORY_BYTES = 1 << 30
"""Largest dump: 20,000 entries as JSON are 20 MB."""
CHUNK_BYTES = 1 << 20
HEAD_BYTES = 512
"""Bytes that tell the kind of a file; a tar file has its mark at 257."""


class TooLargeError(Exception):
    """A file expands to more than a real one can; the message says to how much."""


STREAM_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError, lzma.LZMAError, OSError)
"""Errors that a torn or damaged packed file raises during the read, and those of a disk."""


def stream_problem(error: Exception) -> str:
    """The reason why a stream ended early, by one of STREAM_ERRORS."""
    if _is_of_disk(error):
        return f"read only in part: {error.strerror}"
    return f"packed file is damaged ({type(error).__name__})"


def disk_problem(error: OSError) -> str:
    """The reason why a file cannot be opened or read."""
    return f"cannot be read: {error.strerror or type(error).__name__}"


def _is_of_disk(error: Exception) -> TypeGuard[OSError]:
    """Whether a disk raised it: readers of packed files raise OSError without a number."""
    return isinstance(error, OSError) and error.errno is not None


class ByteRoom:
    """Bytes that all archives and packed files in one file of `size` bytes may expand to, of which some are used."""

    def __init__(self, size: int) -> None:
        self.limit = self.left = MOST_LIMITS * expansion_limit(size)

    def take(self, count: int) -> None:
        """Uses bytes. Raises TooLargeError if there are no more."""
        self.left -= count
        if self.left < 0:
            raise TooLargeError(f"its file expands to more than {byte_count(self.limit)}: refused")


def expansion_limit(size: int) -> int:
    """Most bytes that one packed file or member in a file of `size` bytes may expand to."""
    return FREE_BYTES + MOST_EXPANSION * size


class BoundedStream(io.RawIOBase):
    """A stream that raises TooLargeError after `limit` bytes, and when its file has no room for more."""

    def __init__(self, stream: IO[bytes], limit: int, room: ByteRoom) -> None:
        self.stream = stream
        self.limit = limit
        self.left = limit
        self.room = room

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Reads up to `len(buffer)` bytes."""
        data = _read_some(self.stream, min(len(buffer), CHUNK_BYTES))
        self.left -= len(data)
        self.room.take(len(data))
        if self.left < 0:
            raise TooLargeError(f"expands to more than {byte_count(self.limit)}: refused")
        buffer[: len(data)] = data
        return len(data)


_GZIP, _ZSTD, _XZ = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\x00"
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")


def is_packed(head: bytes) -> bool:
    """Whether the first bytes are those of a file packed by gzip, zstd, xz or bzip2."""
    return head.startswith((_GZIP, _ZSTD, _XZ)) or _BZIP2.match(head) is not None


def is_tar(head: bytes) -> bool:
    """Whether 512 bytes are the header of a tar file."""
    return head[257:262] == b"ustar"


def is_zip(head: bytes) -> bool:
    """Whether the first bytes are those of a zip file."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def unpack_stream(stream: IO[bytes], head: bytes, size: int, room: ByteRoom | None = None) -> io.BufferedReader | None:
    """The unpacked stream of a file of `size` bytes; None if `head` does not begin a packed one.

    `room` is that of the file around it, if there is one.
    """
    if not is_packed(head):
        return None
    return io.BufferedReader(BoundedStream(_unpacked(stream, head), expansion_limit(size), room or ByteRoom(size)))


def _unpacked(stream: IO[bytes], head: bytes) -> Any:
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=stream)
    if head.startswith(_ZSTD):
        return zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(stream, read_across_frames=True)
    return lzma.LZMAFile(stream) if head.startswith(_XZ) else bz2.BZ2File(stream)


def _read_some(stream: IO[bytes], count: int) -> bytes:
    """At most `count` bytes. Unlike read(), this keeps the bytes before damage."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    return read(count)


def read_all(stream: IO[bytes]) -> tuple[bytes, str | None]:
    """All bytes of a stream, and why it ended early. Raises TooLargeError over MEMORY_BYTES."""
    parts, total = [], 0
    try:
        while chunk := _read_some(stream, CHUNK_BYTES):
            parts.append(chunk)
            total += len(chunk)
            if total > MEMORY_BYTES:
                raise TooLargeError(f"holds more than {byte_count(MEMORY_BYTES)}: refused")
    except STREAM_ERRORS as error:
        return b"".join(parts), stream_problem(error)
    return b"".join(parts), None


# Memory bounds for decoding one file.

BASE_BYTES = 256 << 20
"""Bytes that any file may use."""
MEMORY_PER_BYTE = 48
"""Memory for each byte of a file: objects of a real pickle take up to 14 bytes, and columns more."""


WORKER_BYTES = 4 << 30
"""Memory of a worker outside of `memory_limit`: directories of archives, sending of results."""


def limit_worker() -> None:
    """Bounds the memory of this process for good."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (_at_most(_address_space() + WORKER_BYTES, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextlib.contextmanager
def memory_limit(size: int) -> Iterator[None]:
    """Limits memory inside the block to the need of a file of `size` bytes; MemoryError is raised beyond it."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    wanted = _address_space() + BASE_BYTES + MEMORY_PER_BYTE * size
    resource.setrlimit(resource.RLIMIT_AS, (_at_most(wanted, before[1]), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _at_most(wanted: int, hard: int) -> int:
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _address_space() -> int:
    """Bytes of address space in use; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - a Path takes as long as the read, for each file
            pages = int(statm.read().split()[0])
    except (OSError, ValueError):
        return 16 << 30
    return pages * resource.getpagesize()


class _ReplayedStream(io.RawIOBase):
    """A stream of which the first bytes were read before."""

    def __init__(self, begin: bytes, rest: IO[bytes]) -> None:
        self._begin, self._rest = begin, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        part = self._begin[: len(buffer)] or self._rest.read(len(buffer))
        self._begin = self._begin[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def replayed(begin: bytes, rest: IO[bytes]) -> IO[bytes]:
    """`rest` with bytes before it that were read from it."""
    return io.BufferedReader(_ReplayedStream(begin, rest))
