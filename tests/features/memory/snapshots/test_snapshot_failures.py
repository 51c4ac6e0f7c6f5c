"""Requests that found no memory, by the history of a snapshot: who asked, what was free, and how much lay in holes."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.cli import run
from rankscope.features.memory.page.snapshots_page import SnapshotsScreen
from rankscope.features.memory.snapshots.decode import decode_bytes
from rankscope.features.memory.snapshots.model import FailedRequest, Holes
from tests.tui.detail.show import opened, screen_text
from tests.tui.drive import workers_done

MIB = 1 << 20


def stack(function: str, line: int) -> list[dict[str, Any]]:
    """One frame of the job."""
    return [{"name": function, "filename": "/job/model.py", "line": line}]


def event(action: str, address: int, size: int, frames: Sequence[Any] = ()) -> dict[str, Any]:
    """An entry of a history; address and size in MiB."""
    return {"action": action, "addr": address * MIB, "size": size * MIB, "frames": list(frames), "time_us": 1}


def failure(size: int, free: int, frames: Sequence[Any]) -> dict[str, Any]:
    """A request that finds no memory."""
    return {"action": "oom", "device_free": free * MIB, "size": size * MIB, "frames": list(frames), "time_us": 2}


def segment(address: int, *blocks: tuple[int, str, list[Any]], grows: bool = False) -> dict[str, Any]:
    """A segment of blocks: size, state and stack."""
    rows, at = [], address
    for size, state, frames in blocks:
        rows.append({"address": at * MIB, "size": size * MIB, "requested_size": size * MIB, "state": state,
                     "frames": frames})  # fmt: skip
        at += size
    whole = (at - address) * MIB
    return {"device": 0, "address": address * MIB, "total_size": whole, "blocks": rows, "is_expandable": grows}


LIVE, FREE = "active_allocated", "inactive"


def torn(later: Sequence[dict[str, Any]] = (), *, grows: bool = False) -> dict[str, Any]:
    """A device whose request for 90 MiB fails, as the holes of its three segments are 40, 50 and 60 MiB; its program
    then ends, and gives two of the segments back.

    The third segment is one of weights, older than the history.
    """
    taken, given = ("segment_map", "segment_unmap") if grows else ("segment_alloc", "segment_free")
    keys, values = stack("keys", 10), stack("values", 20)
    history = [
        event(taken, 1000, 100), event("alloc", 1000, 100, keys), event(taken, 2000, 100),
        event("alloc", 2000, 50, values), event("alloc", 2050, 50, values), event("free_completed", 1000, 100),
        event("alloc", 1000, 30, keys), event("alloc", 1070, 30, keys), event("free_completed", 2050, 50),
        failure(90, 7, stack("attend", 33)), event("free_completed", 1000, 30), event("free_completed", 1070, 30),
        event("free_completed", 2000, 50), event(given, 1000, 100), event(given, 2000, 100), *later,
    ]  # fmt: skip
    weights = segment(3000, (40, LIVE, stack("load", 5)), (60, FREE, []), grows=grows)
    return {"segments": [weights], "device_traces": [history]}


@pytest.mark.parametrize("grows", [False, True])
def test_holes_are_those_of_the_moment_at_which_the_request_failed(grows: bool) -> None:
    device = decode_bytes(pickle.dumps(torn(grows=grows))).devices[0]
    found = device.last_failure
    assert isinstance(found, FailedRequest)
    assert (found.asked, found.free, found.held, found.later) == (90 * MIB, 7 * MIB, 150 * MIB, 0)
    assert found.holes == Holes(300 * MIB, 150 * MIB, 0, 60 * MIB)
    assert (device.reserved, device.gaps) == (100 * MIB, 60 * MIB)
    assert device.peak_holes == Holes(300 * MIB, 60 * MIB, 0, 60 * MIB)


def test_a_history_that_does_not_fit_the_segments_tells_no_holes() -> None:
    document = torn()
    document["device_traces"][0] = [one for one in document["device_traces"][0] if "segment" not in one["action"]]
    device = decode_bytes(pickle.dumps(document)).devices[0]
    assert device.last_failure is not None and device.last_failure.holes is None


def test_rounding_is_no_hole() -> None:
    """The allocator rounds up to 512 bytes, and leaves up to 1 MiB of a large segment with its last block."""
    document = torn()
    odd = {**event("alloc", 0, 0, stack("odd", 1)), "addr": 5000 * MIB, "size": 9 * MIB + 100}
    document["device_traces"][0][:0] = [event("segment_alloc", 5000, 10), odd]
    live = {**segment(5000, (10, LIVE, stack("odd", 1)))}
    live["blocks"][0]["requested_size"] = 9 * MIB + 100
    document["segments"].append(live)
    found = decode_bytes(pickle.dumps(document)).devices[0].last_failure
    assert found is not None and found.holes == Holes(310 * MIB, 150 * MIB, 0, 60 * MIB)


def written(tmp_path: Path, document: dict[str, Any], name: str = "snapshot_rank_3.pickle") -> Path:
    """The document in a file."""
    path = tmp_path / name
    path.write_bytes(pickle.dumps(document))
    return path


def test_the_report_says_who_asked_and_what_was_held(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, torn())
    assert run(["report", str(path), "-f", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"].startswith(
        "rank 3 ran out of memory on device 0: a request for 90 MiB in attend model.py:33 failed"
    )
    first = report["findings"][0]
    assert (first["kind"], first["culprit_ranks"], first["root_cause"]) == ("memory-request-failed", [3], True)
    assert "the driver had 7 MiB free, and 150 MiB were in tensors" in first["explanation"]
    assert "It had reserved 300 MiB; 150 MiB were unused, in pieces of at most 60 MiB" in first["explanation"]
    assert "fragmentation" in first["explanation"] and "expandable_segments:True" in first["next_steps"][0]
    assert first["evidence"][0]["text"] == "60 MiB of 150 MiB in tensors by keys model.py:10"
    assert run(["report", str(path)]) == 1
    text = capsys.readouterr().out
    assert "stack      of the request\n              attend  /job/model.py:33\n" in text
    assert run(["report", "--only", "memory", str(path)]) == 0
    text = capsys.readouterr().out
    assert "then 150 MiB in tensors, 7 MiB free by the driver; 150 MiB of 300 MiB" in " ".join(text.split())
    assert "       60 MiB  100 MiB      0 B     0  keys model.py:10\n" in text


def test_a_full_device_gets_no_advice_on_gaps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Gaps that the exception left behind are none at the failure."""
    held, attend = range(0, 4000, 1000), stack("attend", 9)
    history = [event("segment_alloc", 0, 4000), *(event("alloc", at, 1000, attend) for at in held)]
    history += [failure(500, 90, attend), *(event("free_completed", at, 1000) for at in held[:3])]
    kept = segment(0, (3000, FREE, []), (1000, LIVE, stack("attend", 9)))
    path = written(tmp_path, {"segments": [kept], "device_traces": [history]})
    assert run(["report", "--only", "memory", str(path), "-f", "json"]) == 0
    device = json.loads(capsys.readouterr().out)["devices"][0]
    assert device["gaps"] == 3000 * MIB and device["gaps_then"] == 0
    assert [text[:24] for text in device["advice"]] == ["Hold less at that moment"]


