"""Dumps as JSON."""

from __future__ import annotations

import orjson
import pytest

from rankscope.features.stacks.py_spy.decode import decode_snapshot
from tests.features.stacks.py_spy.dumps import document, read, stack


def test_a_process() -> None:
    snapshot = read(document(7, [("wait", "/lib/libc.so.6", 0), ("f", "/site-packages/torch/a.py", 3)], owns_gil=True))
    assert [tuple(t)[:5] for t in snapshot.threads] == [(0, "MainThread", 7, True, True)]
    assert stack(snapshot) == [("wait", "/lib/libc.so.6", 0), ("f", "/site-packages/torch/a.py", 3)]
    assert snapshot.problem is None


def test_a_library_goes_by_its_name_alone_as_in_the_text() -> None:
    threads = orjson.loads(document(frames=[("wait", "/lib/libc.so.6", 0)]))
    threads[0]["frames"][0].update(short_filename="libc.so.6", module="/lib/libc.so.6")
    assert stack(read(orjson.dumps(threads))) == [("wait", "libc.so.6", 0)]


def test_the_process_and_the_one_above_it() -> None:
    info = {"pid": 7, "command_line": "python train.py", "parent": {"pid": 3, "command_line": "torchrun x"}}
    assert tuple(read(document(7, process_info=info)).processes[0][:5]) == (7, 3, "python train.py", "torchrun x", 0)


def test_a_thread_without_an_id_of_the_system_has_that_of_python() -> None:
    assert read(document(os_thread_id=None)).threads[0].thread_id == 140657150650048
    assert read(document(os_thread_id=2**63, thread_id=-1)).threads[0].thread_id is None


def test_several_documents_in_one_file() -> None:
    snapshot = read(b"$ py-spy dump --json\n" + document(7) + b"\n" + document(8) + b"\nError: gone\n" + document(7))
    assert [(p.pid, p.later) for p in snapshot.processes] == [(7, 1), (8, 0), (7, 0)]
    assert snapshot.problem is None


def test_a_torn_document_keeps_its_whole_threads() -> None:
    threads = [*orjson.loads(document(7)), *orjson.loads(document(7, thread_name="Thread-1"))]
    data = orjson.dumps(threads, option=orjson.OPT_INDENT_2)
    snapshot = read(data[:-100])
    assert [t.name for t in snapshot.threads] == ["MainThread"]
    assert snapshot.problem == "cut off or damaged: whole threads kept"


def test_locals_are_never_kept() -> None:
    threads = orjson.loads(document())
    threads[0]["frames"][0]["locals"] = [{"name": "key", "addr": 1, "arg": False, "repr": '"hunter2"'}]
    assert "hunter2" not in repr(read(orjson.dumps(threads)))


@pytest.mark.parametrize(
    "more",
    [
        {"frames": [None, 5, {"name": 3}, {"name": "f"}]}, {"thread_name": 5}, {"active": "yes"}, {"owns_gil": None},
        {"process_info": {"parent": {"parent": []}}}, {"os_thread_id": {}}, {"frames": []},
    ],
)  # fmt: skip
def test_values_of_the_wrong_kind_are_unknown(more: dict[str, object]) -> None:
    threads = orjson.loads(document(7))
    threads[0].update(more)
    assert read(orjson.dumps(threads)).rows == 1


@pytest.mark.parametrize(
    "data",
    [
        b'[{"pid": 1, "thread_id":', b'[{"pid": 9999999999, "thread_id": 3, "frames": []}]',
        b'[{"pid": 1, "thread_id": 1, "frames": [' + b'{"name":"f"},' * 1000,
        b'[{"pid": 1, "thread_id": ' + b"[" * 1_000_000,
    ],
)  # fmt: skip
def test_nothing_of_use(data: bytes) -> None:
    snapshot = decode_snapshot(data)
    assert snapshot.rows == 0
    assert "no thread in it" in str(snapshot.problem)
