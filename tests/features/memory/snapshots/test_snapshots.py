"""Memory snapshots: the peak of a history, gaps in segments, odd forms, and what is refused."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from benchmarks.memory_snapshot import snapshot

from rankscope.cli import run
from rankscope.features.memory.snapshots import snapshot_sizes
from rankscope.features.memory.snapshots.allocation_history import HistoryRows
from rankscope.features.memory.snapshots.decode import decode_bytes, looks_like_snapshot
from rankscope.features.memory.snapshots.entry_stream import EntryUnpickler, entry_stream
from rankscope.features.memory.snapshots.model import MemorySnapshot, snapshot_from
from rankscope.features.memory.snapshots.snapshot_sizes import MOST_SIZE
from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.files.reader import read_file

MIB = 1 << 20


def frames(line: int) -> list[dict[str, Any]]:
    """A stack of C++, torch and the job."""
    return [
        {"name": "at::empty", "filename": "/torch/aten/empty.cpp", "line": 0},
        {"name": "linear", "filename": "/lib/site-packages/torch/nn/functional.py", "line": 9},
        {"name": "step", "filename": "/job/train.py", "line": line},
    ]


def entry(action: str, address: int, size: int, stack: Any = None, time_us: int = 0) -> dict[str, Any]:
    """An entry of a history."""
    return {"action": action, "addr": address, "size": size * MIB, "frames": stack or [], "time_us": time_us}


def block(address: int, size: int, stack: Any = None) -> dict[str, Any]:
    """A live block, or a free one without a stack."""
    state = "active_allocated" if stack else "inactive"
    return {"address": address, "size": size * MIB, "requested_size": size * MIB, "state": state, "frames": stack or []}


def two_segments() -> dict[str, Any]:
    """40 MiB live of 128; at the peak 70 MiB, with 10 that the history does not know and 30 of line 2."""
    old, kept, gone = frames(1), frames(3), frames(2)
    history = [
        entry("segment_alloc", 0, 128), entry("free_requested", 8, 10), entry("alloc", 4, 30, gone, 5),
        entry("oom", 0, 99, kept), entry("free_completed", 8, 10, None, 1_000), entry("free_completed", 4, 30, None, 7),
        entry("alloc", 2, 10, kept, 2_005),
    ]  # fmt: skip
    del history[3]["addr"]
    history[3]["device_free"] = 7 * MIB
    segment = {"device": 0, "total_size": 64 * MIB, "address": 0}
    blocks = [block(1, 30, old), block(2, 10, kept), block(3, 24)]
    return {
        "segments": [{**segment, "blocks": blocks}, {**segment, "blocks": [block(9, 64)]}],
        "device_traces": [history],
    }


def lines_of(found: MemorySnapshot) -> dict[int, tuple[int, int, int]]:
    """Bytes at the peak and at the dump in MiB, and blocks, by the line of the job."""
    return {
        found.frames[one.frames[-1]].line: (one.at_peak // MIB, one.at_dump // MIB, one.blocks) for one in found.stacks
    }


@pytest.mark.parametrize("data", [
    pickle.dumps(two_segments()), pickle.dumps(two_segments(), 2), pickle.dumps(two_segments(), 5),
    json.dumps(two_segments()).encode(),
])  # fmt: skip
def test_the_peak_the_dump_and_the_gaps_are_told(data: bytes) -> None:
    assert looks_like_snapshot(data[:512])
    found = decode_bytes(data)
    (device,) = found.devices
    assert (device.reserved, device.allocated, device.gaps, device.cached, device.largest) == tuple(
        size * MIB for size in (128, 40, 24, 64, 64)
    )
    assert (device.peak, device.unknown, device.ago_ns) == (70 * MIB, 10 * MIB, 2_000_000)
    assert (device.events, device.failures) == (7, 1)
    failure = device.last_failure
    assert failure is not None and (failure.asked, failure.free, failure.held) == (99 * MIB, 7 * MIB, 70 * MIB)
    assert (failure.later, failure.later_bytes) == (1, 10 * MIB)
    assert lines_of(found) == {1: (30, 30, 1), 2: (30, 0, 0), 3: (0, 10, 1)}
    assert {frame.function for frame in found.frames} >= {"linear", "step"}
    assert snapshot_from(json.loads(json.dumps(found.header()))) == found


def test_older_forms_are_read() -> None:
    """Segments alone, with "history" in blocks, and no addresses."""
    first = {"size": 4 * MIB, "state": "active_allocated", "history": [{"real_size": 3 * MIB, "frames": frames(4)}]}
    segments = [
        {"device": 0, "address": 64, "total_size": 8 * MIB, "blocks": [first, {"size": 4 * MIB, "state": "inactive"}]}
    ]
    for data in (pickle.dumps(segments), json.dumps(segments).encode()):
        assert looks_like_snapshot(data[:512])
        found = decode_bytes(data)
        assert found.devices[0].peak is None and lines_of(found) == {4: (3, 3, 1)}


def test_entries_that_are_handed_over_are_those_of_the_whole() -> None:
    """A long history gives the sums of plain unpickling, and few of its entries are ever in memory at once."""
    document = snapshot(6_000)
    data = pickle.dumps(document)
    rows = HistoryRows()
    left = EntryUnpickler(entry_stream(io.BytesIO(data)), rows).load()["device_traces"][0]
    assert sum(type(one) is dict for one in left) < len(left) / 200
    (device,) = decode_bytes(data).devices
    held = most = 0
    live: dict[int, int] = {}
    for one in document["device_traces"][0]:
        if one["action"] == "alloc":
            live[one["addr"]] = one["size"]
            held += one["size"]
        elif one["action"] == "free_completed":
            held -= live.pop(one["addr"])
        most = max(most, held)
    assert device.peak == most and device.unknown == 0


def test_a_stack_of_the_peak_is_summed_over_objects() -> None:
    """Equal stacks are one, whether they are one object or not."""
    chance = random.Random(3)
    history = [entry("alloc", at, 1, frames(chance.randrange(3)), at) for at in range(50)]
    wanted = Counter(one["frames"][-1]["line"] for one in history)
    found = decode_bytes(pickle.dumps({"segments": [], "device_traces": [[], history]}))
    assert {line: peak for line, (peak, _, _) in lines_of(found).items()} == wanted
    assert [one.device for one in found.devices] == [1]


class Attack:
    """An object whose pickle calls a function."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("true",)


