"""Reader of one path: a dump of any kind, several in an archive, or the reason why there is none."""

from __future__ import annotations

import io
import os
import re
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import IO, Any, cast

from rankscope.kinds.functions import PackageError, function
from rankscope.kinds.input_kinds import (
    ARCHIVE,
    DAMAGED,
    EMPTY,
    FILE_LINK_OUT,
    INPUTS,
    LOG,
    NOT_A_FILE,
    PICKLE,
    TEXT,
    TRACE,
    UNKNOWN,
    UNKNOWN_KIND,
    UNREADABLE,
    InputKind,
)
from rankscope.parsers import streams
from rankscope.parsers.contents import DecodedFile, LogStretch, NotThisKindError, failed_tests, kinds_of
from rankscope.parsers.file_access import NotAFileError, OutsideError, open_regular
from rankscope.parsers.files import foreign_files
from rankscope.parsers.flight_recorder.decode import NOT_A_DUMP, NotADumpError
from rankscope.parsers.safe_values import RefusedError
from rankscope.parsers.streams import BoundedStream, memory_limit

NAME_LIMIT = 1024
"""Longest name of a member; longer names are cut."""
MOST_LAYERS = 4
"""Most layers of packing and archives in one another."""
STREAM_BYTES = 32 << 20
"""Memory for decoding a stream, given as the size of an equal file."""


@dataclass
class FileContent:
    """One thing found in a file."""

    inner: str
    """Path within the archive, with the leading "!"; empty for the file itself."""
    kind: str
    problem: str | None = None
    decoded: DecodedFile | None = None
    size: int | None = None
    """None for the size of the file."""
    mtime_ns: int | None = None
    stretch: LogStretch | None = None
    """The bytes that were read of a followed log."""
    stamp: tuple[int, int, int] | None = None
    """Size, time and inode of a followed file, in its last content only."""


@dataclass(frozen=True)
class _FilePlace:
    room: streams.ByteRoom
    """That of the whole file."""
    inner: str = ""
    depth: int = 0
    size: int = 0
    mtime_ns: int | None = None
    part: int = 0
    parts: int = 1
    named: bool = False
    """The file has the name of a log, or the user named it."""
    name: str = ""
    """The path of the file, or of the member of an archive."""
    given: bool = False
    """The user named the file: it is read as a log if it is a text of no other kind."""

    def found(self, kind: InputKind, problem: str | None = None, decoded: DecodedFile | None = None) -> FileContent:
        """The content found at this place."""
        inside = (self.size, self.mtime_ns) if self.inner else (None, None)
        return FileContent(self.inner, kind.name, problem, decoded, *inside)


def read_file(
    path: str, size: int, part: int = 0, parts: int = 1, given: bool = False, within: str = ""
) -> Iterator[FileContent]:
    """The contents of a file; of an archive only every `parts`-th member, from `part` on.

    `given` says that the user named this very file; `within` is that of `open_regular`.
    """
    named = given or is_named(path)
    try:
        with open_regular(path, within) as stream:
            yield from _contents(
                stream,
                _FilePlace(
                    streams.ByteRoom(size), size=size, part=part, parts=parts, named=named, name=path, given=given
                ),
            )
    except (NotAFileError, OutsideError, OSError) as error:
        yield _unopened(error)


def follow_log(
    path: str, start: int, mark: str, ended: bool, given: bool = False, within: str = ""
) -> Iterator[FileContent]:
    """The contents of a file that may still grow; of a log with this mark only the part behind `start`.

    `given` says that the user named this very file; `within` is that of `open_regular`.

    The last content is the stamp of the file, unless the file changed meanwhile.
    """
    try:
        with open_regular(path, within) as stream:
            before = _stamp(stream)
            place = _FilePlace(
                streams.ByteRoom(before[0]), size=before[0], named=given or is_named(path), name=path, given=given
            )
            yield from _followed(stream, place, start, mark, ended)
            if _stamp(stream) == before:
                yield FileContent("", "", stamp=before)
    except (NotAFileError, OutsideError, OSError) as error:
        yield _unopened(error)


def _unopened(error: Exception) -> FileContent:
    """The content of a file that cannot be opened, or whose disk fails."""
    if isinstance(error, OSError):
        return FileContent("", UNREADABLE.name, streams.disk_problem(error))
    return FileContent("", (NOT_A_FILE if isinstance(error, NotAFileError) else FILE_LINK_OUT).name, str(error))


