"""Worker processes that stay: tasks at any time, results as they come, new processes in the place of old ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.parsers.files.directory_walk import FoundPath, walk_paths
from rankscope.parsers.workers import pool
from rankscope.parsers.workers.pool import FileTail, Result, Task
from rankscope.watching.file_store import WorkerCrew
from tests.parsers.workers.test_pool import MINUTES, SABOTAGED, folder


@pytest.fixture
def crew() -> Iterator[WorkerCrew]:
    made = WorkerCrew(2)
    yield made
    made.close()


def finished(crew: WorkerCrew) -> list[Result]:
    """All results of what was submitted."""
    found: list[Result] = []
    end = time.monotonic() + MINUTES
    while crew.left:
        found += crew.results(1.0)
        assert time.monotonic() < end
    return found


def tasks(found: list[FoundPath]) -> list[Task]:
    return [Task(one, tail=FileTail()) for one in found]


def test_files_are_read_again_and_again_with_their_stamps(tmp_path: Path, crew: WorkerCrew) -> None:
    found = folder(tmp_path, [f"rank_{i}" for i in range(5)])
    for _ in range(3):
        for task in tasks(found):
            crew.submit(task)
        last = [result for result in finished(crew) if result.last]
        assert sorted(r.task.found.shown for r in last) == [f"rank_{i}" for i in range(5)]
        assert {r.stamp for r in last} == {(f.size, f.mtime_ns, f.inode) for f in found}


def test_a_process_gives_way_to_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "RENEWED_AFTER", 3)
    crew = WorkerCrew(1)
    try:
        for task in tasks(folder(tmp_path, [f"rank_{i}" for i in range(8)])):
            crew.submit(task)
        results = finished(crew)
    finally:
        crew.close()
    assert sum(r.last for r in results) == 8
    assert sum(r.decoded is not None for r in results) == 8
    assert not any(r.problem for r in results)


def test_one_that_dies_costs_its_file_and_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crew: WorkerCrew
) -> None:
    monkeypatch.setattr(pool, "_START", SABOTAGED.replace("worker.read_file", "worker.follow_log"))
    for task in tasks(folder(tmp_path, ["killer", "rank_0"])):
        crew.submit(task)
    problems = {r.task.found.shown: r.problem for r in finished(crew) if r.problem}
    assert list(problems) == ["killer"]
    for task in tasks([one for one in walk_paths([tmp_path]) if one.shown == "rank_0"]):
        crew.submit(task)
    assert any(r.decoded is not None for r in finished(crew))
