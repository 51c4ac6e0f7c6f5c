"""Whatever bytes a file holds: a Snapshot that can be sent, or a refusal; quickly."""

from __future__ import annotations

import contextlib
import time

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.features.stacks.py_spy.decode import decode_snapshot, looks_like_snapshot
from rankscope.features.stacks.py_spy.model import snapshot_from
from rankscope.parsers.contents import NotThisKindError
from tests.features.stacks.py_spy.dumps import LAUNCHER, dataset_of, document, family, process

SEEDS = [
    process(threads=3).encode(),
    family(process(1, command=LAUNCHER), process(2, parent=(1, LAUNCHER)), process(3, parent=(2, "x"))).encode(),
    document(),
    document() + document(8),
]
PIECES = st.sampled_from(
    [b"Process 1: ", b"\nPython v3 (x)\n", b"\nThread 5 (idle)", b': "', b"\n    f (a:1)", b"\n        ", b"(" * 50,
     b")" * 50, b"\x1b[", b"\x1b]", b"\xff\xfe", b"\r", b"\n", b"[", b"{", b'"pid": 1,', b"}]", b"\0", b"Error: ",
     b"9" * 30, b"\nParent Process 1: x", b"\nProcess 1: y"]
)  # fmt: skip


def check(data: bytes) -> None:
    looks_like_snapshot(data[:512])
    with contextlib.suppress(NotThisKindError):
        snapshot = decode_snapshot(data)
        assert snapshot_from(orjson.loads(orjson.dumps(snapshot.header()))) == snapshot
        assert len(snapshot.roles) == len(snapshot.processes)
        dataset = dataset_of({"rank_0.txt": data}) if looks_like_snapshot(data[:512]) else None
        assert dataset is None or dataset.threads.height == snapshot.rows


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=2000))
def test_any_bytes(data: bytes) -> None:
    check(data)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=40))
def test_any_order_of_what_means_something(pieces: list[bytes]) -> None:
    check(b"".join(pieces))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SEEDS), st.integers(0, 5000), st.integers(0, 300), PIECES | st.binary(max_size=20))
def test_a_dump_with_a_part_replaced(seed: bytes, at: int, length: int, piece: bytes) -> None:
    at %= len(seed)
    check(seed[:at] + piece + seed[at + length :])


@pytest.mark.parametrize(
    "data",
    [
        b"Process 1: x\n" * 100_000,
        b"Process 1: x\nPython v3 (x)\n" * 50_000,
        b"Process 1: x\nPython v3 (x)\n\n" + b'Thread 5 (idle): "a"\n' * 100_000,
        b"Process 1: x\nPython v3 (x)\n\nThread 5 (idle)\n" + b"    f (a.py:1)\n" * 200_000,
        b"Process 1: x\nPython v3 (x)\n\nThread 5 (idle)\n    " + b"(" * 2_000_000 + b")\n",
        b"Process 1: x\nPython v3 (x)\n\nThread 5 (idle)\n    " + b" (" * 1_000_000 + b")\n",
        b"Process 1: x\nPython v3 (x)\n\nThread 5 (idle)\n" + b" " * 2_000_000 + b"x\n",
        b"Process 1: x\nPython v3 " + b"(" * 2_000_000,
        b"Process 1: x\nPython v3" + b" " * 2_000_000 + b"x",
        b"\x1b[" * 1_000_000 + b"\nProcess 1: x\nPython v3 (x)\n",
        b"Process 1: x\nPython v3 (x)\n" + b"\x1b]0;" * 500_000,
        b"Process 1: " + b"Python v3 (" * 200_000 + b"\nPython v3 (x)\n",
        b'[{"pid": 1, "thread_id":' * 100_000,
        b'[{"pid": 1, "thread_id": 1, "frames": []}\n' * 50_000,
        b'[' + b'{"pid": 1, "thread_id": 1, "frames": []},' * 50_000,
        b"[ " + b" " * 2_000_000,
        b"[" * 2_000_000,
    ],
)  # fmt: skip
def test_nothing_takes_long(data: bytes) -> None:
    began = time.process_time()
    with contextlib.suppress(NotThisKindError):
        decode_snapshot(data)
    looks_like_snapshot(data[:512])
    assert time.process_time() - began < 5
