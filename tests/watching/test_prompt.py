"""What goes, and what takes the place of a directory, is shown because it is told: no look by the clock is needed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rankscope.watching import observer
from rankscope.watching.census import away_note
from tests.watching.following import Following
from tests.watching.jobs import RANKS, Running, target


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "SAFETY_S", 3600.0)
    monkeypatch.setattr(observer, "POLL_S", 3600.0)
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


def test_a_directory_that_is_moved_away_goes_with_its_dumps(running: Running) -> None:
    fill(Path("dumps/node"), running)
    running.draft(0).rename(target(Path("dumps"), 0))
    with Following(Path("dumps")) as following:
        following.until(lambda u: u.dataset.files.height == RANKS + 1)
        Path("dumps/node").rename("elsewhere")
        following.until(lambda u: u.dataset.files.height == 1)


@pytest.mark.parametrize(("dumps", "swapped"), [("dumps", "dumps"), ("run/dumps", "run"), ("dumps/node", "dumps/node")])
def test_a_directory_that_is_swapped_for_another_is_followed(running: Running, dumps: str, swapped: str) -> None:
    fill(Path(dumps), running)
    root = Path(dumps).parent if dumps.endswith("node") else Path(dumps)
    with Following(root) as following:
        until_steps(following, 3)
        running.step()
        fill("new" / Path(dumps).relative_to(swapped), running)
        Path(swapped).rename("old")
        Path("new").rename(swapped)
        until_steps(following, 4)
        goes_on(following, running, Path(dumps))


def test_a_directory_is_swapped_while_the_old_one_is_written_to(running: Running) -> None:
    dumps = Path("run/dumps")
    fill(dumps, running)
    with Following(dumps) as following, noise(dumps):
        until_steps(following, 3)
        running.step()
        fill(Path("new/dumps"), running)
        Path("run").rename("old")
        Path("new").rename("run")
        until_steps(following, 4)
        goes_on(following, running, dumps)


@contextmanager
def noise(directory: Path) -> Iterator[None]:
    """A file of a directory is written to all the time, wherever the directory goes."""
    stop = threading.Event()
    inside = os.open(directory, os.O_RDONLY)
    file = os.open("noise", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=inside)

    def write() -> None:
        while not stop.wait(0.005):
            os.write(file, b"x\n")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        os.close(file)
        os.close(inside)


def test_a_directory_that_is_deleted_and_made_anew_is_followed(running: Running) -> None:
    dumps = Path("dumps")
    fill(dumps, running)
    with Following(dumps) as following:
        until_steps(following, 3)
        for rank in range(RANKS):
            target(dumps, rank).unlink()
        dumps.rmdir()
        running.step()
        fill(dumps, running)
        until_steps(following, 4)
        goes_on(following, running, dumps)


@pytest.mark.parametrize("dumps", ["dumps", "dumps/now"])
def test_a_link_that_leads_elsewhere_is_followed(tmp_path: Path, running: Running, dumps: str) -> None:
    fill(Path("old"), running)
    Path(dumps).parent.mkdir(exist_ok=True)
    Path(dumps).symlink_to(tmp_path / "old")
    with Following(Path("dumps"), follow_links=dumps != "dumps") as following:
        until_steps(following, 3)
        running.step()
        Path("new").mkdir()
        Path("link").symlink_to(tmp_path / "new")
        Path("link").rename(dumps)
        goes_on(following, running, Path(dumps))


def test_trigger_pipes_count_as_nothing(running: Running) -> None:
    dumps = Path("dumps")
    fill(dumps, running)
    for rank in range(RANKS):
        os.mkfifo(dumps / f"trace{rank}.pipe")
    with Following(dumps) as following:
        update = following.until(lambda u: u.dataset.seen_ranks == (0, 1, 2, 3))
        assert update.reading.files == update.dataset.files.height == RANKS
        assert not update.dataset.files["problem"].drop_nulls().to_list()


@pytest.mark.parametrize("path", [".", "..", "../dumps", "/"])
def test_a_note_beside_any_path_has_a_place(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dumps").mkdir()
    monkeypatch.chdir(tmp_path / "dumps")
    note = away_note(Path(path))
    assert note.parent.resolve() == Path(path).resolve().parent
    assert note.name == f".{Path(path).resolve().name}.rankscope-away"


def test_the_directory_one_stands_in_is_followed(
    tmp_path: Path, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "dumps", running)
    monkeypatch.chdir(tmp_path / "dumps")
    with Following(Path()) as following:
        until_steps(following, 3)
        goes_on(following, running, tmp_path / "dumps")
