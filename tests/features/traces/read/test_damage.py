"""Faults of traces in the wild: what is whole is kept, what is not is counted and named."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from rankscope.features.traces.read import recognition
from rankscope.features.traces.read.model import TraceContent
from tests.features.traces.read.documents import (
    LAYOUTS,
    about,
    all_reduce,
    comms,
    decoded,
    document,
    in_ranges,
    issued,
    kernel,
    launch,
    loaded,
    spans,
    x,
)

EVENTS = [
    event
    for i in range(40)
    for event in (
        x("cpu_op", f"aten::op{i}", 100 * i, 50, External_id=i), launch(100 * i + 5, 1000 + i),
        kernel(f"gemm_{i}", 100 * i + 20, 10, 1000 + i), *all_reduce(100 * i + 30, 5000 + i),
    )
]  # fmt: skip
MOST = 5
AT = next(i for i, event in enumerate(EVENTS) if event["name"] == "aten::op7")


def lost_of(content: TraceContent) -> int:
    """Spans that are not there."""
    return len(EVENTS) - content.rows


FAULTS = {
    "empty value": (rb'"Process Group Description": ?"default_pg"', b'"Process Group Description": '),
    "quotes in a name": (rb'"aten::op7"', b'"{"device": "cpu"}(12): run"'),
    "control character": (rb"aten::op7", b"\x01at\ten\n::op7"),
    "bytes that are no UTF-8": (rb"aten::op7", b"\xff\xfeop7"),
    "infinity": (rb'"stream": ?7', b'"memory bandwidth (GB/s)": inf, "stream": 7'),
    "not a number": (rb'"stream": ?7', b'"est. achieved occupancy %": [-nan], "stream": 7'),
    "backslashes": (rb"aten::op7", rb"C:\\users\\x\\op7"),
    "a text for a number": (rb'"stream": ?7', b'"stream": "7"'),
    "null for a text": (rb'"cat": ?"kernel"', b'"cat": null'),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_known_fault_costs_no_event(layout: str, fault: str) -> None:
    pattern, bad = FAULTS[fault]
    data = re.sub(pattern, lambda _: bad, document(EVENTS, layout=layout))
    assert bad in data
    content = decoded(data)
    assert content.rows == len(EVENTS) and content.lost == 0 and content.problem is None
    assert spans(content)[0] == spans(decoded(document(EVENTS)))[0]


def test_what_was_repaired_is_as_it_was_meant() -> None:
    data = document(EVENTS).replace(b'"aten::op7"', b'"{"device": "cpu"}(12): run"')
    assert spans(decoded(data))[AT][0] == '{"device": "cpu"}(12): run'
    torn = document(EVENTS).replace(b"aten::op7", b"\x01\xffop7")
    assert spans(decoded(torn))[AT][0] == " \ufffdop7"
    empty = document(EVENTS).replace(b'"Process Group Description": "default_pg"', b'"Process Group Description": ')
    assert {call.description for call in decoded(empty).calls if call.collective} == {None}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_trace_that_was_cut_off(layout: str) -> None:
    data = document(EVENTS, layout=layout)
    for share in (0.3, 0.5, 0.71, 0.9):
        cut = data[: int(len(data) * share)]
        content = decoded(cut)
        begun = len(re.findall(rb'"ph": ?"X"', cut))
        assert begun - 1 <= content.rows <= begun and (content.problem or "").startswith("cut off: ")
        assert spans(content) == spans(decoded(data))[: content.rows]


def test_a_range_that_is_damaged() -> None:
    data = document(EVENTS).replace(b'"aten::op7"', b'"a"b\x01"')
    assert in_ranges(data, 5).rows == len(EVENTS)


def test_an_event_that_cannot_be_read_is_counted() -> None:
    data = document(EVENTS).replace(b'"ts": ' + str(EVENTS[6]["ts"]).encode(), b'"ts": oops', 1)
    content = decoded(data)
    assert (content.lost, lost_of(content)) == (1, 1) and content.problem == "1 damaged event dropped"


def test_two_processes_in_one_file(tmp_path: Path) -> None:
    other = [{**event, "pid": 494, "tid": 494} if event["cat"] == "cpu_op" else event for event in EVENTS]
    mine, its = document(EVENTS), document(other)
    mixed = mine[:6000] + its[6100:9100] + mine[9000:]
    content = decoded(mixed)
    assert content.writers == 2 and lost_of(content) <= MOST
    assert "interleaved: 2 processes wrote into it (493, 494)" in (content.problem or "")
    dataset = loaded(tmp_path, {"trace.json": mixed})
    assert dataset.traced.is_empty() and dataset.spans.height == content.rows
    assert "interleaved" in dataset.files["problem"][0]


def test_a_piece_that_stands_twice() -> None:
    data = document(EVENTS)
    begin, end = data.find(b'"aten::op3"'), data.find(b'"gemm_9"')
    content = decoded(data[:end] + data[begin:end] + data[end:])
    assert content.rows - len(EVENTS) <= 1 and content.lost <= MOST
    assert (content.problem or "").startswith("interleaved: two writers in one file, ")
    assert content.call_numbers.shape == decoded(data).call_numbers.shape


def test_what_only_looks_alike_is_kept() -> None:
    twins = [x("cpu_op", "aten::empty", 5, 0)] * 3
    broken = document([*twins, *EVENTS]).replace(b'"ts": ' + str(EVENTS[6]["ts"]).encode(), b'"ts": oops', 1)
    assert decoded(broken).rows == len(EVENTS) + 2


def test_a_packed_trace_that_was_cut_off(tmp_path: Path) -> None:
    packed = gzip.compress(document(EVENTS), 1)
    dataset = loaded(tmp_path, {"a.pt.trace.json.gz.tmp": packed[: len(packed) // 2]})
    (row,) = dataset.files.to_dicts()
    assert row["kind"] == "torch-profiler" and row["used"]
    assert "packed file is damaged" in row["problem"] and "cut off" in row["problem"]
    assert 0 < dataset.spans.height < len(EVENTS)


def test_log_lines_that_are_no_json_behind_the_events() -> None:
    lines = ', "INFO": ["a "quoted" word, {"], "distributedInfo": {"rank": 3}, "baseTimeNanoseconds": 9 }'
    data = b'{"schemaVersion": 1, "traceEvents": [' + b",".join(json.dumps(e).encode() for e in EVENTS) + b"]"
    content = decoded(data + lines.encode())
    assert content.rows == len(EVENTS) and (content.about.rank, content.about.base_ns) == (3, 9)


def test_times_and_texts_that_mean_harm(tmp_path: Path) -> None:
    evil = [
        x("cpu_op", "\x1b[2J" + "a" * 100_000, 4e15 - 4_479_654_969_562, 9.9e14, pid=2**70, tid=-(2**70)),
        x("kernel", "nccl:\u202e" + "{" * 50, -1e14, 5, pid=2**40, tid=2**62, correlation=10**30),
        issued(0, 10**40, comms("send", Rank=10**9, ranks=[0, 2**40], Seq=-(2**63))),
        {"ph": "X", "ts": "5", "dur": {}, "cat": [], "name": {"a": 1}, "args": 5},
    ]
    head = {
        "schemaVersion": 1,
        "distributedInfo": {"rank": -5, "pg_config": [5, {"ranks": "x"}]},
        "baseTimeNanoseconds": 2**62,
    }
    dataset = loaded(tmp_path, {"rank99999999999.json": document(evil, head), "b.json": document(EVENTS, about(1))})
    assert dataset.files["used"].to_list() == [True, False] and dataset.traces["rank"].to_list() == [1]


def test_a_long_stretch_without_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognition, "CHUNK_BYTES", 1 << 12)
    monkeypatch.setattr(recognition, "LONGEST_GAP", 1 << 14)
    data = document(EVENTS)
    half = data.find(b'{\n    "ph"', len(data) // 2)
    content = decoded(data[:half] + b" " * (1 << 16) + data[half:])
    assert "no event in a long stretch" in (content.problem or "") and lost_of(content) <= 1
    assert decoded(b'{"schemaVersion": 1,' + b" " * (1 << 16) + data[1:]).rows == len(EVENTS)