def _stamp(stream: IO[bytes]) -> tuple[int, int, int]:
    about = os.fstat(stream.fileno())
    return about.st_size, about.st_mtime_ns, about.st_ino


def _followed(stream: IO[bytes], place: _FilePlace, start: int, mark: str, ended: bool) -> Iterator[FileContent]:
    same = start <= place.size and function(TEXT.is_marked)(stream, start, mark)
    if not same and not _grows(stream, place):
        stream.seek(0)
        yield from _contents(stream, place)
        return
    try:
        begin, before = (start, mark) if same else (0, "")
        for found, stretch in function(TEXT.read_tail)(stream, place.size, begin, before, ended):
            yield FileContent("", LOG.name, found.problem, found, stretch=stretch)
    except MemoryError:
        yield FileContent("", "unreadable", "needs more memory than the size of the file allows: refused")


def _grows(stream: IO[bytes], place: _FilePlace) -> bool:
    """Whether a file is a plain log."""
    stream.seek(0)
    head = stream.read(streams.HEAD_BYTES)
    packed = streams.is_packed(head) or streams.is_tar(head) or streams.is_zip(head)
    packed = packed or foreign_files.foreign_name(head, place.name) is not None
    if packed or kinds_of(head, 0):
        return False
    return bool(function(TEXT.is_growable)(stream, place.size, place.named, place.given))


def _contents(stream: IO[bytes], place: _FilePlace) -> Iterator[FileContent]:
    try:
        reader: Any = stream if hasattr(stream, "peek") else io.BufferedReader(cast(Any, stream))
        head = reader.peek(streams.HEAD_BYTES)[: streams.HEAD_BYTES]
        yield from _by_head(reader, head, place)
    except streams.TooLargeError as error:
        yield place.found(UNREADABLE, str(error))
    except MemoryError:
        yield place.found(UNREADABLE, "needs more memory than the size of the file allows: refused")
    except (*streams.STREAM_ERRORS, *ARCHIVE_ERRORS) as error:
        if isinstance(error, OSError) and error.errno is not None:
            yield place.found(UNREADABLE, streams.disk_problem(error))
        else:
            yield place.found(ARCHIVE, f"damaged: {type(error).__name__}")
    except Exception as error:  # noqa: BLE001 - tarfile, zipfile and decoders raise anything for hostile bytes
        yield place.found(UNREADABLE, f"damaged: {type(error).__name__}")


def _by_head(stream: Any, head: bytes, place: _FilePlace) -> Iterator[FileContent]:
    inner = streams.unpack_stream(stream, head, place.size, place.room)
    if place.depth > MOST_LAYERS:
        yield place.found(ARCHIVE, "packed too many times: refused")
    elif inner is not None:
        yield from _contents(inner, replace(place, depth=place.depth + 1))
    elif streams.is_tar(head) or streams.is_zip(head):
        yield from _members(_archived(stream, head, place), replace(place, depth=place.depth + 1))
    else:
        found = _decoded(stream, head, place)
        if found is not None:
            yield found


def _archived(stream: Any, head: bytes, place: _FilePlace) -> Iterator[ArchiveMember]:
    limit = streams.expansion_limit(place.size)
    if streams.is_tar(head):
        return tar_members(stream, limit, place.room)
    source = stream if place.depth == 0 else io.BytesIO(streams.read_all(stream)[0])
    return zip_members(source, limit, place.room)


def _members(members: Iterator[ArchiveMember], place: _FilePlace) -> Iterator[FileContent]:
    index = -1
    for index, member in enumerate(members):
        if index % place.parts != place.part:
            continue
        name = member.name[:NAME_LIMIT].encode("utf-8", "replace").decode().removeprefix("./")
        inside = _FilePlace(
            place.room,
            f"{place.inner}!{name}",
            place.depth,
            member.size,
            member.mtime_ns,
            named=is_named(name),
            name=name,
        )
        if member.stream is None:
            yield inside.found(NOT_A_FILE, member.problem)
        else:
            yield from _contents(member.stream, inside)
    if index < 0 and place.part == 0:
        yield place.found(ARCHIVE, "an empty archive")


