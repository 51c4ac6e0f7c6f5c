"""Archives and packed files with wrong bytes: each costs a row with a reason, some time and some memory, never more."""

from __future__ import annotations

import errno
import gzip
import io
import os
import random
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rankscope.kinds.input_kinds import INPUTS
from rankscope.parsers import streams
from rankscope.parsers.files import reader
from rankscope.parsers.files.reader import read_file
from tests.parsers.files.test_reader import ARCHIVES, PACKERS, contents, dump, tar, zipped

VARIANTS = 60
"""Damaged forms of each archive."""
WORDS = (b"", b"\xff" * 8, b"\0" * 8, b"-1", b"99999999999", b"77777777777\0", b"GNU.sparse.map=", b"\x80" + bytes(11))
"""Bytes that numbers and names of headers do not expect."""


def sparse(headers: dict[str, str], data: bytes = b"1\n0\n10\n", size: int | None = None) -> bytes:
    """A tar whose first member has these PAX headers, before a dump."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("rank_9")
        info.size, info.pax_headers = len(data) if size is None else size, headers
        archive.addfile(info, io.BytesIO(data))
        info = tarfile.TarInfo("rank_0")
        info.size = len(dump())
        archive.addfile(info, io.BytesIO(dump()))
    return out.getvalue()


def old_sparse(real_size: bytes) -> bytes:
    """A tar with one member in the old form of GNU, whose header tells this size of its holes."""
    info = tarfile.TarInfo("rank_0")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386 : 386 + 97] = bytes(97)
    header[386:410] = b"00000000000\0" + b"00000000000\0"
    header[483:495] = real_size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(1024)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """A damaged form: some bytes changed, a part left out, doubled or replaced by a hostile word."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(out))
        match chance.randrange(4):
            case 0:
                out[at] = chance.randrange(256)
            case 1:
                del out[at : at + chance.choice((1, 7, 512))]
            case 2:
                out[at:at] = out[at : at + chance.choice((1, 100, 512))]
            case _:
                word = chance.choice(WORDS)
                out[at : at + len(word)] = word
        out = out or bytearray(b"\0")
    return bytes(out)


FORMS = {
    **ARCHIVES,
    **{f"{name}-dump": pack(dump()) for name, pack in PACKERS.items()},
    "sparse": sparse({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "rank_9"}),
    "old-sparse": old_sparse(b"00000000100\0"),
    "gnu": tar({"x" * 200: dump()}, tarfile.GNU_FORMAT),
    "nested": zipped({"in.zip": zipped({"in.tar.gz": gzip.compress(tar({"rank_0": dump()}))})}),
}


@pytest.mark.parametrize("name", FORMS)
def test_wrong_bytes_cost_a_row(name: str, tmp_path: Path) -> None:
    chance = random.Random(name)
    for _ in range(VARIANTS):
        for content in contents(tmp_path, mutated(FORMS[name], chance)):
            assert content.kind in INPUTS
            assert content.decoded is not None or content.problem


@pytest.mark.parametrize(
    "headers",
    [
        {"GNU.sparse.map": "0,ten"},
        {"GNU.sparse.size": "-1", "GNU.sparse.map": "0,1"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "many"},
        {"size": "-512"}, {"size": "99999999999999999999"}, {"path": "../" * 5000}, {"path": "\0"}, {"mtime": "nan"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("data", [b"ten\n0\n10\n", b"9\n", b"1\n-5\n10\n"])
def test_hostile_headers_of_tar(headers: dict[str, str], data: bytes, tmp_path: Path) -> None:
    found = contents(tmp_path, sparse(headers, data.ljust(512, b"\0")))
    assert found and all(content.decoded is not None or content.problem for content in found)


@pytest.mark.parametrize("data", [sparse({"GNU.sparse.map": "0,ten"}), old_sparse(b"not a number")])
def test_a_broken_sparse_header_is_damage(data: bytes, tmp_path: Path) -> None:
    assert any((content.problem or "").startswith("damaged") for content in contents(tmp_path, data))


@pytest.mark.parametrize("size", [b"77777777777\0", b"\x80" + b"\0" * 4 + b"\x7f" * 7])
def test_holes_are_no_way_around_the_bound(size: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "FREE_BYTES", 1 << 16)
    (content,) = contents(tmp_path, old_sparse(size))
    assert (content.kind, content.inner) == ("unreadable", "!rank_0") and "expands to more than" in str(content.problem)


def test_many_members_that_expand_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "FREE_BYTES", 1 << 16)
    monkeypatch.setattr(streams, "MOST_EXPANSION", 1)
    flood, whole_room = bytes(60_000), streams.ByteRoom

    def noted(rooms: list[streams.ByteRoom], size: int) -> streams.ByteRoom:
        rooms.append(whole_room(size))
        return rooms[-1]

    data = zipped({f"rank_{number}": flood for number in range(100)})
    inner = gzip.compress(tar({f"rank_{number}": flood for number in range(100)}))
    for archive in (data, zipped({f"{number}.tgz": inner for number in range(100)})):
        rooms: list[streams.ByteRoom] = []
        monkeypatch.setattr(streams, "ByteRoom", partial(noted, rooms))
        found = contents(tmp_path, archive)
        assert "its file expands to more than" in str(found[-1].problem)
        (room,) = rooms
        assert room.limit == 16 * (len(archive) + (1 << 16)) and -200 * streams.CHUNK_BYTES < room.left < 0


class FailingFile(io.RawIOBase):
    """A file whose disk fails behind some bytes."""

    def __init__(self, data: bytes, number: int) -> None:
        self._data, self._number = data, number

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._data:
            raise OSError(self._number, os.strerror(self._number))
        part, self._data = self._data[: len(buffer)], self._data[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("data", [b"", dump()[:3000], gzip.compress(os.urandom(5000)), tar({"a": bytes(5000)})[:2048]])
def test_a_disk_that_fails_is_no_damaged_archive(
    data: bytes, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "open_regular", lambda *_: io.BufferedReader(FailingFile(data, number)))
    problems = [content.problem or "" for content in read_file(str(tmp_path / "rank_0"), 100_000)]
    assert os.strerror(number) in problems[-1] and not any("damaged" in problem for problem in problems)
