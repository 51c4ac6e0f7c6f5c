"""Reading field by field says what unpickling says, whatever the numbers and wherever something new is defined."""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.parsers.flight_recorder import dump_columns, fast_reader, pickled_entries
from rankscope.parsers.flight_recorder.decode import decode_dump
from rankscope.parsers.flight_recorder.dump_columns import split_document
from rankscope.parsers.flight_recorder.entry_forms import FormTable
from rankscope.parsers.flight_recorder.model import Dump
from rankscope.parsers.flight_recorder.opcodes import OtherLayoutError, without_frames
from rankscope.parsers.flight_recorder.pickled_entries import PickledEntries
from rankscope.parsers.matrices import NULL
from rankscope.parsers.safe_values import RefusedError
from tests.parsers.dumps import Groups, Recorder
from tests.parsers.torch_pickle import torch_pickle

Writer = Callable[[Any], bytes]
WRITERS: dict[str, Writer] = {
    "recorder": torch_pickle,
    **{f"protocol {n}": partial(pickle.dumps, protocol=n) for n in (2, 3, 4, 5)},
    "in Python": partial(pickle._dumps, protocol=4),  # type: ignore[attr-defined]
    "optimised": lambda document: pickletools.optimize(pickle.dumps(document, 2)),
    "optimised, framed": lambda document: pickletools.optimize(pickle.dumps(document, 5)),
}
STATES = ("scheduled", "started", "completed")
NUMBER = st.none() | st.integers(-(2**62), 2**62) | st.integers(-300, 70_000)
FREELY: dict[str, st.SearchStrategy[Any]] = {
    "record_id": st.integers(-(2**62), 2**62) | st.integers(0, 300),
    "time_discovered_started_ns": NUMBER,
    "pg_id": NUMBER,
    "duration_ms": st.floats(0, 1e6),
    "thread_name": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "retired": st.sampled_from([None, False, True]),
    "input_sizes": st.lists(st.lists(st.integers(0, 2**40), max_size=3), max_size=3),
    "output_dtypes": st.lists(st.sampled_from(["Float", "Half", "Long"]), max_size=3),
}


@pytest.fixture(autouse=True)
def read_small_files_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_reader, "SMALLEST_FILE", 0)


def meaning(dump: Dump) -> tuple[Any, ...]:
    """Everything a dump says, whatever the order of its tables."""
    return (
        dump.version, dump.library_version, dump.config, dump.status, dump.numbers.tolist(),
        [dump.calls[c] for c in dump.code("call")], [dump.shapes[c] for c in dump.code("shape")],
        [None if c < 0 else [dump.frames[i] for i in dump.stacks[c]] for c in dump.code("stack")],
    )  # fmt: skip


def unpickled(data: bytes) -> Dump:
    dump, entries = split_document(pickle.loads(data))
    dump_columns.fill_columns(dump, entries, len(data))
    return dump


def check(data: bytes) -> Dump:
    dump = fast_reader.decode_fast(data)
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


def repeated(rows: int) -> Recorder:
    """Three calls in turn; every seventh has not started."""
    made = Recorder(0, {"0": ("default_pg", [0, 1]), "17": ("mesh_pp", [0, 1])})
    for i in range(rows):
        made.frames = [frame(i % 3), frame(9)]
        more: dict[str, Any] = {} if i % 7 else {"time_discovered_started_ns": None}
        made.collective("0" if i % 3 else "17", duration_ms=i / 3, record_id=i, **more)
    return made


ENTRIES = repeated(3).entries


@pytest.mark.parametrize("version", ["2.1", "2.2", "2.5", "2.9", "2.10"])
def test_every_width_of_number(version: str) -> None:
    assert check(recorder(200).pickle(version=version)).rows == 400


def test_kinds_that_share_a_slot_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_in_one_slot(keys: tuple[tuple[bytes, str], ...], width: int) -> FormTable:
        table = FormTable(dict(keys), keys[0][1], width)
        monkeypatch.setattr(table, "_weights", np.zeros(width, np.int64))
        return table

    monkeypatch.setattr(pickled_entries, "_table", cache(all_in_one_slot))
    check(recorder(200).pickle(version="2.10"))


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


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
def test_one_entry_of_each_kind_is_unpickled(write: Writer) -> None:
    data = write(repeated(1200).document(ring=1200))
    entries = PickledEntries(without_frames(data))
    left_out = entries.classify()
    # six kinds, each with numbers of one or two bytes; Python's pickler lets the first entries refer to each other
    assert np.count_nonzero(~left_out) < 60
    assert len(entries.without(left_out)) < len(data) / 10
    check(data)


def test_a_dump_that_python_wrote() -> None:
    document = pickle.loads(recorder(700).pickle())
    check(pickletools.optimize(pickle.dumps(document, protocol=2)))


