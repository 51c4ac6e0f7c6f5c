"""Streams over files and what is packed in them: opened without waiting, decompressed with a bound."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import resource
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import zstandard

from rankscope.text.wording import byte_count

RATIO = 200
"""A file that expands by more is no packed dump: those shrink by 5 to 100 times."""
FREE_BYTES = 64 << 20
"""May always come out of a packed file, whatever its size."""
MEMORY_BYTES = 1 << 30
"""No single dump is larger: 20,000 entries as JSON are 20 MB."""
CHUNK = 1 << 20
HEAD = 512
"""Bytes looked at to tell what a file is; a tar file has its mark at 257."""


class TooLargeError(Exception):
    """More came out of a file than can be honest; the message says how much."""


class NotAFileError(Exception):
    """The path is no regular file any more."""


DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError, OSError)
"""What a torn or damaged packed file raises while it is read."""


def open_regular(path: str) -> IO[bytes]:
    """Opens a regular file. A pipe or device that took its place meanwhile is never waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotAFileError("not a regular file")
    return os.fdopen(descriptor, "rb")


class Bounded(io.RawIOBase):
    """A stream that raises TooLargeError after `limit` bytes."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self.stream = stream
        self.limit = limit
        self.left = limit

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Reads up to `len(buffer)` bytes."""
        data = _read_some(self.stream, min(len(buffer), CHUNK))
        self.left -= len(data)
        if self.left < 0:
            raise TooLargeError(f"expands to more than {byte_count(self.limit)}: refused")
        buffer[: len(data)] = data
        return len(data)


def is_packed(head: bytes) -> bool:
    """Whether the first bytes are those of a gzip or zstd file."""
    return head.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd"))


def is_tar(head: bytes) -> bool:
    """Whether 512 bytes are the header of a tar file."""
    return head[257:262] == b"ustar"


def is_zip(head: bytes) -> bool:
    """Whether the first bytes are those of a zip file."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def unpacked(stream: IO[bytes], head: bytes, size: int) -> io.BufferedReader | None:
    """The stream inside a gzip or zstd file of `size` bytes; None if `head` begins neither."""
    limit = FREE_BYTES + RATIO * size
    if head.startswith(b"\x1f\x8b"):
        return io.BufferedReader(Bounded(gzip.GzipFile(fileobj=stream), limit))  # type: ignore[arg-type]
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(stream, read_across_frames=True)
        return io.BufferedReader(Bounded(reader, limit))
    return None


def _read_some(stream: IO[bytes], count: int) -> bytes:
    """At most `count` bytes; what comes before the damage in a file is not lost with it, as it is by read()."""
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    return read(count)


def read_all(stream: IO[bytes]) -> tuple[bytes, str | None]:
    """Everything in a stream, and why it ended early. Raises TooLargeError over MEMORY_BYTES."""
    parts, total = [], 0
    try:
        while chunk := _read_some(stream, CHUNK):
            parts.append(chunk)
            total += len(chunk)
            if total > MEMORY_BYTES:
                raise TooLargeError(f"holds more than {byte_count(MEMORY_BYTES)}: refused")
    except DAMAGE as error:
        return b"".join(parts), f"packed file is damaged ({type(error).__name__})"
    return b"".join(parts), None


# Bounds on what decoding one file may allocate.

BASE_BYTES = 256 << 20
"""May always be allocated."""
PER_BYTE = 48
"""Objects take up to 14 bytes for each byte of a genuine pickle, and columns are made beside them."""


WORKER_BYTES = 4 << 30
"""Nor does a worker ever allocate more outside of `memory_limit`: reading directories of archives, sending results."""


def limit_worker() -> None:
    """Bounds this process for good."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (_at_most(_address_space() + WORKER_BYTES, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextlib.contextmanager
def memory_limit(size: int) -> Iterator[None]:
    """Within, no more is allocated than a file of `size` bytes can need; MemoryError is raised instead."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    wanted = _address_space() + BASE_BYTES + PER_BYTE * size
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
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError):
        return 16 << 30
    return pages * resource.getpagesize()
