"""Every layout and era of a trace decodes to the same; times are exact, ranges and the sparse pass agree."""

from __future__ import annotations

import io
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.features.traces.read import recognition
from rankscope.features.traces.read.decode import decode_range
from rankscope.features.traces.read.model import TraceContent, trace_from
from rankscope.parsers.matrices import NULL
from tests.features.traces.read.documents import (
    BASE_NS,
    LAYOUTS,
    Event,
    about,
    all_reduce,
    decoded,
    document,
    in_ranges,
    kernel,
    launch,
    metadata,
    spans,
    x,
)

EVENTS = [
    metadata("process_name", 493, 0, name="python"),
    metadata("thread_name", 493, 493, name="thread 493 (python)"),
    x("user_annotation", "ProfilerStep#3", 0, 5000),
    x("cpu_op", "aten::mm {\"a\": [1]}", 10.001, 20.5, Input_Dims=[[2, 3], []]),
    launch(12.25, 77),
    {"ph": "s", "id": 77, "pid": 493, "tid": 493, "ts": 12.25, "cat": "ac2g", "name": "ac2g"},
    kernel("void gemm<4, std::array<char*, 2ul>>(int)", 40, 8.125, 77),
    *all_reduce(100, 78, Seq=5),
    x("python_function", "nn/module.py(1751): _call_impl", 200, 3),
    {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 5},
]  # fmt: skip


def again(times: int) -> list[Event]:
    """The events so often, one after the other."""
    return [{**event, "ts": event["ts"] + 10_000 * i} for i in range(times) for event in EVENTS]


def same(one: TraceContent, other: TraceContent) -> bool:
    """Whether two traces hold the same spans and calls."""
    return spans(one) == spans(other) and one.calls == other.calls and one.labels == other.labels


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_decodes_to_the_same(layout: str) -> None:
    content = decoded(document(EVENTS, layout=layout))
    assert same(content, decoded(document(EVENTS)))
    assert (content.events, content.rows, content.lost, content.problem) == (len(EVENTS), 9, 0, None)
    assert spans(content)[1] == ('aten::mm {"a": [1]}', "cpu_op", 4_479_654_969_571_301, 20_500)
    assert content.about.rank == 0 and content.about.base_ns == BASE_NS


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_bare_list_and_metadata_behind_the_events(layout: str) -> None:
    write, between = LAYOUTS[layout]
    text = "[" + between.join(map(write, EVENTS)) + "]"
    bare = decoded(text.encode())
    assert same(bare, decoded(document(EVENTS))) and bare.problem is None and bare.about.rank is None
    behind = decoded(f'{{"schemaVersion": 1, "traceEvents": {text}, {json.dumps(about(3))[1:]}'.encode())
    assert same(behind, bare) and behind.about.rank == 3 and behind.problem is None


def test_a_byte_order_mark_and_spaces_in_front() -> None:
    assert same(decoded(b"\xef\xbb\xbf \n" + document(EVENTS)), decoded(document(EVENTS)))


def test_links_and_calls() -> None:
    content = decoded(document(EVENTS))
    assert [c if c != NULL else None for c in content.column("correlation").tolist()] == [
        None, None, 77, 77, None, None, 78, 78, None,
    ]  # fmt: skip
    assert [content.calls[i].collective for i in content.call_codes[0].tolist()] == ["allreduce", None, "allreduce"]
    assert content.call_numbers[2].tolist() == [5, NULL, 5]


@pytest.mark.parametrize("parts", [2, 3, 7, 40])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ranges_hold_each_event_once(layout: str, parts: int) -> None:
    data = document(again(3), layout=layout)
    whole, ranged = decoded(data), in_ranges(data, parts)
    assert spans(ranged) == spans(whole) and ranged.about == whole.about and ranged.problem is None
    assert ranged.call_numbers.tolist() == whole.call_numbers.tolist()
    assert [ranged.calls[i] for i in ranged.call_codes[0]] == [whole.calls[i] for i in whole.call_codes[0]]