def test_a_program_that_goes_on_has_not_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    later = [event("segment_alloc", 7000, 200), event("alloc", 7000, 95, stack("attend", 33))]
    document = torn(later)
    document["segments"].append(segment(7000, (95, LIVE, stack("attend", 33)), (105, FREE, [])))
    path = written(tmp_path, document)
    assert run(["report", str(path), "-f", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["status"] == "unknown" and report["verdict"].endswith("failed, and the program went on")
    assert report["findings"][0]["severity"] == "warning" and not report["findings"][0]["root_cause"]


async def test_the_page_opens_on_the_device_that_failed() -> None:
    calm = torn()
    calm["device_traces"][0] = [one for one in calm["device_traces"][0] if one["action"] != "oom"]
    sources = []
    for rank, document in enumerate((calm, torn())):
        data = pickle.dumps(document)
        name = f"snapshot_rank_{rank}.pickle"
        sources.append(SourceFile(name, "memory-snapshot", len(data), 0, None, decode_bytes(data)))
    dataset = assemble(sources, "", None, None, None)
    page = SnapshotsScreen(dataset, analyse(dataset))
    async with opened(page) as (app, pilot):
        await workers_done(app)
        await pilot.pause()
        text = screen_text(app)
    assert page.part == "device" and "rank 1, device 0: snapshot_rank_1.pickle" in text
    assert "at failure" in text and "60 MiB" in text
    assert "rank 1, device 0 OUT OF MEMORY  asked 90 MiB, 7 MiB free, 150 MiB held: atten" in text
