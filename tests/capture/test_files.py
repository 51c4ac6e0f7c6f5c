"""Files of a rank: put in place in one step, with the last few kept, whatever room there is."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from rankscope.capture import files, identity
from rankscope.capture.files import DumpFiles

ME = ("node07", 42, 1)


def there(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def card(folder: Path, writer: tuple[str, int, int]) -> None:
    keys = ("host", "pid", "started_ns")
    (folder / "capture_rank_3.json").write_text(json.dumps(dict(zip(keys, writer, strict=True))))


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    mine = DumpFiles(str(tmp_path / "new"), 3, 2)
    for text in "abcde":
        mine.put(mine.path("fr_trace_rank_"), text.encode(), True)
    assert there(tmp_path / "new") == {
        "fr_trace_rank_3": "e", "history/1_fr_trace_rank_3": "c", "history/2_fr_trace_rank_3": "d",
    }  # fmt: skip


def test_two_recorders_have_a_history_each(tmp_path: Path) -> None:
    mine = DumpFiles(str(tmp_path), 3, 1)
    for text in "abc":
        for prefix in ("fr_trace_rank_", "nccl_trace_rank_"):
            mine.put(mine.path(prefix), text.encode(), True)
    assert set(there(tmp_path).values()) == {"b", "c"}
    assert len(there(tmp_path)) == 4


def test_nothing_is_kept_where_nothing_shall_be(tmp_path: Path) -> None:
    mine = DumpFiles(str(tmp_path), 3, 0)
    for text in "abc":
        mine.put(mine.path("fr_trace_rank_"), text.encode(), True)
    assert there(tmp_path) == {"fr_trace_rank_3": "c"}


def test_dumps_of_any_recorder_go_with_the_sidecar_that_names_them(tmp_path: Path) -> None:
    mine = DumpFiles(str(tmp_path), 3, 1)
    told = {"host": "node07", "pid": 1, "started_ns": 1, "dumps": ["nccl2_trace_rank_3", "../x_rank_3", "notes", 7]}
    (tmp_path / "nccl2_trace_rank_3").write_text("old")
    (tmp_path / "notes").write_text("of somebody")
    (tmp_path / "stacks_rank_3.txt").write_text("of a standstill")
    mine.card.write_text(json.dumps(told))
    mine.set_aside(["fr_trace_rank_"], ME)
    earlier = ("nccl2_trace_rank_3", "capture_rank_3.json", "stacks_rank_3.txt")
    assert set(there(tmp_path)) == {"notes", *(f"earlier_1/{name}" for name in earlier)}


def test_an_earlier_process_of_the_rank_is_not_overwritten(tmp_path: Path) -> None:
    for number, run in enumerate(("old", "newer", "newest")):
        mine = DumpFiles(str(tmp_path), 3, 2)
        writer = ("node07", 42, number)
        mine.set_aside(["fr_trace_rank_"], writer)
        mine.put(mine.path("fr_trace_rank_"), run.encode(), False)
        mine.put(mine.path("fr_trace_rank_"), run.encode(), True)
        card(tmp_path, writer)
    found = there(tmp_path)
    dumps = {name: text for name, text in found.items() if "fr_trace" in name}
    assert dumps == {
        "fr_trace_rank_3": "newest", "history/1_fr_trace_rank_3": "newest",
        "earlier_1/fr_trace_rank_3": "newer", "earlier_2/fr_trace_rank_3": "old",
    }  # fmt: skip
    assert json.loads(found["earlier_1/capture_rank_3.json"])["started_ns"] == 1


def test_what_this_process_wrote_stays(tmp_path: Path) -> None:
    mine = DumpFiles(str(tmp_path), 3, 2)
    mine.put(mine.path("fr_trace_rank_"), b"a", False)
    card(tmp_path, ME)
    mine.set_aside(["fr_trace_rank_"], ME)
    assert "fr_trace_rank_3" in there(tmp_path)


def test_a_full_disk_costs_the_history_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = DumpFiles(str(tmp_path), 3, 2)
    for text in "abc":
        mine.put(mine.path("fr_trace_rank_"), text.encode(), True)
    real = files.replace_file

    def write(path: Path, data: bytes, taken_ns: int | None) -> None:
        if (tmp_path / "history" / "1_fr_trace_rank_3").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, data, taken_ns)

    monkeypatch.setattr(files, "replace_file", write)
    mine.put(mine.path("fr_trace_rank_"), b"d", False)
    assert there(tmp_path) == {"fr_trace_rank_3": "d"}


def test_a_part_that_cannot_be_written_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dump").write_text("before")

    def half(path: Path, data: bytes) -> int:
        with path.open("wb") as out:
            out.write(data[:1])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="No space"):
        files.replace_file(tmp_path / "dump", b"after")
    assert there(tmp_path) == {"dump": "before"}


def test_a_job_of_torchrun_without_an_id_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "RAY_JOB_ID", "JOB_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert identity.environment()["job"] is None
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run-7")
    assert identity.environment()["job"] == "run-7"