def test_pieces_of_any_size_hold_each_event_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = document(again(2))
    expected = spans(decoded(data))
    for size in (97, 256, 1000):
        monkeypatch.setattr(recognition, "CHUNK_BYTES", size)
        assert spans(decoded(data)) == expected


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_sparse_pass_finds_what_tells_of_collectives(layout: str) -> None:
    found = decode_range(io.BytesIO(document(EVENTS, layout=layout)), 0, None, "collectives")
    assert [name for name, *_ in spans(found)] == [
        "ProfilerStep#3", "record_param_comms", "nccl:all_reduce", EVENTS[10]["name"],
    ]  # fmt: skip
    assert len(found.labels) == 2 and found.detail == "collectives" and found.whole and found.lost == 0


def test_the_sparse_pass_finds_the_launch_of_a_kernel_without_arguments() -> None:
    bare = kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", 60, 5, 90)
    events = [launch(30, 89), bare, launch(50, 90), kernel("gemm", 1, 1, 89)]
    found = decode_range(io.BytesIO(document(events)), 0, None, "collectives")
    assert [(name, at) for name, _, at, _ in spans(found)] == [
        (bare["name"], spans(decoded(document(events)))[1][2]), ("cudaLaunchKernel", 4_479_654_969_611_300),
    ]  # fmt: skip


def test_the_sparse_pass_is_not_led_astray_by_braces() -> None:
    odd = x("cpu_op", "record_param_comms", 5, 1, note=[{"a": 1}, {"b": 2}])
    found = decode_range(io.BytesIO(document([odd, *EVENTS])), 0, None, "collectives")
    assert [name for name, *_ in spans(found)].count("record_param_comms") == 2 and found.lost == 0
    assert found.labels


@given(st.integers(0, 7_889_238 * 10**9))
def test_nanoseconds_of_a_period_are_exact(ns: int) -> None:
    text = f"{ns // 1000}.{ns % 1000:03d}"
    content = decoded(document([]).replace(b"[\n\n", f'[{{"ph":"X","name":"a","ts":{text},"dur":{text}}}'.encode()))
    assert content.column("start_ns").tolist() == content.column("duration_ns").tolist() == [ns]


def test_resolution_of_the_eras() -> None:
    def resolution(*times: float) -> int:
        return decoded(
            document([{"ph": "X", "name": "a", "cat": "cpu_op", "ts": t, "dur": 1} for t in times])
        ).resolution_ns

    assert resolution(1_694_128_201_426_556, 1_694_128_201_426_557) == 1000
    assert resolution(1_694_128_201_426_556.25) == 250
    assert resolution(4_479_654_969_561.301, 5) == 1


def test_old_spellings() -> None:
    thread = {"pid": "493", "tid": "1890023232"}
    old = [
        {**x("Operator", "ProfilerStep#1", 0, 9), **thread},
        {**x("Runtime", "cudaLaunchKernel", 1, 1, correlation=4), **thread},
        x("Kernel", "gemm", 2, 3, pid=0, tid="7", stream="7", correlation=4),
    ]
    content = decoded(document(old))
    assert content.lanes[0].tid == 1_890_023_232 and content.lanes[2].tid == 7
    assert content.column("correlation").tolist() == [NULL, 4, 4]


def test_times_that_are_none_are_lost_and_counted() -> None:
    bad = [{"ph": "X", "name": "a", "cat": "cpu_op", "ts": 1e300, "dur": 1}, x("cpu_op", "b", 1, 1)]
    content = decoded(document(bad))
    assert [name for name, *_ in spans(content)] == ["b"] and content.lost == 1


def test_crosses_from_a_worker() -> None:
    content = decoded(document(EVENTS))
    body = memoryview(b"".join(bytes(part) for part in content.body()))
    again = trace_from(json.loads(json.dumps(content.header())), body)
    assert same(again, content) and again.about == content.about
    assert again.call_numbers.tolist() == content.call_numbers.tolist()


def test_no_text_breaks_it() -> None:
    rng, data = random.Random(0), document(EVENTS)
    for _ in range(300):
        torn = bytearray(data)
        for _ in range(rng.randint(1, 12)):
            torn[rng.randrange(200, len(torn))] = rng.choice(b'{}[]",:\\x00\xff7e.')
        content = decoded(bytes(torn[: rng.randrange(400, len(torn))]))
        assert content.rows <= len(EVENTS) and content.column("start_ns").shape == content.code("lane").shape
