"""Reading field by field says what unpickling says, whatever the numbers and wherever something new is defined."""

from __future__ import annotations

import pickle
import pickletools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.parsers.flight_recorder import columns, quick
from rankscope.parsers.flight_recorder.decode import decode
from rankscope.parsers.flight_recorder.document import split
from rankscope.parsers.flight_recorder.model import Dump
from rankscope.parsers.flight_recorder.pickles import RefusedError
from tests.parsers.dumps import Groups, Recorder
from tests.parsers.torch_pickle import torch_pickle


@pytest.fixture(autouse=True)
def read_small_files_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "SMALLEST", 0)


def meaning(dump: Dump) -> tuple[Any, ...]:
    """Everything a dump says, whatever the order of its tables."""
    return (
        dump.version, dump.config, dump.status, dump.numbers.tolist(),
        [dump.calls[c] for c in dump.code("call")], [dump.shapes[c] for c in dump.code("shape")],
        [None if c < 0 else [dump.frames[i] for i in dump.stacks[c]] for c in dump.code("stack")],
    )  # fmt: skip


def unpickled(data: bytes) -> Dump:
    dump, entries = split(pickle.loads(data))
    columns.fill(dump, entries, len(data))
    return dump


def check(data: bytes) -> Dump:
    dump = quick.decode(data)
    assert dump is not None
    assert meaning(dump) == meaning(unpickled(data))
    return dump


def frame(i: int) -> dict[str, Any]:
    return {"name": f"f{i}", "filename": "train.py", "line": i * 1000}


def recorder(rows: int) -> Recorder:
    """Numbers of every width, new strings and frames every now and then, calls with and without a duration."""
    made = Recorder(0, {"0": ("default_pg", [0, 1]), "17": ("mesh_pp", [0, 1])})
    frames = [frame(i) for i in range(40)]
    for i in range(rows):
        made.frames = [frames[(i // 7) % 40], frames[0], *([frames[3]] if i % 5 else [])]
        more: dict[str, Any] = {"duration_ms": i / 3} if i % 4 else {}
        more["input_sizes"] = [[2**i % 70_000, 7], []] if i % 3 else [[i]]
        op, state = "barrier" if i % 11 == 0 else "all_reduce", "started" if i % 13 == 0 else "completed"
        made.collective("0", op=op, state=state, record_id=2 ** (i % 62), op_id=-(2 ** (i % 33)), **more)
        made.p2p(
            "17", "send", 1, state="scheduled" if i > rows - 3 else "completed", is_p2p=None if i % 17 == 3 else True
        )
    return made


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.5", "2.9", "2.10"])
def test_every_width_of_number(version: str) -> None:
    assert check(recorder(200).pickle(version=version)).rows == 400


def test_what_stands_behind_the_entries() -> None:
    document = {**recorder(40).document(), "nccl_comm_state": {"0xabc": {"rank": "0", "stages": "[1, 2]"}}}
    check(torch_pickle(document))


def test_without_stacks() -> None:
    check(recorder(60).pickle(stacks=False))


def test_many_groups_push_keys_out_of_the_first_256_names() -> None:
    groups: Groups = {str(i): (f"group {i}", [0, 1]) for i in range(200)}
    made = Recorder(0, groups)
    for i in range(400):
        made.collective(str(i % 200))
    check(made.pickle())


def test_keys_nobody_knows_are_passed_over() -> None:
    made = recorder(40)
    for i, entry in enumerate(made.entries):
        entry.update({"stream": i % 3, "novelty": "x", "share": 0.5, "seen": i % 2 == 0})
    check(made.pickle())


def test_a_dump_that_python_wrote() -> None:
    document = pickle.loads(recorder(700).pickle())
    check(pickletools.optimize(pickle.dumps(document, protocol=2)))


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_other_layouts_are_left_alone(protocol: int) -> None:
    assert quick.decode(pickle.dumps(recorder(10).document(), protocol)) is None
    assert quick.decode(torch_pickle(recorder(10).document(version="0"))) is None


def test_bytes_that_look_like_the_start_of_an_entry() -> None:
    data = recorder(60).pickle()
    first = data.index(b"u}(", data.index(b"entries"))
    trap = data[first : first + 5] * 3
    made = recorder(60)
    made.entries[50]["thread_name"] = trap.decode("latin-1")
    made.entries[51]["record_id"] = int.from_bytes(trap[:7], "little")
    data = made.pickle()
    assert meaning(decode(data)) == meaning(unpickled(data))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_damaged_byte_never_makes_the_two_ways_disagree(data: st.DataObject) -> None:
    whole = bytearray(recorder(12).pickle())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte not in b"\x8eXr"))
    try:
        dump = quick.decode(bytes(whole))
    except (RefusedError, MemoryError):  # a length of many bytes is refused, too
        return
    if dump is not None and at > whole.index(b"entries"):
        try:
            other = unpickled(bytes(whole))
        except Exception:  # noqa: BLE001 - then what is left of it is as good as anything
            return
        assert meaning(dump)[3] == meaning(other)[3]
