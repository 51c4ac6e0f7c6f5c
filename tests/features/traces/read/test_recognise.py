"""What is taken for a trace, by what stands in it."""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from rankscope.analysis import analyse
from rankscope.assemble.load import InputError, LoadOptions, load
from rankscope.features.traces.perfetto import save_merged
from rankscope.features.traces.read.recognition import looks_like_trace
from rankscope.kinds.input_kinds import ENVIRONMENT
from rankscope.parsers import environment
from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.flight_recorder.decode import looks_like_dump
from rankscope.parsers.workers import pool
from tests.features.stacks.py_spy.dumps import document as spied
from tests.features.traces.read.documents import about, all_reduce, decoded, document, in_ranges, loaded, x
from tests.parsers.dumps import Recorder

EVENTS = [x("cpu_op", "aten::mm", 0, 1), *all_reduce(10, 5)]


@pytest.mark.parametrize(
    "head",
    [
        b'\n  {\n    "schemaVersion": 1,\n    "deviceProperties": [\n',
        b'{"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 0, "pg_config": [{"pg_name": "0"',
        b'{"traceName": "x", "traceEvents": [',
        b'{"displayTimeUnit":"ms","baseTimeNanoseconds":1,"traceEvents":[',
        b'[{"ph": "X", "cat": "Operator", "name": "aten::add"',
        b'\xef\xbb\xbf[\n  {\n    "name": "process_name", "ph": "M", "ts": 1, "pid": 1, "tid": 0',
    ],
)
def test_beginnings_of_traces(head: bytes) -> None:
    assert looks_like_trace(head)


OTHERS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "DevTools": ("DevTools", [{"cat": "blink.user_timing,rail", "name": "mark", "ph": "X", "ts": 1, "dur": 2}]),
    "viztracer": ("viztracer", [{"cat": "FEE", "name": "f (a.py:3)", "ph": "X", "ts": 1, "dur": 2}]),
    "tlparse": ("tlparse", [{"cat": "dynamo_timed", "name": "entire_frame_compile", "ph": "B", "ts": 1}]),
    "py-spy": ("py-spy", [{"args": {}, "cat": "py-spy", "name": "main", "ph": "B", "ts": 1}]),
    "JAX": ("JAX", [{"ph": "M", "name": "process_name", "args": {"name": "/device:TPU:0"}}]),
    "TensorFlow": ("TensorFlow", [{"cat": "Op", "name": "MatMul", "ph": "X", "ts": 1, "dur": 2, "args": {}}]),
    "Ray": ("Ray", [{"cat": "task::train", "name": "train", "ph": "X", "ts": 1, "dur": 2}]),
    "stages": ("pipeline", [{"cat": "1F1B", "name": "backward-compute", "ph": "X", "ts": 1, "dur": 2}]),
    "nobody": ("another program", [{"cat": "mine", "name": "load", "ph": "X", "ts": 1, "dur": 2}]),
    "kernels of others": ("ONNX", [{"cat": c, "name": "n", "ph": "X", "ts": 1} for c in ("Node", "Kernel")]),
    "merged": (
        "merged into one file",
        [
            x("cpu_op", "aten::mm", 0, 1),
            *({"ph": "M", "name": "process_name", "pid": r, "args": {"name": f"rank {r} (h7)"}} for r in (0, 5)),
        ],
    ),
}
"""Events of other programs, and what their writer is called."""


@pytest.mark.parametrize("form", ["list", "document"])
def test_traces_of_other_programs_are_named(form: str, tmp_path: Path) -> None:
    files = {
        f"{number:02}.json": json.dumps(events if form == "list" else {"traceEvents": events}).encode()
        for number, (_, events) in enumerate(OTHERS.values())
    }
    both = loaded(tmp_path / "both", {**files, "r3.json": document(EVENTS, about(3))})
    rows = both.files.sort("path").select("kind", "rank", "problem").rows()
    assert rows.pop()[:2] == ("torch-profiler", 3) and both.seen_ranks == (3,)
    for (called, _), row in zip(OTHERS.values(), rows, strict=True):
        assert row[:2] == ("unknown", None) and called in row[2]


@pytest.mark.parametrize("who", ["JAX", "merged"])
def test_another_program_s_trace_alone_is_refused(who: str, tmp_path: Path) -> None:
    called, events = OTHERS[who]
    with pytest.raises(InputError, match=f"{called}.*(record each rank with torch.profiler|give the traces)"):
        loaded(tmp_path, {"other.json": json.dumps(events).encode()})


def test_another_program_s_trace_in_ranges_is_named() -> None:
    events = [{"cat": "FEE", "name": "f", "ph": "X", "pid": 1, "tid": 1, "ts": i, "dur": 1} for i in range(200)]
    data = json.dumps({"traceEvents": events}).encode()
    with pytest.raises(NotThisKindError, match="viztracer"):
        in_ranges(data, 4)


