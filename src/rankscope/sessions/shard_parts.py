"""Parts of a session: what one task read of its share, as messages of workers in one compressed file.

A part is a Zstandard stream of messages (see `parsers.workers.protocol`): a `PartHead`, one message for each file with
its content, and a last one with their number, by which a part that was cut short is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec
import polars as pl
import zstandard

from rankscope import __version__
from rankscope.assemble.held_sources import RingRoom
from rankscope.assemble.secret_texts import hidden_header
from rankscope.assemble.sources import SourceFile
from rankscope.kinds.functions import PackageError
from rankscope.kinds.input_kinds import UNREADABLE
from rankscope.parsers.contents import restore_content
from rankscope.parsers.files.directory_walk import FoundPath
from rankscope.parsers.workers.protocol import receive_message, send_message
from rankscope.report.output_files import replaced_file
from rankscope.sessions.manifest import FORMAT
from rankscope.sessions.parquet_tables import SessionError, lent_bytes, session_file

_LEVEL = 1
_BROKEN = (
    ValueError, LookupError, TypeError, ArithmeticError, AttributeError, msgspec.MsgspecError, zstandard.ZstdError,
    pl.exceptions.PolarsError,
)  # fmt: skip
"""Errors of a part that is cut short, or that no rankscope wrote."""


class ListedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file that a task has found, of any share."""

    shown: str
    size: int
    mtime_ns: int | None
    own: bool
    """Whether it is in the share of this task."""


class PartHead(msgspec.Struct, frozen=True, kw_only=True):
    """The first message of a part."""

    format: int
    rankscope: str
    root: str
    found: tuple[ListedFile, ...] = ()
    """All files that the task found, those of other shares too."""


class _FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    shown: str
    kind: str
    size: int
    mtime_ns: int | None
    problem: str | None
    rows: int
    decoded: dict[str, Any] | None
    other: bool
    """Whether it counts only if no other file of the job tells anything."""


@dataclass(frozen=True)
class ShardPart:
    """The files of one share, as one task read them."""

    head: PartHead
    sources: list[SourceFile]
    others: list[SourceFile]
    """Files of `sources`, read as logs; they count only if no file of the job tells anything."""


def part_head(root: str, found: Iterable[FoundPath], own: Iterable[FoundPath]) -> PartHead:
    """The head of a part that is written now, with the files of its task among all."""
    mine = {path.shown for path in own}
    listed = tuple(ListedFile(path.shown, path.size, path.mtime_ns, path.shown in mine) for path in found)
    return PartHead(format=FORMAT, rankscope=__version__, root=root, found=listed)


def write_part(path: Path, part: ShardPart) -> None:
    """Writes or replaces a part as a whole. Raises OSError."""
    with replaced_file(path) as file, zstandard.ZstdCompressor(level=_LEVEL).stream_writer(file, closefd=False) as out:
        send_message(out, msgspec.to_builtins(part.head))
        for other, sources in enumerate((part.sources, part.others)):
            for source in sources:
                _send_source(out, source, bool(other))
        send_message(out, {"end": len(part.sources) + len(part.others)})


def _send_source(out: IO[bytes], source: SourceFile, other: bool) -> None:
    content = source.content
    facts = _FileFacts(
        shown=source.shown,
        kind=source.kind,
        size=source.size,
        mtime_ns=source.mtime_ns,
        problem=source.problem,
        rows=content.rows if content else 0,
        decoded=hidden_header(content.header()) if content else None,
        other=other,
    )
    header = {name: getattr(facts, name) for name in facts.__struct_fields__}
    send_message(out, header, content.body() if content else ())


def read_head(path: Path) -> PartHead:
    """The head of a part. Raises SessionError."""
    with _messages(path, "") as messages:
        return _head(path, next(messages)[0])


def read_part(path: Path, room: RingRoom | None = None, within: str = "") -> ShardPart:
    """A part, if it is whole; its dumps are cut as they come, until all have `room`.

    `within` is that of `session_file`. Raises SessionError, and NoMemoryError without room.
    """
    with _messages(path, within) as messages:
        part = ShardPart(_head(path, next(messages)[0]), [], [])
        for header, body in messages:
            if "end" in header:
                if header["end"] == len(part.sources) + len(part.others):
                    return part
                break
            facts = msgspec.convert(header, _FileFacts)
            content, problem = None, facts.problem
            if facts.decoded is not None:
                try:
                    content = restore_content(facts.kind, facts.decoded, body, facts.rows)
                except PackageError as error:
                    problem = str(error)
            source = SourceFile(facts.shown, facts.kind, facts.size, facts.mtime_ns, problem, content)
            if room is not None and source.dump is not None:
                room.take(source)
                messages.refund(body.nbytes)
            (part.others if facts.other else part.sources).append(source)
        raise SessionError(f"{path.name} is cut short")


def _head(path: Path, header: dict[str, Any]) -> PartHead:
    if header.get("format") != FORMAT or header.get("rankscope") != __version__:
        raise SessionError(f"{path.name} is of rankscope {header.get('rankscope')!s:.20}, this one is {__version__}")
    return msgspec.convert(header, PartHead)


@contextmanager
def _messages(path: Path, within: str) -> Iterator[_PartMessages]:
    """The messages of a part. Raises SessionError for any error in them."""
    most = lent_bytes() // 2
    try:
        with session_file(path, within) as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
            yield _PartMessages(stream, most)
    except EOFError as error:
        raise SessionError(f"{path.name} is cut short") from error
    except _BROKEN as error:
        raise SessionError(f"{path.name} is no part of a session: {str(error)[:200]}") from error


class _PartMessages:
    """The messages of a stream, which in all hold no more than `most` bytes."""

    _block = 1 << 22

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream = stream
        self._left = most

    def __iter__(self) -> Iterator[tuple[dict[str, Any], memoryview]]:
        return self

    def __next__(self) -> tuple[dict[str, Any], memoryview]:
        return receive_message(self._exactly)

    def refund(self, count: int) -> None:
        """Lets as many bytes more come: others of them are counted elsewhere, or gone."""
        self._left += count

    def _exactly(self, count: int) -> bytearray:
        """The next bytes. Raises EOFError at the end, ValueError beyond the bound."""
        self._left -= count
        if self._left < 0:
            raise ValueError("it holds more than this machine has memory for")
        data = bytearray()
        while len(data) < count:
            block = self._stream.read(min(self._block, count - len(data)))
            if not block:
                raise EOFError
            data += block
        return data


def missing_sources(heads: Sequence[PartHead], reason: str) -> list[SourceFile]:
    """Files that a task has found, and that are in no whole part: they cannot be read, for this reason."""
    there = {path.shown for head in heads for path in head.found if path.own}
    listed = {path.shown: path for head in heads for path in head.found if path.shown not in there}
    return [SourceFile(path.shown, UNREADABLE.name, path.size, path.mtime_ns, reason) for path in listed.values()]
