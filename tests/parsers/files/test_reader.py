"""Packed files and archives: read where they lie, bounded, and never unpacked to disk."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from rankscope.parsers import streams
from rankscope.parsers.files.reader import FileContent, read_file
from tests.parsers.dumps import Recorder


def dump(rank: int = 0) -> bytes:
    made = Recorder(rank, {"0": ("default_pg", [0, 1, 2, 3])})
    for _ in range(3 + rank):
        made.collective()
    return made.pickle()


def tar(members: dict[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1_700_000_000
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, (2024, 1, 2, 3, 4, 6)), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def contents(tmp_path: Path, data: bytes, part: int = 0, parts: int = 1) -> list[FileContent]:
    path = tmp_path / "file"
    path.write_bytes(data)
    return list(read_file(str(path), len(data), part, parts))


def only(tmp_path: Path, data: bytes) -> FileContent:
    (content,) = contents(tmp_path, data)
    return content


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
}
FOLDER = {"./dumps/rank_0": dump(0), "dumps/rank_1": dump(1), "dumps/train.log": b"hello"}
PACKED = {
    "plain": dump(),
    "gzip": gzip.compress(dump()),
    "zstd": zstandard.compress(dump()),
    "xz": lzma.compress(dump()),
    "bzip2": bz2.compress(dump()),
    "gzip of zstd": gzip.compress(zstandard.compress(dump())),
    "two gzip members": gzip.compress(dump()[:100]) + gzip.compress(dump()[100:]),
}
ARCHIVES = {
    "tar": tar(FOLDER), "tar.gz": gzip.compress(tar(FOLDER)), "tar.zst": zstandard.compress(tar(FOLDER)),
    "tar.xz": lzma.compress(tar(FOLDER)), "tar.bz2": bz2.compress(tar(FOLDER)),
    "zip": zipped(FOLDER), "old tar": tar(FOLDER, tarfile.USTAR_FORMAT),
}  # fmt: skip


@pytest.mark.parametrize("data", PACKED.values(), ids=PACKED.keys())
def test_a_dump_however_it_is_packed(tmp_path: Path, data: bytes) -> None:
    content = only(tmp_path, data)
    assert content.decoded is not None
    assert (content.inner, content.kind, content.problem, content.decoded.rows) == ("", "flight-recorder", None, 3)


@pytest.mark.parametrize("data", ARCHIVES.values(), ids=ARCHIVES.keys())
def test_a_directory_as_people_send_it(tmp_path: Path, data: bytes) -> None:
    found = contents(tmp_path, data)
    rows = [(c.inner, c.kind, c.decoded.rows if c.decoded else None) for c in found]
    assert rows == [
        ("!dumps/rank_0", "flight-recorder", 3),
        ("!dumps/rank_1", "flight-recorder", 4),
        ("!dumps/train.log", "unknown", None),
    ]
    assert found[0].size == len(dump(0))
    assert found[0].mtime_ns is not None
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_workers_share_an_archive(tmp_path: Path) -> None:
    data = gzip.compress(tar(FOLDER))
    parts = [[c.inner for c in contents(tmp_path, data, part, 2)] for part in (0, 1)]
    assert parts == [["!dumps/rank_0", "!dumps/train.log"], ["!dumps/rank_1"]]
    assert [len(contents(tmp_path, dump(), part, 2)) for part in (0, 1)] == [1, 0]


def test_an_archive_in_an_archive(tmp_path: Path) -> None:
    inner = tar({"rank_0.gz": gzip.compress(dump())})
    found = contents(tmp_path, zipped({"node0.tgz": gzip.compress(inner), "node1.zip": zipped({"rank_1": dump(1)})}))
    assert [(c.inner, c.kind) for c in found] == [
        ("!node0.tgz!rank_0.gz", "flight-recorder"),
        ("!node1.zip!rank_1", "flight-recorder"),
    ]


def test_what_in_an_archive_is_no_file(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind in (("link", tarfile.SYMTYPE), ("pipe", tarfile.FIFOTYPE), ("../../up", tarfile.REGTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    assert [(c.inner, c.kind) for c in contents(tmp_path, out.getvalue())] == [
        ("!link", "not-a-file"), ("!pipe", "not-a-file"), ("!../../up", "empty"),
    ]  # fmt: skip


def test_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "FREE_BYTES", 1 << 16)
    flood = b"\x80\x02}" + bytes(4 << 20)
    for data in (*(pack(flood) for pack in PACKERS.values()), gzip.compress(tar({"rank_0": flood}))):
        content = contents(tmp_path, data)[-1]
        assert content.kind == "unreadable"
        assert "expands to more than" in str(content.problem)
    inside = contents(tmp_path, zipped({"rank_0": flood, "rank_1": dump(1)}))
    assert [c.kind for c in inside] == ["unreadable", "flight-recorder"]


def test_packed_in_itself_again_and_again(tmp_path: Path) -> None:
    data = dump()
    for _ in range(12):
        data = gzip.compress(data)
    assert "too many times" in str(only(tmp_path, data).problem)


def test_a_file_too_large_for_any_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MEMORY_BYTES", 1000)
    assert "holds more than" in str(only(tmp_path, b"\x80\x02}" + bytes(streams.CHUNK_BYTES + 1)).problem)


@pytest.mark.parametrize("name", ["gzip", "zstd", "xz"])
def test_a_torn_packed_dump_keeps_what_is_whole(tmp_path: Path, name: str) -> None:
    made = Recorder(0, {"0": ("default_pg", [0, 1])})
    for _ in range(2000):
        made.collective()
    packed = PACKERS[name](made.pickle())
    content = only(tmp_path, packed[: len(packed) * 2 // 3])
    assert content.decoded is not None
    assert 100 < content.decoded.rows < 2000
    assert "cut off" in str(content.problem)


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_torn_anywhere(tmp_path: Path, name: str) -> None:
    data = ARCHIVES[name]
    for cut in range(1, len(data), max(1, len(data) // 25)):
        for content in contents(tmp_path, data[:cut]):
            assert content.kind in ("flight-recorder", "archive", "unknown", "damaged", "unreadable", "empty")


def test_an_empty_archive_is_listed(tmp_path: Path) -> None:
    assert [c.kind for c in contents(tmp_path, zipped({}))] == ["archive"]
    assert [c.kind for c in contents(tmp_path, zipped({"notes.txt": b"hello", "empty/": b""}))] == ["unknown"]


def test_other_files(tmp_path: Path) -> None:
    assert only(tmp_path, b"").kind == "empty"
    assert only(tmp_path, b"[W] rank 3 stopped\n" * 1000).kind == "unknown"
    assert only(tmp_path, b'{"scenario": "healthy"}').kind == "unknown"
    refused = only(tmp_path, b"\x80\x02}X\x01\x00\x00\x00acos\nsystem\n(X\x04\x00\x00\x00truetRs.")
    assert (refused.kind, refused.problem) == ("pickle", "asks for os.system: refused")


def test_what_became_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert [c.kind for c in read_file(str(tmp_path / "pipe"), 10)] == ["not-a-file"]
    assert [c.kind for c in read_file(str(tmp_path / "gone"), 10)] == ["unreadable"]


@pytest.mark.parametrize("packed", [tar, lambda members: gzip.compress(tar(members))])
def test_json_of_an_unknown_kind_costs_an_archive_nothing(
    tmp_path: Path, packed: Callable[[dict[str, bytes]], bytes]
) -> None:
    members = {"args.json": b'{"steps": 100, "layers": [1, 2, 3]}', "dump": dump()}
    path = tmp_path / "job.tar"
    path.write_bytes(packed(members))
    assert [one.kind for one in read_file(str(path), path.stat().st_size)][:2] == ["unknown", "flight-recorder"]