def test_a_global_is_refused_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "snapshot.pickle"
    for at in ("segments", "device_traces"):
        path.write_bytes(pickle.dumps({**two_segments(), at: [[Attack()]]}))
        (found,) = read_file(str(path), path.stat().st_size)
        assert (found.kind, found.problem) == ("pickle", "asks for posix.system: refused")
    assert run(["report", "--only", "memory", str(path)]) == 2
    assert "asks for posix.system" in capsys.readouterr().err


@pytest.mark.parametrize("change", [
    {"segments": [7]}, {"segments": [{"device": 1 << 40, "blocks": []}]}, {"device_traces": [[7]]},
    {"device_traces": [["x"]]}, {"device_traces": [[entry("alloc", 1, MOST_SIZE)]]}, {"device_traces": [7]},
    {"segments": [{"device": 0, "total_size": -1, "blocks": []}]},
    {"segments": [{"device": 0, "total_size": 4096, "active_size": 512, "blocks": []}]},
    {"device_traces": [[{"action": "alloc", "addr": "x"}]]},
])  # fmt: skip
def test_odd_values_are_refused(change: dict[str, Any]) -> None:
    for data in (pickle.dumps({**two_segments(), **change}), json.dumps({**two_segments(), **change}).encode()):
        with pytest.raises(NotThisKindError, match="memory snapshot"):
            decode_bytes(data)


@pytest.mark.parametrize("document", [
    {"segments": [{"device": 0, "total_size": 1, "blocks": [block(1, 1)] * 50}] * 3},
    {"segments": [], "device_traces": [[entry("alloc", 1, 1)] * 50] * 3},
])  # fmt: skip
def test_a_list_that_is_named_again_and_again_is_refused(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_sizes, "MOST_BLOCKS", 100)
    monkeypatch.setattr(snapshot_sizes, "MOST_ENTRIES", 100)
    with pytest.raises(NotThisKindError, match="more than 100"):
        decode_bytes(pickle.dumps(document))


