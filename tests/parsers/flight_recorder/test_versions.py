"""Every version of the format, and the differences between its pickle and its JSON form."""

from __future__ import annotations

from typing import Any

import pytest

from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.parsers.flight_recorder.model import Dump
from rankscope.parsers.matrices import NULL
from tests.parsers.dumps import Recorder, as_json, as_version
from tests.parsers.torch_pickle import torch_pickle

VERSIONS = ["0", *(f"1.{minor}" for minor in range(6)), *(f"2.{minor}" for minor in range(12))]


def recorder() -> Recorder:
    made = Recorder(1, {"0": ("default_pg", [0, 1, 2]), "7": ("mesh_tp", [1, 2])})
    made.collective("0", duration_ms=0.25)
    made.collective("7", op="_all_gather_base")
    made.p2p("7", "send", 1)
    made.collective("0", state="scheduled")
    return made


def decoded(version: str) -> Dump:
    return decode_dump(recorder().pickle(version=version))


@pytest.mark.parametrize("version", VERSIONS)
def test_what_all_versions_have(version: str) -> None:
    dump = decoded(version)
    assert (dump.version, dump.rows, dump.problem, dump.truncated) == (version, 4, None, False)
    assert dump.column("seq").tolist() == [1, 1, 1, 2]
    names = [dump.calls[c].profiling_name for c in dump.code("call")]
    assert names == ["nccl:all_reduce", "nccl:_all_gather_base", "nccl:send 0->1", "nccl:all_reduce"]
    assert [dump.calls[c].state for c in dump.code("call")] == ["completed"] * 3 + ["scheduled"]
    assert {shape.in_sizes for shape in dump.shapes} == {"[[64,32]]"}
    assert [dump.frames[i].function for i in dump.stacks[0]] == ["all_reduce", "train"]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_version_does_not_have_is_null(version: str) -> None:
    number = tuple(int(part) for part in version.split("."))
    dump = decoded(version)
    call, shape = dump.calls[0], dump.shapes[0]
    assert (dump.status is not None) == (number >= (2, 3))
    assert (dump.library_version is not None) == (number >= (2, 6))
    assert bool(dump.config) == (number >= (1, 2))
    assert (call.name, call.description) == (("0", "default_pg") if number >= (1, 5) else (None, None))
    assert (call.thread_name is not None) == (number >= (2, 9))
    assert (
        (call.is_p2p is not None)
        == (call.timeout_ms is not None)
        == (shape.in_dtypes is not None)
        == (number >= (2, 2))
    )
    assert (dump.column("p2p_seq")[0] != NULL) == (number >= (1, 5))
    assert (dump.column("record_id")[0] != NULL) == (number >= (1, 2))
    assert (dump.column("completed_ns")[0] != NULL) == (call.retired is not None) == (number >= (1, 1))
    assert dump.column("duration_ns").tolist() == ([250_000] if number >= (1, 1) else [NULL]) + [NULL] * 3


def test_groups_by_number_and_by_name() -> None:
    assert [tuple(g) for g in decoded("1.4").config] == [("0", "", (0, 1, 2), 0), ("1", "", (1, 2), 1)]
    assert [tuple(g) for g in decoded("2.5").config] == [
        ("0", "default_pg", (0, 1, 2), None),
        ("7", "mesh_tp", (1, 2), None),
    ]


def test_json_says_the_same_as_pickle() -> None:
    pickled, json = decode_dump(recorder().pickle(stacks=False)), decode_dump(recorder().json())
    assert json.numbers.tolist() == pickled.numbers.tolist()
    assert json.codes.tolist() == pickled.codes.tolist()
    assert (json.calls, json.shapes, json.config, json.status) == (
        pickled.calls, pickled.shapes, pickled.config, pickled.status,
    )  # fmt: skip
    assert json.status is not None
    assert json.status[0].enqueued == 2


def test_json_without_entries_has_none() -> None:
    document = {**recorder().document(), "entries": []}
    assert decode_dump(as_json(document)).rows == 0
    assert decode_dump(torch_pickle(document)).rows == 0


def test_json_with_a_mark_and_spaces_in_front() -> None:
    assert decode_dump(b"\xef\xbb\xbf\n " + recorder().json()).rows == 4


def test_json_whose_text_is_no_utf8() -> None:
    data = recorder().json().replace(b"python3", b"pyth\xff\xfe3")
    assert {call.thread_name for call in decode_dump(data).calls} == {"pyth\ufffd\ufffd3"}


def test_unknown_keys_operations_and_libraries_are_kept() -> None:
    made = recorder()
    made.library = "zccl"
    made.collective("0", op="sparse_all_reduce", split_sizes=[1, 2], novelty="x")
    document = {**made.document(), "zccl_comm_state": {"0xabc": {"rank": "1"}}}
    dump = decode_dump(torch_pickle(document))
    assert dump.calls[dump.code("call")[-1]].profiling_name == "zccl:sparse_all_reduce"


def test_several_ways_to_give_the_library_version() -> None:
    assert decoded("2.6").library_version == decoded("2.10").library_version == "2.27.3"
    gloo = Recorder(0, {"0": ("default_pg", [0])}, library="gloo")
    gloo.collective("0")
    assert decode_dump(gloo.pickle()).library_version == ""


def test_ranks_are_parsed_never_evaluated() -> None:
    document: dict[str, Any] = recorder().document()
    document["pg_config"]["7"]["ranks"] = "__import__('os').getpid()"
    document["pg_config"]["8"] = {"name": "8", "desc": "", "ranks": "[3, 3]"}
    assert [g.ranks for g in decode_dump(torch_pickle(document)).config] == [(0, 1, 2), None, None]


def test_an_older_version_can_be_made_of_a_newer() -> None:
    document = recorder().document()
    assert as_version(document, "2.10") == document
    assert isinstance(as_version(document, "0"), list)
