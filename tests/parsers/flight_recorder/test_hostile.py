"""Files that were made to do harm: refused or cut down, never resolved, never more memory than is fair."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.parsers.flight_recorder.decode import NotADumpError, decode_dump, looks_like_dump
from rankscope.parsers.flight_recorder.model import Dump
from rankscope.parsers.matrices import NULL
from rankscope.parsers.safe_values import RefusedError
from rankscope.parsers.streams import memory_limit
from tests.parsers.dumps import Recorder, as_json
from tests.parsers.torch_pickle import torch_pickle

GLOBALS = {
    "GLOBAL": b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00truetR.",
    "in a dict": b"\x80\x02}(X\x07\x00\x00\x00versioncos\nsystem\n(X\x04\x00\x00\x00truetRu.",
    "INST": b"\x80\x02(X\x04\x00\x00\x00trueios\nsystem\n.",
    "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
}


def recorder(rows: int = 6) -> Recorder:
    made = Recorder(0, {"0": ("default_pg", [0, 1])})
    for _ in range(rows):
        made.collective()
    return made


def with_entry(**changes: Any) -> Dump:
    """A dump of three entries, the middle one changed."""
    document = recorder(3).document()
    document["entries"][1].update(changes)
    return decode_dump(pickle.dumps(document, protocol=2))


@pytest.mark.parametrize("data", GLOBALS.values(), ids=GLOBALS.keys())
def test_a_global_is_named_and_not_resolved(data: bytes) -> None:
    with pytest.raises(RefusedError, match=r"^asks for os\.system: refused$"):
        decode_dump(data)


def test_nothing_runs(tmp_path: Path) -> None:
    class Harm:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "harm"),))

    document = recorder().document()
    document["entries"][2]["frames"] = [Harm()]
    with pytest.raises(RefusedError, match="mkdir"):
        decode_dump(pickle.dumps(document))
    with pytest.raises(RefusedError, match="mkdir"):
        decode_dump(pickle.dumps(document)[:-20])
    assert not (tmp_path / "harm").exists()


BOMBS = {
    "memo index": b"\x80\x02}r\xff\xff\xff\x7f.",
    "bytearray": b"\x80\x05}\x96" + struct.pack("<Q", 1 << 33) + b".",
    "bytes": b"\x80\x04}\x8e" + struct.pack("<Q", 1 << 33) + b".",
    "text": b"\x80\x04}\x8d" + struct.pack("<Q", 1 << 33) + b".",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 1 << 33) + b"}.",
    "long": b"\x80\x02}\x8b" + struct.pack("<i", 0x7FFFFFFF) + b".",
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS.keys())
def test_a_few_bytes_allocate_no_gigabytes(data: bytes) -> None:
    with memory_limit(len(data)), pytest.raises((NotADumpError, MemoryError)):
        decode_dump(data)


def test_one_list_shared_by_many_entries() -> None:
    """Linear in the file, quadratic once it is written out."""
    document = recorder(1).document()
    entry = {**document["entries"][0], "input_sizes": [[1] * 8] * 20_000}
    document["entries"] = [{**entry, "pg_id": i} for i in range(300)]
    data = pickle.dumps(document, protocol=2)
    with memory_limit(len(data)), pytest.raises(MemoryError):
        decode_dump(data)
    document["entries"] = [{**entry, "record_id": i} for i in range(300)]
    data = pickle.dumps(document, protocol=2)
    with memory_limit(len(data)):
        assert len(decode_dump(data).shapes) == 1, "entries of one kind write it out once"


def test_one_long_name_referred_to_again_and_again() -> None:
    document = recorder(1).document()
    name = "x" * 4000
    document["entries"] = [{**document["entries"][0], "pg_id": i, "thread_name": name} for i in range(20_000)]
    with pytest.raises(MemoryError):
        decode_dump(pickle.dumps(document, protocol=2))


def test_one_list_of_ranks_in_every_group() -> None:
    ranks = str(list(range(200_000)))
    config = {str(i): {"name": str(i), "desc": "", "ranks": ranks} for i in range(3000)}
    with pytest.raises(MemoryError):
        decode_dump(pickle.dumps({**recorder(1).document(), "pg_config": config}, protocol=2))


def test_one_entry_repeated_for_ever() -> None:
    document = recorder(1).document()
    document["entries"] = document["entries"] * 100_000
    data = pickle.dumps(document, protocol=2)
    dump = decode_dump(data)
    assert dump.rows <= len(data) // 40 + 1
    assert "more than the file has room for" in str(dump.problem)


@pytest.mark.parametrize("depth", [2_000, 200_000])
def test_nesting(depth: int) -> None:
    with pytest.raises(NotADumpError):
        decode_dump(b'{"version":"2.10","entries":' + b"[" * depth)
    entries = b"]" * depth + b"a" * (depth - 1)
    document = b"\x80\x02}(X\x07\x00\x00\x00versionX\x03\x00\x00\x002.9X\x07\x00\x00\x00entries" + entries + b"u."
    with pytest.raises(NotADumpError):
        decode_dump(document)


@pytest.mark.parametrize(
    "changes",
    [
        {"collective_seq_id": 2**80}, {"collective_seq_id": "x"}, {"collective_seq_id": None}, {"profiling_name": 7},
        {"profiling_name": None},
    ],
)  # fmt: skip
def test_an_entry_without_what_matters_is_dropped(changes: dict[str, Any]) -> None:
    dump = with_entry(**changes)
    assert dump.column("seq").tolist() == [1, 3]
    assert dump.problem == "1 damaged entries dropped"


@pytest.mark.parametrize(
    "changes",
    [
        {"record_id": 2**70}, {"time_created_ns": "soon"}, {"time_discovered_completed_ns": -(2**90)},
        {"input_sizes": "big"}, {"input_sizes": [["a"]]}, {"output_sizes": [[2**70]]}, {"input_dtypes": [1]},
        {"process_group": 5}, {"process_group": ([], {})}, {"thread_name": 3.5}, {"state": ["completed"]},
        {"retired": "yes"}, {"is_p2p": 1}, {"frames": 3}, {"frames": [{"name": "f"}]}, {"pg_id": 1.5},
        {"frames": [{"name": "f", "filename": "g", "line": 2**70}]}, {"timeout_ms": []}, {"duration_ms": "long"},
        {"duration_ms": float("nan")}, {"duration_ms": 1e300},
        {"frames": [{"name": "f", "filename": "g", "line": 1}] * 9999},
        {"input_sizes": [[1]] * 70_000}, {"thread_name": "\ud800"}, {"profiling_name": "nccl:\udfff"},
    ],
    ids=repr,
)  # fmt: skip
def test_other_wrong_values_cost_only_themselves(changes: dict[str, Any]) -> None:
    dump = with_entry(**changes)
    assert dump.rows == 3
    assert dump.column("seq").tolist() == [1, 2, 3]
    assert max(map(len, dump.stacks), default=0) <= 256


@pytest.mark.parametrize("entry", [None, 7, [], "text", {}, {1: 2}])
def test_what_is_no_entry_is_dropped(entry: Any) -> None:
    document = recorder(3).document()
    document["entries"].insert(1, entry)
    assert decode_dump(pickle.dumps(document, protocol=2)).column("seq").tolist() == [1, 2, 3]


def test_a_key_that_one_entry_lacks_or_has_alone() -> None:
    document = recorder(3).document()
    del document["entries"][1]["op_id"]
    del document["entries"][0]["thread_name"]
    dump = decode_dump(torch_pickle(document))
    assert dump.column("op_id").tolist() == [1, NULL, 3]
    assert [dump.calls[c].thread_name for c in dump.code("call")] == [None, "python3", "python3"]


@pytest.mark.parametrize("key", ["version", "pg_config", "pg_status", "comm_lib_version"])
@pytest.mark.parametrize("value", [None, 7, [], {"0": None}, {"0": {"ranks": 7}}, {1.5: 2}, {"0": {}}, "\ud800"])
def test_headers_of_the_wrong_kind(key: str, value: Any) -> None:
    document = {**recorder(2).document(), key: value}
    assert decode_dump(pickle.dumps(document, protocol=2)).rows == 2


def test_what_is_no_dump_says_so() -> None:
    for data in (b'{"scenario": "healthy"}', b"[1, 2]", b"[]", pickle.dumps({"a": 1}), torch_pickle([1])):
        with pytest.raises(NotADumpError, match="not a flight recorder dump"):
            decode_dump(data)


@pytest.mark.parametrize("head", [
        b"PK", b"#!/bin/sh", b"rank 0 failed", b"\x80\x02\x8a\nl\xfc", b"\x7fELF", b"\x80",
        b"[W123 12:00] stuck", b"{ echo; }",
        b'{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "H200"}]}',
        b'{"step": 1, "loss": 2.5, "rank": 3, "time": 1.5}\n{"step": 2}',
    ],
)  # fmt: skip
def test_other_files_are_told_by_their_first_bytes(head: bytes) -> None:
    assert not looks_like_dump(head)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([b"\x80\x02}", b"\x80\x02]", b"{", b"[", b"\x80\x02}(X\x07\x00\x00\x00entries]("]),
    st.binary(max_size=300),
)
def test_random_bytes(start: bytes, rest: bytes) -> None:
    with memory_limit(0):
        try:
            decode_dump(start + rest)
        except (NotADumpError, RefusedError, MemoryError):
            return


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_random_changes(data: st.DataObject) -> None:
    whole = recorder(4)
    changed = bytearray(data.draw(st.sampled_from([whole.pickle(), as_json(whole.document(stacks=False))])))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with memory_limit(len(changed)):
        try:
            decode_dump(bytes(changed))
        except (NotADumpError, RefusedError, MemoryError):
            return