def test_deep_text_is_refused() -> None:
    deep = json.dumps(two_segments()).replace('"frames": []', '"frames": ' + "[" * 50_000 + "]" * 50_000, 1)
    with pytest.raises(NotThisKindError, match="memory snapshot"):
        decode_bytes(deep.encode())


def test_a_torn_file_is_named_so() -> None:
    data = pickle.dumps(snapshot(900))
    for whole in (data, json.dumps(two_segments()).encode()):
        with pytest.raises(NotThisKindError, match="cut off"):
            decode_bytes(whole[: len(whole) * 2 // 3])


def job(directory: Path) -> None:
    """Two ranks; rank 1 holds 200 MiB by a line that rank 0 does not have."""
    for rank in range(2):
        document = two_segments()
        if rank:
            more = {"device": 0, "total_size": 200 * MIB, "address": 0, "blocks": [block(99, 200, frames(77))]}
            document["segments"].append(more)
        (directory / f"snapshot_rank_{rank}.pickle").write_bytes(pickle.dumps(document))


def test_the_page_names_who_holds_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path)
    assert run(["report", "--only", "memory", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "Held by one rank alone at its peak, of ranks 0,1\n" in text
    assert "      1  200 MiB  nothing  step train.py:77\n" in text
    assert "Rank 1, device 0\n   snapshot_rank_1.pickle\n" in text and "step train.py:77" in text
    assert "24 MiB in gaps" in text and max(map(len, text.splitlines())) <= 80
    assert run(["report", "--only", "memory", str(tmp_path), "-f", "markdown"]) == 0
    assert "| 200 MiB | 200 MiB | 1 | " in capsys.readouterr().out
    assert run(["report", "--only", "memory", str(tmp_path), "-f", "json", "--rank-from", r"rank_(\d)"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["rank"], one["bytes"], one["stack"][0]["line"]) for one in told["held_alone"]] == [(1, 200 * MIB, 77)]


def test_the_report_says_what_a_snapshot_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dump.pickle"
    document = two_segments()
    document["device_traces"][0] = [one for one in document["device_traces"][0] if one["action"] != "oom"]
    path.write_bytes(pickle.dumps(document))
    assert run(["report", str(path), "-f", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["kind"] for one in told["findings"]] == ["memory-snapshot"]
    assert "70 MiB in tensors" in told["findings"][0]["evidence"][0]["text"]
    assert run(["report", "--only", "memory", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "Rank unknown, device 0"


def test_a_history_of_one_entry_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """torch keeps one entry where it records the state alone; segments of torch 2.0 do not tell whether they grow."""
    document = two_segments()
    document["segments"] *= 20
    document["device_traces"] = [[entry("free_completed", 77, 8)]]
    path = tmp_path / "snapshot_rank_0.pickle"
    path.write_bytes(pickle.dumps(document))
    device = decode_bytes(path.read_bytes()).devices[0]
    assert (device.peak, device.unknown, device.peak_holes, device.expandable) == (None, 0, None, None)
    assert run(["report", "--only", "memory", str(path), "-f", "json"]) == 0
    advice = " ".join(json.loads(capsys.readouterr().out)["devices"][0]["advice"])
    assert "max_split_size_mb:128" in advice and "_record_memory_history()" in advice


def test_code_of_inductor_is_not_the_jobs_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each call of a compiled graph is a line of its own there."""
    document = two_segments()
    for at, event in enumerate(document["device_traces"][0]):
        call = {"name": "call", "filename": "/tmp/torchinductor_me/ab/cabc.py", "line": 100 + at}
        event["frames"] = [call, *event["frames"]]
    path = tmp_path / "snapshot_rank_0.pickle"
    path.write_bytes(pickle.dumps(document))
    assert run(["report", "--only", "memory", str(path)]) == 0
    assert "cabc.py" not in capsys.readouterr().out
