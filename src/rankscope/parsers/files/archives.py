"""Members of tar and zip archives, one after the other, in memory."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO

from rankscope.parsers.files.layers import Bounded
from rankscope.parsers.files.limits import memory_limit

MEMBER_LIMIT = 1_000_000
"""More members are not looked at."""


@dataclass(frozen=True)
class Member:
    """A file in an archive; `stream` is None for what is no file."""

    name: str
    size: int
    mtime_ns: int | None
    stream: IO[bytes] | None
    problem: str = "a link or special file: not read"
    """Why there is no stream."""


DAMAGE = (tarfile.TarError, zipfile.BadZipFile, NotImplementedError, RuntimeError)
"""What a damaged archive raises; RuntimeError is an encrypted member."""


def tar_members(stream: IO[bytes]) -> Iterator[Member]:
    """Members of a tar stream; a stream of a member is good until the next is taken."""
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for count, info in enumerate(archive):
            if count >= MEMBER_LIMIT:
                return
            if not info.isdir():
                content = archive.extractfile(info) if info.isreg() else None
                yield Member(info.name, info.size, _tar_time(info.mtime), content)


def zip_members(stream: IO[bytes], limit: int) -> Iterator[Member]:
    """Members of a zip file; no more than `limit` bytes come out of any of them."""
    with memory_limit(0):
        archive = zipfile.ZipFile(stream)
    with archive:
        for info in archive.infolist()[:MEMBER_LIMIT]:
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.is_dir():
                continue
            if kind not in (0, stat.S_IFREG):
                yield Member(info.filename, 0, None, None)
                continue
            try:
                content = archive.open(info)
            except DAMAGE as error:
                yield Member(info.filename, info.file_size, _zip_time(info), None, f"cannot be read: {error}")
                continue
            with content:
                bounded = io.BufferedReader(Bounded(content, limit))
                yield Member(info.filename, info.file_size, _zip_time(info), bounded)


def _tar_time(seconds: float) -> int | None:
    return int(seconds * 1_000_000_000) if 0 < seconds < 2**33 else None


def _zip_time(info: zipfile.ZipInfo) -> int | None:
    try:
        return int(datetime(*info.date_time, tzinfo=UTC).timestamp()) * 1_000_000_000
    except ValueError:
        return None
