"""Two snapshots of one rank: what grew between them, by line, in text, JSON and on the screen."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.cli import run
from rankscope.features.memory.page.snapshots_page import SnapshotsScreen
from tests.tui.detail.show import opened, screen_text
from tests.tui.drive import workers_done

MIB = 1 << 20


def snapshot(held: dict[str, list[int]], time_us: int | None = None) -> dict[str, Any]:
    """A device on which each function holds blocks of these MiB."""
    blocks, at = [], 1 << 30
    for line, (function, sizes) in enumerate(held.items(), 7):
        for size in sizes:
            frames = [{"name": function, "filename": "/job/loop.py", "line": line}]
            blocks.append({"address": at, "size": size * MIB, "requested_size": size * MIB, "frames": frames,
                           "state": "active_allocated"})  # fmt: skip
            at += size * MIB
    segment = {"device": 0, "address": 1 << 30, "total_size": at - (1 << 30), "blocks": blocks}
    event = {"action": "segment_alloc", "addr": 1 << 30, "size": at - (1 << 30), "time_us": time_us, "frames": []}
    return {"segments": [segment], "device_traces": [[event] if time_us is not None else []]}


EARLY = {"weights": [100], "losses": [2] * 3, "workspace": [64]}
LATE = {"weights": [100], "losses": [2] * 40, "workspace": [32], "cache": [16]}


def pair(folder: Path, names: tuple[str, str] = ("step_9/rank_0.pickle", "step_10/rank_0.pickle")) -> Path:
    """An early and a late snapshot, in this order of names."""
    for name, held in zip(names, (EARLY, LATE), strict=True):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(pickle.dumps(snapshot(held)))
    return folder


def test_what_grew_is_told_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers in names count as numbers: step 9 is before step 10."""
    assert run(["report", "--only", "memory", str(pair(tmp_path))]) == 0
    text = capsys.readouterr().out
    assert text.startswith("What grew on rank 0, device 0: 170 MiB in tensors, then 228 MiB\n")
    assert "from step_9/rank_0.pickle to step_10/rank_0.pickle" in text
    rows = [line.split() for line in text.splitlines() if "loop.py:" in line][:3]
    assert [" ".join(row) for row in rows] == [
        "74 MiB 6 MiB 80 MiB 40 losses loop.py:8", "16 MiB 0 B 16 MiB 1 cache loop.py:10",
        "-32 MiB 64 MiB 32 MiB 1 workspace loop.py:9",
    ]  # fmt: skip
    assert run(["report", "--only", "memory", str(tmp_path), "-f", "json"]) == 0
    (growth,) = json.loads(capsys.readouterr().out)["growth"]
    assert (growth["rank"], growth["before"], growth["after"]) == (0, 170 * MIB, 228 * MIB)
    place = growth["places"][0]
    assert (place["grown"], place["blocks_before"], place["blocks"]) == (74 * MIB, 3, 40)
    assert place["stack"][0]["function"] == "losses"


def test_times_of_histories_order_snapshots_before_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, held, time_us in (("z_rank_4.pickle", EARLY, 1_000), ("a_rank_4.pickle", LATE, 9_001_000)):
        (tmp_path / name).write_bytes(pickle.dumps(snapshot(held, time_us)))
    assert run(["report", "--only", "memory", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "from z_rank_4.pickle to a_rank_4.pickle, 9 s later" in text


def test_files_without_a_rank_are_compared_as_one_process_only_with_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", "--only", "memory", str(pair(tmp_path, ("early.pickle", "later.pickle")))]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "What grew on rank unknown, device 0, if the files are of one process: 170 MiB" in text


def test_one_snapshot_of_each_rank_has_no_growth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank_{rank}.pickle").write_bytes(pickle.dumps(snapshot(EARLY)))
    assert run(["report", "--only", "memory", str(tmp_path)]) == 0
    assert "grew" not in capsys.readouterr().out


async def test_the_page_begins_with_what_grew_on_one_rank(tmp_path: Path) -> None:
    dataset = load([pair(tmp_path)])
    page = SnapshotsScreen(dataset, analyse(dataset))
    async with opened(page) as (app, pilot):
        await workers_done(app)
        await pilot.pause()
        text = screen_text(app)
        assert "what grew on rank 0, device 0: 170 MiB in tensors, then 228 MiB" in text
        assert (
            "GREW MOST  74 MiB: losses loop.py:8" in text
            and "losses loop.py:8" in text
            and "files  from step_9/rank_0.pickle" in text
        )
        await pilot.press("g", "m")
        assert page.part == "device"