def _decoded(stream: IO[bytes], head: bytes, place: _FilePlace) -> FileContent | None:
    """The content of a file; None for all parts but the first, unless each part is read by itself."""
    first = not place.part or bool(place.inner)
    foreign = foreign_files.foreign_name(head, place.name)
    if foreign is not None:
        return place.found(UNKNOWN, foreign) if first else None
    kinds = kinds_of(head, place.size)
    if TRACE not in kinds and head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        # whoever saves a trace anew may put keys of his own before its events, which look like those of another kind
        stream, begin = _begin_of(stream, place)
        kinds = [TRACE] if _EVENTS.search(begin) is not None else kinds
    elif not kinds and len(head) < place.size <= PASTE_BYTES and not (place.part or place.depth or place.inner):
        stream, begin = _begin_of(stream, place)
        kinds = [kind for kind in INPUTS.values() if kind.begins_later and function(kind.begins_later)(begin)]
    if not kinds and head:
        parts = None if place.depth or place.inner else (place.part, place.parts)
        found: DecodedFile | None = function(TEXT.read)(stream, place.size, parts, place.named, place.given)
        failed = failed_tests(head)
        if found is not None:
            found.problem = "; ".join(text for text in (found.problem, failed) if text) or None
            return place.found(LOG, found.problem, found)
        if failed and first:
            return place.found(UNKNOWN, failed)
    if kinds and kinds[0].read:
        return _streamed(kinds[0], stream, place)
    return _whole(stream, head, kinds, place) if first else None


def _whole(stream: IO[bytes], head: bytes, kinds: list[InputKind], place: _FilePlace) -> FileContent:
    """The content of a file that is read as a whole."""
    if not head:
        return place.found(EMPTY, "empty file")
    return _of_kinds(stream, kinds, place) if kinds else place.found(UNKNOWN, UNKNOWN_KIND)


PASTE_BYTES = 256 << 10
"""Most bytes of a text that somebody pasted; larger ones are logs."""
LATER_BYTES = 4 << 20
"""Bytes in which the list of events of a trace is searched, behind metadata of any kind."""
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')


def _begin_of(stream: IO[bytes], place: _FilePlace) -> tuple[IO[bytes], bytes]:
    """The stream at its beginning, and what it begins with."""
    begin = stream.read(LATER_BYTES)
    # a member of a tar stream does not even tell whether it is seekable
    if not place.inner and stream.seekable():
        stream.seek(0)
        return stream, begin
    return streams.replayed(begin, stream), begin


def _streamed(kind: InputKind, stream: IO[bytes], place: _FilePlace) -> FileContent | None:
    """The content of a file that is read as a stream; the first part of a packed file reads all of it."""
    parts = (0, 1) if place.depth or place.inner else (place.part, place.parts)
    if place.part and parts == (0, 1) and not place.inner:
        return None
    try:
        with memory_limit(STREAM_BYTES):
            found: DecodedFile = function(kind.read)(stream, place.size, parts)
    except PackageError as error:
        return place.found(kind, str(error))
    except RefusedError as error:
        return place.found(PICKLE, str(error))
    except NotThisKindError as error:
        return place.found(UNKNOWN, str(error))
    return place.found(kind, found.problem, found)


def _of_kinds(stream: IO[bytes], kinds: list[InputKind], place: _FilePlace) -> FileContent:
    data, damage = streams.read_all(stream)
    tried = place.found(UNKNOWN, UNKNOWN_KIND)
    for kind in kinds:
        tried = _decode(kind, data, damage, place)
        if not INPUTS[tried.kind].may_be_other:
            return tried
    found: DecodedFile | None = function(TEXT.read)(io.BytesIO(data), len(data), named=place.named)
    if found is None:
        return tried
    found.problem = "; ".join(x for x in (damage, found.problem) if x) or None
    return place.found(LOG, found.problem, found)


def _decode(kind: InputKind, data: bytes, damage: str | None, place: _FilePlace) -> FileContent:
    try:
        with memory_limit(len(data)):
            decoded: DecodedFile = function(kind.decode)(data)
    except PackageError as error:
        return place.found(kind, str(error))
    except RefusedError as error:
        return place.found(PICKLE, str(error))
    except NotThisKindError as error:
        return place.found(UNKNOWN, str(error))
    except NotADumpError as error:
        return place.found(UNKNOWN if str(error) == NOT_A_DUMP else DAMAGED, str(error))
    decoded.problem = "; ".join(x for x in (damage, decoded.problem) if x) or None
    return place.found(kind, decoded.problem, decoded)


