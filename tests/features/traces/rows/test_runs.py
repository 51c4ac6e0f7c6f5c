"""Runs of a job whose traces are in one folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rankscope.assemble.load import InputError, LoadOptions, load
from rankscope.report.words import summary
from tests.features.traces.read.documents import Event, about, document, loaded, x
from tests.parsers.dumps import Recorder

RUN_US = 300_000_000


def step(at: float, pid: int) -> list[Event]:
    return [x("cpu_op", "aten::mm", at, 100, pid=pid, tid=pid)]


def two_runs(ranks: int = 3) -> dict[str, bytes]:
    """Each rank traced by a process of its own in each of two runs."""
    return {
        f"h1_{pid}.{run}.pt.trace.json": document(step(run * RUN_US + rank, pid), about(rank))
        for run in range(2)
        for rank in range(ranks)
        for pid in [500 + 70 * run + rank]
    }


@pytest.mark.parametrize(("asked", "run"), [(None, 1), (0, 0), (1, 1)])
def test_one_run_is_read_the_newest_without_a_word(tmp_path: Path, asked: int | None, run: int) -> None:
    dataset = loaded(tmp_path, two_runs(), LoadOptions(jobs=1, attempt=asked))
    assert dataset.attempt == run and dataset.attempts["dumps"].to_list() == [3, 3]
    assert dataset.traces["rank"].to_list() == [0, 1, 2]
    assert [f".{run}.pt" in path for path in dataset.files["path"]] == dataset.files["used"].to_list()
    assert dataset.files["attempt"].to_list() == [int(".1.pt" in path) for path in dataset.files["path"]]


def test_a_run_that_is_not_there_is_refused(tmp_path: Path) -> None:
    loaded(tmp_path, two_runs())
    with pytest.raises(InputError, match=re.escape("there is no attempt 2: they are numbered from 0 to 1")):
        load([tmp_path], LoadOptions(jobs=1, attempt=2))


def test_windows_of_the_same_processes_are_one_run(tmp_path: Path) -> None:
    files = {
        f"r{rank}.{at}.json": document(step(at * RUN_US, 500 + rank), about(rank)) for rank in (0, 1) for at in (0, 1)
    }
    dataset = loaded(tmp_path, files)
    assert dataset.attempts.is_empty() and dataset.traces.height == 4


def test_ranks_that_were_traced_one_after_the_other_are_one_run(tmp_path: Path) -> None:
    files = {f"r{rank}.json": document(step(rank * RUN_US, 500 + rank), about(rank)) for rank in range(3)}
    assert loaded(tmp_path, files).seen_ranks == (0, 1, 2)


def test_directories_of_attempts_are_runs(tmp_path: Path) -> None:
    files = {
        f"attempt_{run}/r{rank}.json": document(step(run * RUN_US, 500), about(rank))
        for run in range(2)
        for rank in (0, 1)
    }
    dataset = loaded(tmp_path, files)
    assert dataset.attempts["label"].to_list() == ["attempt_0", "attempt_1"] and dataset.attempt == 1


def test_ranks_that_nothing_tells_have_runs_too(tmp_path: Path) -> None:
    files = {name: document(step(run * RUN_US, 500 + 70 * run + i), about(None)) for run in range(2) for i in (0, 1)
             for name in [f"x{run}{i}.json"]}  # fmt: skip
    dataset = loaded(tmp_path, files)
    assert dataset.attempts.height == 2 and dataset.traces["rank"].to_list() == [0, 1]


def test_beside_dumps_the_nearest_run_is_read(tmp_path: Path) -> None:
    made = Recorder(0, {"0": ("default_pg", [0, 1])})
    made.collective()
    dataset = loaded(tmp_path, {**two_runs(), "dump_0.json": made.json()})
    assert dataset.traces.height == 3 and dataset.attempt == 0
    used = dataset.files.filter("used")
    assert set(used["attempt"]) == {0} and sum(".pt." in path for path in used["path"]) == 3


def sized(rank: int, world: int) -> dict[str, Any]:
    """Metadata of a rank of a job of that size."""
    return about(rank, groups=[("0", range(world))]) | {
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world}
    }


def test_jobs_of_different_sizes_are_two_jobs(tmp_path: Path) -> None:
    files = {
        f"{folder}/r.json": document(step(number * RUN_US, 500 + number), sized(rank, world))
        for number, (folder, rank, world) in enumerate((("control", 3, 8), ("test", 1, 2)))
    }
    dataset = loaded(tmp_path, files)
    assert (dataset.world_size, dataset.seen_ranks, dataset.unseen_ranks) == (2, (1,), (0,))
    assert "attempt 0 is another job, of 8 ranks: read it with --attempt 0" in summary(dataset)


@pytest.mark.parametrize(("hours", "ranks"), [(0.5, (0, 1, 2, 3)), (30, (0, 1))])
def test_other_ranks_hours_apart_are_of_another_run(hours: float, ranks: tuple[int, ...], tmp_path: Path) -> None:
    at = {0: hours * 3.6e9, 1: hours * 3.6e9, 2: 0, 3: 0}
    files = {f"r{r}.json": document(step(begin + r, 500 + r), sized(r, 4)) for r, begin in at.items()}
    assert loaded(tmp_path, files).seen_ranks == ranks
