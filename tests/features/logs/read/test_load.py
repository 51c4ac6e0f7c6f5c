"""Logs beside dumps: listed, and nothing of the dumps changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.assemble.load import InputError, load
from rankscope.features.logs.read.model import LogContent
from rankscope.parsers.files.directory_walk import walk_paths
from rankscope.parsers.files.reader import read_file
from rankscope.parsers.workers import pool
from rankscope.parsers.workers.byte_ranges import FileRanges
from tests.features.logs.read.lines import read
from tests.features.logs.read.nccl.test_operations import facts
from tests.features.logs.read.test_decode import job
from tests.parsers.dumps import Recorder


def dumps(folder: Path) -> Path:
    folder.mkdir()
    for rank in range(2):
        made = Recorder(rank, {"0": ("default_pg", [0, 1])})
        for _ in range(5):
            made.collective()
        (folder / f"nccl_trace_rank_{rank}").write_bytes(made.pickle())
    return folder


def test_logs_beside_dumps(tmp_path: Path) -> None:
    plain, mixed = load([dumps(tmp_path / "a")]), dumps(tmp_path / "b")
    (mixed / "rank_7.log").write_text("".join(f"{line}\n" for line in job()))
    both = load([mixed])
    kinds = dict(both.files.select("path", "kind").iter_rows())
    assert kinds["rank_7.log"] == "log"
    assert both.files.filter(kind="log")["rows"].item() > 100
    assert (
        both.ops.filter(source="flight-recorder")
        .drop("created_ns", "started_ns", "completed_ns", "file")
        .equals(plain.ops.drop("created_ns", "started_ns", "completed_ns", "file"))
    )
    assert (both.world_size, both.seen_ranks) == (plain.world_size, plain.seen_ranks)


def test_a_text_that_only_looks_like_a_log_is_not_enough(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("INFO:torch.distributed.run: step\n" * 9)
    with pytest.raises(InputError, match="no dump, stack, log or trace"):
        load([tmp_path])


def test_a_large_log_is_read_by_all_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "RANGE_BYTES", 20_000)
    data = "".join(f"{line}\n" for line in job(4, 200))
    (tmp_path / "train.log").write_text(data)
    (tmp_path / "notes.txt").write_text("nothing " * 20_000)
    made = Recorder(0, {"0": ("default_pg", [0, 1])})
    for _ in range(500):
        made.collective()
    (tmp_path / "nccl_trace_rank_0").write_bytes(made.pickle())
    ranges, found = FileRanges(), []
    for result in pool.Pool(walk_paths([tmp_path]), 2).run():
        whole = ranges.add(result)
        if whole is not None and whole.kind is not None:
            found.append(whole)
    by_name = {one.task.found.shown: one for one in found}
    assert len(found) == len(by_name) == 3
    log = by_name["train.log"]
    assert log.task.parts > 5
    assert isinstance(log.decoded, LogContent)
    assert facts(log.decoded) == facts(read(data))
    assert by_name["nccl_trace_rank_0"].task.parts > 1
    assert (by_name["notes.txt"].kind, by_name["nccl_trace_rank_0"].kind) == ("unknown", "flight-recorder")


def test_a_range_that_is_lost_is_said_so(tmp_path: Path) -> None:
    data = "".join(f"{line}\n" for line in job(4, 200)).encode()
    (tmp_path / "train.log").write_bytes(data)
    (file,) = walk_paths([tmp_path])
    ranges, whole = FileRanges(), None
    for part in (2, 0, 1):
        task = pool.Task(file, part, 3)
        if part != 1:
            for content in read_file(file.path, file.size, part, 3):
                result = pool.Result(task, content.inner, content.kind, content.problem, decoded=content.decoded)
                assert ranges.add(result) is None
        lost = "decoding it ended the process" if part == 1 else None
        whole = ranges.add(pool.Result(task, kind="unreadable" if lost else None, problem=lost, last=True))
    assert whole is not None
    assert whole.kind == "log"
    assert whole.problem == "range 2 of 3: decoding it ended the process"
    assert isinstance(whole.decoded, LogContent)
    assert 0 < whole.decoded.rows < read(data).rows