# File names that promise a log.

_WORDS = "stdout|stderr|dmesg|nohup|syslog|console|logs?|output|slurm"
_LOG = re.compile(
    rf"(?:\.(?:log|out|err|{_WORDS})|\.[oe]\d{{1,12}}"
    rf"|(?:^|[._\-])(?:{_WORDS})(?:[._\-]\d{{1,12}}){{0,2}}(?:\.txt)?)(?:\.\d{{1,9}})?"
    r"(?:\.(?:gz|bz2|xz|zst))?$",
    re.IGNORECASE,
)
"""Suffixes of printed output, also of schedulers (`train.o4711`), rotated (`.log.1`) and packed."""


def is_named(path: str) -> bool:
    """Whether a file has the name of a log."""
    return _LOG.search(re.split(r"[/\\!]", path)[-1]) is not None


# Members of tar and zip archives, one after the other, in memory.

MOST_ENDS = 64
"""Most reads at the end of a tar; of a whole one there are few."""
MEMBER_LIMIT = 1_000_000
"""Most members of an archive that are read."""


@dataclass(frozen=True)
class ArchiveMember:
    """A file in an archive; `stream` is None for a link or special file."""

    name: str
    size: int
    mtime_ns: int | None
    stream: IO[bytes] | None
    problem: str = "a link or special file: not read"
    """The reason why there is no stream."""


ARCHIVE_ERRORS = (tarfile.TarError, zipfile.BadZipFile, NotImplementedError, RuntimeError)
"""Errors that a damaged archive raises; RuntimeError means an encrypted member."""


def tar_members(stream: IO[bytes], limit: int, room: streams.ByteRoom) -> Iterator[ArchiveMember]:
    """Members of a tar stream; the stream of a member is valid until the next one is taken.

    Only holes of sparse members add bytes: such a member may have `limit`.
    """
    with tarfile.open(fileobj=cast(IO[bytes], _EndingStream(stream)), mode="r|") as archive:
        for count, info in enumerate(archive):
            if count >= MEMBER_LIMIT:
                return
            if not info.isdir():
                content = archive.extractfile(info) if info.isreg() else None
                if content is not None and info.issparse():
                    content = io.BufferedReader(BoundedStream(content, limit, room))
                yield ArchiveMember(info.name, info.size, _tar_time(info.mtime), content)


class _EndingStream:
    """A stream that raises EOFError if it is read again and again at its end.

    For a member of 10^20 bytes tarfile would do so to skip it.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left = MOST_ENDS

    def read(self, count: int) -> bytes:
        """The next bytes; none at the end."""
        data = self._stream.read(count)
        self._left -= not data
        if self._left < 0:
            raise EOFError
        return data


def zip_members(stream: IO[bytes], limit: int, room: streams.ByteRoom) -> Iterator[ArchiveMember]:
    """Members of a zip file, with at most `limit` bytes each, and together what there is `room` for."""
    with memory_limit(0):
        archive = zipfile.ZipFile(stream)
    with archive:
        for info in archive.infolist()[:MEMBER_LIMIT]:
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.is_dir():
                continue
            if kind not in (0, stat.S_IFREG):
                yield ArchiveMember(info.filename, 0, None, None)
                continue
            try:
                content = archive.open(info)
            except ARCHIVE_ERRORS as error:
                yield ArchiveMember(info.filename, info.file_size, _zip_time(info), None, f"cannot be read: {error}")
                continue
            with content:
                bounded = io.BufferedReader(BoundedStream(content, limit, room))
                yield ArchiveMember(info.filename, info.file_size, _zip_time(info), bounded)


def _tar_time(seconds: float) -> int | None:
    return int(seconds * 1_000_000_000) if 0 < seconds < 2**33 else None


def _zip_time(info: zipfile.ZipInfo) -> int | None:
    try:
        return int(datetime(*info.date_time, tzinfo=UTC).timestamp()) * 1_000_000_000
    except ValueError:
        return None
