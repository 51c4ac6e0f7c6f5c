"""Bytes of any kind: no exception, and not for long."""

from __future__ import annotations

import io
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.features.logs.read.decode import decode_log, decode_part
from rankscope.features.logs.read.log_files import looks_like_log
from rankscope.features.logs.read.stretches import LogJoiner
from tests.features.logs.read.test_decode import job, sent

PIECES = st.sampled_from([
    *(line.encode() for line in job(2, 5)), b"\r", b"\n", b"\x1b[0m", b"\xff\xfe", b"[rank3]:", b"3: ", b'{"log":"',
    b"NCCL WARN ", b" comm 0x1 ", b"opCount ", b"[nranks=4]", b"99999999999999999999999", b"#1-2 (00ff) MISMATCH",
    b"Communicators... (0.0s)", b"0 1 2 3 4 5 RUNNING OK", b"-> 3", b'{"coll_perf":{"coll_sn":1}}', b"\0",
])  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(PIECES, st.binary(max_size=30)), max_size=60), st.integers(1, 4))
def test_anything(pieces: list[bytes], parts: int) -> None:
    data = b"".join(pieces)
    looks_like_log(data)
    whole = decode_log(io.BytesIO(data))
    assert sent(whole).header() == whole.header()
    joiner = LogJoiner()
    for part in range(parts):
        joiner.add(decode_part(io.BytesIO(data), len(data), part, parts))
    joined = joiner.result()
    assert joined.counts.get("lines", 0) == whole.counts.get("lines", 0)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_logs_with_bytes_changed(data: st.DataObject) -> None:
    text = bytearray("".join(f"{line}\n" for line in job(2, 6)).encode())
    for _ in range(data.draw(st.integers(1, 20))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    content = decode_log(io.BytesIO(bytes(text)))
    assert content.rows <= len(text)


HOSTILE = {
    "tokens": b"a:1 " * 50_000,
    "brackets": b"[rank1]:" * 30_000,
    "heads": b"h:1:1 [0] NCCL INFO " * 12_000,
    "opcounts": b"A: opCount 1 sendbuff 0x1 recvbuff " * 8_000,
    "returns": b"NCCL\r" * 50_000,
    "commas": b"n:1:1 NCCL CALL ncclX(" + b"1," * 100_000,
    "pairs": b"h:1:1 [0] NCCL INFO comm 0x1 rank 1 nranks 1 " + b"a b " * 50_000,
    "prefixes": b"3: " * 80_000,
    "stamps": b"[2026-01-01 00:00:00] " * 10_000,
    "parens": b"(" * 200_000,
    "spaces": b" " * 250_000,
    "NCCL tokens": b"NCCL " + b"a:1:1 " * 40_000,
    "words": b"NCCL " + b"a.b " * 60_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_lines_take_no_longer_than_long(name: str) -> None:
    begin = time.process_time()
    decode_log(io.BytesIO(HOSTILE[name]))
    looks_like_log(HOSTILE[name])
    # a quarter of a megabyte; a worker is given half a minute and more
    assert time.process_time() - begin < 5