def test_what_the_profiler_alone_writes_is_enough() -> None:
    bare = {"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "pid": 0, "tid": 7}]}
    assert decoded(json.dumps(bare).encode()).rows == 1
    paddle = {"deviceProperties": [], "span_indx": "0", "traceEvents": bare["traceEvents"]}
    with pytest.raises(NotThisKindError, match="PaddlePaddle"):
        decoded(json.dumps(paddle).encode())


def test_an_export_of_rankscope_s_own_is_left_out(tmp_path: Path) -> None:
    files = {f"r{rank}.json": document(EVENTS, about(rank)) for rank in range(2)}
    dataset = loaded(tmp_path / "traces", files)
    save_merged(dataset, analyse(dataset), tmp_path / "traces" / "all.json.gz")
    again = load([tmp_path / "traces"], LoadOptions(jobs=1))
    assert again.seen_ranks == (0, 1) and "merged into one file" in again.files["problem"][0]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("size", [600, 70_000, 1_000_000])
def test_metadata_of_any_length_may_come_first(tmp_path: Path, size: int, packed: bool) -> None:
    data = document(EVENTS, {"notes": {"words": "x" * size}, **about(1)})
    dataset = loaded(tmp_path, {"t.json": gzip.compress(data) if packed else data})
    assert dataset.files.select("kind", "rank", "rows").rows() == [("torch-profiler", 1, len(EVENTS))]


def test_dumps_and_others_are_none() -> None:
    made = Recorder(0, {"0": ("default_pg", [0, 1])})
    made.collective()
    assert not looks_like_trace(made.json()[:512]) and looks_like_dump(made.json()[:512])
    assert not looks_like_trace(made.pickle()[:512]) and not looks_like_trace(spied()[:512])
    assert not looks_like_trace(b'{"a": 1}') and not looks_like_trace(b"[1, 2]") and not looks_like_trace(b"")


def test_names_of_files_decide_nothing(tmp_path: Path) -> None:
    first, second, third, fourth, fifth = (document(EVENTS, about(rank)) for rank in range(5))
    files = {
        "packed.json": gzip.compress(first), "plain.gz": second, "x.json.tmp": third,
        "trace.zst": zstandard.compress(fourth), "rank9": json.dumps(EVENTS[:-1]).encode(),
        "mark.txt": b"\xef\xbb\xbf" + fifth,
    }  # fmt: skip
    dataset = loaded(tmp_path, files)
    assert dataset.files["kind"].to_list() == ["torch-profiler"] * len(files)
    assert dataset.files["rows"].sort().to_list() == [len(EVENTS) - 1, *[len(EVENTS)] * 5]
    assert [problem for problem in dataset.files["problem"] if problem] == [
        "the base of its clock is cut off: the base of the other traces is used"
    ]


def test_traces_in_archives(tmp_path: Path) -> None:
    tar, zipped = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:gz") as archive, zipfile.ZipFile(zipped, "w") as other:
        for rank in range(2):
            data = document(EVENTS, about(rank))
            info = tarfile.TarInfo(f"run/rank{rank}.json")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
            other.writestr(f"rank{rank + 2}.json.gz", gzip.compress(document(EVENTS, about(rank + 2))))
    dataset = loaded(tmp_path, {"a.tar.gz": tar.getvalue(), "b.zip": zipped.getvalue()})
    assert dataset.files.select("path", "rank").rows() == [
        ("a.tar.gz!run/rank0.json", 0), ("a.tar.gz!run/rank1.json", 1),
        ("b.zip!rank2.json.gz", 2), ("b.zip!rank3.json.gz", 3),
    ]  # fmt: skip
    assert dataset.traces.height == 4 and dataset.files["rows"].to_list() == [len(EVENTS)] * 4


def test_dumps_beside_traces_stay_dumps(tmp_path: Path) -> None:
    made = Recorder(0, {"0": ("default_pg", [0, 1])})
    made.collective()
    dataset = loaded(tmp_path, {"dump_0.json": made.json(), "trace.json": document(EVENTS, about(0))})
    assert dataset.files["kind"].to_list() == ["flight-recorder", "torch-profiler"]
    assert dataset.groups.height == 1 and dataset.ops["group"].to_list() == dataset.traced["group"].to_list() == [0]


def test_a_document_without_events_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    dataset = loaded(tmp_path, {"a/empty.json": b'{"schemaVersion": 1, "traceEvents": []}', "b.json": document(EVENTS)})
    assert dataset.files["kind"].to_list() == ["unknown", "torch-profiler"]


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # by how much it is: how long it takes is judged elsewhere, by a clock that a test turns
    monkeypatch.setattr(pool, "BASE_SECONDS", 3600.0)
    bomb = gzip.compress(b'{"schemaVersion": 1, "traceEvents": [') + gzip.compress(b" " * (1 << 20)) * 90
    dataset = loaded(tmp_path, {"bomb.json.gz": bomb, "b.json": document(EVENTS)})
    assert dataset.files["kind"].to_list() == ["torch-profiler", "unreadable"]
    assert re.fullmatch(r"expands to more than \d+ MiB: refused", dataset.files["problem"][1])


@pytest.mark.parametrize("key", ["metadata", "items", "kind", "apiVersion", "version", "segments"])
def test_keys_that_a_program_puts_before_the_events_do_not_hide_a_trace(key: str, tmp_path: Path) -> None:
    trace = {key: {"notes": ["x" * 100] * 300}, **json.loads(document(EVENTS, about(3)))}
    text = json.dumps(trace).encode()
    data = loaded(tmp_path, {"saved.json": text, "saved2.json.gz": gzip.compress(text.replace(b": 3", b": 2"))})
    assert data.files["kind"].to_list() == ["torch-profiler"] * 2


def test_no_size_limit_of_another_kind_refuses_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "ENVIRONMENT", replace(ENVIRONMENT, most_bytes=100))
    data = loaded(tmp_path, {"saved.json.gz": gzip.compress(b'{"kind": "x", ' + document(EVENTS, about(3))[1:])})
    assert data.files.select("kind", "rank").row(0) == ("torch-profiler", 3)