def test_the_first_entry_alone_has_frames_like_these() -> None:
    """As in a ring that has not wrapped: a broadcast, and then the same all-reduce again and again."""
    made = Recorder(0, {"0": ("default_pg", [0, 1])})
    made.frames = [frame(1), frame(2), frame(3)]
    made.collective(op="broadcast")
    made.frames = [frame(4), frame(3)]
    for _ in range(50):
        made.collective()
    assert check(made.pickle()).slow is None


@pytest.mark.parametrize("version", ["0", "1.4", "2.2", "2.10"])
@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
def test_whoever_writes_it(write: Writer, version: str) -> None:
    check(write(recorder(200).document(version=version)))


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())
def test_more_entries_than_one_batch_and_than_one_frame_hold(write: Writer) -> None:
    check(write(recorder(1200).document(ring=2400)))


@pytest.mark.parametrize("protocol", [4, 5])
def test_a_text_that_is_longer_than_a_frame(protocol: int) -> None:
    document = recorder(60).document()
    document["pg_config"]["0"]["ranks"] = str(list(range(20_000)))
    assert check(pickle.dumps(document, protocol)).config[0].ranks is not None


@pytest.mark.parametrize("protocol", [2, 5])
def test_a_text_that_each_entry_spells_out(protocol: int) -> None:
    document = pickle.loads(torch_pickle(recorder(60).document()))
    for i, entry in enumerate(document["entries"]):
        entry["thread_name"] = f"thread \u00e9 {i % 3}"
        entry["process_group"] = (f"{i % 2}", f"group {i % 2}")
    check(pickle.dumps(document, protocol))


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("key", ["process_group", "frames", "input_sizes", "output_dtypes"])
def test_what_entries_have_in_common(key: str, protocol: int) -> None:
    """The same object: the first that has it defines it, and the others refer to it."""
    document = pickle.loads(torch_pickle(recorder(60).document()))
    entries = document["entries"]
    for i, entry in enumerate(entries):
        entry[key] = entries[i % 9][key]
    check(pickle.dumps(document, protocol))


@pytest.mark.parametrize("protocol", [2, 5])
def test_frames_that_each_entry_spells_out(protocol: int) -> None:
    document = pickle.loads(torch_pickle(recorder(60).document()))
    for entry in document["entries"]:
        entry["frames"] = [dict(one) for one in entry["frames"]]
    check(pickle.dumps(document, protocol))
    check(pickletools.optimize(pickle.dumps(document, protocol)))


def test_an_entry_that_many_refer_to_comes_last() -> None:
    document = pickle.loads(torch_pickle(recorder(60).document()))
    document["last"] = document["entries"][50]
    check(pickle.dumps(document, protocol=2))
    check(pickle.dumps(document, protocol=4))


def test_a_place_of_the_memo_that_is_used_twice_is_left_alone() -> None:
    document = pickle.loads(torch_pickle(recorder(30).document()))
    data = pickle.dumps(document, protocol=2)
    puts = [(at or 0, int(index or 0)) for code, index, at in pickletools.genops(data) if code.name == "LONG_BINPUT"]
    at, index = puts[len(puts) // 2]
    again = data[: at + 1] + (index - 40).to_bytes(4, "little") + data[at + 5 :]
    with pytest.raises(OtherLayoutError):
        fast_reader.decode_fast(again)
    assert meaning(decode_dump(again)) == meaning(unpickled(again))


@pytest.mark.parametrize("protocol", [2, 5])
def test_frames_of_entries_far_above(protocol: int) -> None:
    document = pickle.loads(torch_pickle(recorder(60).document()))
    entries = document["entries"]
    for i, entry in enumerate(entries):
        entry["frames"] = entries[100 + i % 9 if i > 100 else i]["frames"]
    check(pickle.dumps(document, protocol))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_writer_of_any_entries(data: st.DataObject) -> None:
    """Entries with any numbers, texts and stacks, shared or not, by any writer: both ways say the same."""
    count = data.draw(st.integers(2, 40))
    frames = [frame(i) for i in range(data.draw(st.integers(1, 6)))]
    made = Recorder(0, {"0": ("default_pg", [0, 1]), "1": ("mesh_tp", [0, 1])})
    for _ in range(count):
        made.frames = [frames[i] for i in data.draw(st.lists(st.integers(0, len(frames) - 1), max_size=4))]
        more = {key: data.draw(values) for key, values in FREELY.items() if data.draw(st.booleans())}
        made.collective(data.draw(st.sampled_from("01")), state=data.draw(st.sampled_from(STATES)), **more)
    document = made.document(version=data.draw(st.sampled_from(["0", "1.4", "2.2", "2.5", "2.10"])))
    if data.draw(st.booleans()):
        document = pickle.loads(torch_pickle(document))
    whole = data.draw(st.sampled_from(list(WRITERS.values())))(document)
    try:
        dump = fast_reader.decode_fast(whole)
    except OtherLayoutError:
        return
    assert meaning(dump) == meaning(unpickled(whole))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (torch_pickle(Recorder(0, {}).document()), "no list of entries"),
        (torch_pickle([{"seq_id": 1, "a": 1}, {"a": 1, "seq_id": 1}]), "no entry is like the first"),
        (torch_pickle([{"a": 1, "b": 2} for _ in range(3)]), "not a flight recorder dump"),
        (torch_pickle([{"a": 1, "b": {}}, {"a": 1, "b": {}}, {"b": {}, "a": 1}]), "not a flight recorder dump"),
        (torch_pickle([*ENTRIES, dict(reversed(ENTRIES[0].items())), *ENTRIES]), "do not begin like the first"),
        (pickle.dumps([*ENTRIES, ENTRIES[0] | {"x": [None] * 200_000}, *map(dict, ENTRIES)], 4), "too many opcodes"),
        (b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff", "the last frame is not whole"),
        (b"\x80\x04\x95" + bytes(8) + b"}", "frames do not follow each other"),
        (b"\x80\x02](}(Q", "no list of entries"),
        (b"\x80\x02](}(X\xff\xff\xff\xff", "damaged"),
    ],
)
def test_why_a_file_is_left_to_the_ordinary_way(data: bytes, reason: str) -> None:
    with pytest.raises(OtherLayoutError, match=reason):
        fast_reader.decode_fast(data)


