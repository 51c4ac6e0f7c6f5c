"""Dumps cut off in the middle: the process was killed while it wrote. Whole entries are kept."""

from __future__ import annotations

import pickle

import pytest

from rankscope.parsers.flight_recorder.decode import NotADumpError, decode_dump
from tests.parsers.dumps import Recorder, as_json


def recorder(rows: int = 8) -> Recorder:
    made = Recorder(0, {"0": ("default_pg", [0, 1]), "1": ("mesh_tp", [0, 1])})
    for i in range(rows):
        made.collective(str(i % 2), op=f"op{i}")
    return made


def kept(data: bytes) -> int:
    """How many entries are kept; checks that it is the first ones. -1 if it is no dump any more."""
    try:
        dump = decode_dump(data)
    except NotADumpError:
        return -1
    assert [dump.calls[c].profiling_name for c in dump.code("call")] == [f"nccl:op{i}" for i in range(dump.rows)]
    assert dump.truncated
    assert str(dump.problem).startswith(("cut off", "damaged"))
    return dump.rows


@pytest.mark.parametrize("version", ["0", "1.4", "2.5", "2.10"])
def test_a_pickle_torn_anywhere(version: str) -> None:
    data = recorder().pickle(version=version)
    ends = [i for i in range(len(data)) if data[i : i + 3] == b"u}("]
    for cut in range(2, len(data) - 3, 47):
        whole = sum(end < cut - 2 for end in ends)
        assert kept(data[:cut]) >= min(whole, 7) - 1 if whole else kept(data[:cut]) <= 0
    assert kept(data[:-2]) in (7, 8)


def test_the_groups_of_a_torn_pickle_are_kept() -> None:
    data = recorder().pickle()
    dump = decode_dump(data[: data.index(b"entries") + 200])
    assert (dump.rows, [g.name for g in dump.config], len(dump.status or [])) == (0, ["0", "1"], 2)


def test_a_torn_pickle_of_python() -> None:
    data = pickle.dumps(recorder().document(), protocol=2)
    for cut in range(len(data) // 2, len(data) - 2, 61):
        assert kept(data[:cut]) >= 0


def test_json_torn_anywhere() -> None:
    data = as_json(recorder().document(stacks=False))
    start = data.index(b'"entries":[') + len(b'"entries":[')
    for cut in range(start, len(data) - 1, 53):
        entries = data[start:cut].count(b"},{")
        assert kept(data[:cut]) >= entries or entries == 0


def test_a_hole_in_the_middle_keeps_what_is_before_it() -> None:
    data = bytearray(recorder(40).pickle())
    half = len(data) // 2
    data[half : half + 64] = bytes(64)
    assert 10 < kept(bytes(data)) < 25
