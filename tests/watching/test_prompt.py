"""What goes is shown because it is told: no look by the clock is needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rankscope.watching import looker
from tests.watching.following import Following
from tests.watching.jobs import RANKS, Running, target


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looker, "SAFETY_S", 3600.0)
    monkeypatch.setattr(looker, "POLL_S", 3600.0)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def running(tmp_path: Path) -> Running:
    running = Running(tmp_path / "drafts")
    running.step(3)
    return running


def fill(directory: Path, running: Running) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for rank in range(RANKS):
        running.draft(rank).rename(target(directory, rank))


def until_steps(following: Following, steps: int) -> None:
    following.until(lambda u: u.dataset.ops.height == steps * RANKS)


def goes_on(following: Following, running: Running, directory: Path) -> None:
    """What is written to a directory, and deleted there, is told of."""
    running.step()
    fill(directory, running)
    until_steps(following, len(running.ranks[0].entries))
    target(directory, 3).unlink()
    following.until(lambda u: u.dataset.seen_ranks == (0, 1, 2))


@pytest.mark.parametrize("absolute", [True, False])
def test_a_deleted_dump_goes_and_one_that_is_written_again_comes_back(
    tmp_path: Path, running: Running, absolute: bool
) -> None:
    dumps = tmp_path / "dumps" if absolute else Path("dumps")
    fill(dumps, running)
    with Following(dumps) as following:
        until_steps(following, 3)
        goes_on(following, running, dumps)
        goes_on(following, running, dumps)


def test_trigger_pipes_count_as_nothing(running: Running) -> None:
    dumps = Path("dumps")
    fill(dumps, running)
    for rank in range(RANKS):
        os.mkfifo(dumps / f"trace{rank}.pipe")
    with Following(dumps) as following:
        update = following.until(lambda u: u.dataset.seen_ranks == (0, 1, 2, 3))
        assert update.reading.files == update.dataset.files.height == RANKS
        assert not update.dataset.files["problem"].drop_nulls().to_list()