def with_after_created(key: str, value: float) -> bytes:
    """Entries of which only some have a key, behind the time they were created at."""
    document = recorder(40).document()
    for i, entry in enumerate(document["entries"]):
        entry.pop("duration_ms", None)
        items = list(entry.items())
        place = list(entry).index("time_created_ns") + 1
        entry.clear()
        entry.update([*items[:place], *([(key, value)] if i % 3 == 2 else []), *items[place:]])
    return torch_pickle(document)


def test_a_number_that_only_some_entries_have_is_the_duration() -> None:
    assert check(with_after_created("duration_ms", 0.5)).column("duration_ns").max() == 500_000


def test_another_number_that_only_some_entries_have_is_no_duration() -> None:
    assert check(with_after_created("share", 0.5)).column("duration_ns").max() == NULL


def test_a_dump_says_why_it_took_longer() -> None:
    made = recorder(40)
    last = made.entries.pop()
    made.entries.append(dict(reversed(last.items())))
    assert decode_dump(made.pickle()).slow == "entries that do not begin like the first"
    assert decode_dump(recorder(40).pickle()).slow is None
    assert decode_dump(recorder(40).json()).slow is None


def test_short_files_are_left_to_the_ordinary_way(monkeypatch: pytest.MonkeyPatch) -> None:
    data = recorder(40).pickle()
    memoised = pickle.dumps(pickle.loads(data), protocol=2)
    monkeypatch.setattr(fast_reader, "SMALLEST_FILE", len(data) - data.index(b"entries"))
    assert fast_reader.is_suited(data)
    assert not fast_reader.is_suited(data[:-1])
    assert not fast_reader.is_suited(data[:4] + bytes(1000) + data[4:-1]), "the members of a large group count not"
    monkeypatch.setattr(fast_reader, "SMALLEST_FILE", len(memoised) // 2 + 1)
    assert not fast_reader.is_suited(memoised)
    assert not fast_reader.is_suited(b"{" * len(data))


def test_bytes_that_look_like_the_start_of_an_entry() -> None:
    data = recorder(60).pickle()
    first = data.index(b"u}(", data.index(b"entries"))
    trap = data[first : first + 5] * 3
    made = recorder(60)
    made.entries[50]["thread_name"] = trap.decode("latin-1")
    made.entries[51]["record_id"] = int.from_bytes(trap[:7], "little")
    data = made.pickle()
    assert meaning(decode_dump(data)) == meaning(unpickled(data))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_damaged_byte_never_makes_the_two_ways_disagree(data: st.DataObject) -> None:
    whole = bytearray(recorder(12).pickle())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255).filter(lambda byte: byte not in b"\x8eXr"))
    try:
        dump = fast_reader.decode_fast(bytes(whole))
    except (RefusedError, MemoryError, OtherLayoutError):  # a length of many bytes is refused, too
        return
    if at > whole.index(b"entries"):
        try:
            other = unpickled(bytes(whole))
        except Exception:  # noqa: BLE001 - then what is left of it is as good as anything
            return
        assert meaning(dump)[4] == meaning(other)[4]
