"""A file system that does not answer is said, and survived: it holds up only the thread that asks it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankscope.parsers.files.directory_walk import FoundPath, walk_paths
from rankscope.watching import census
from rankscope.watching.census import FileCensus
from rankscope.watching.observer import PATIENCE_S
from tests.watching.following import Following
from tests.watching.hand_clock import HandClock
from tests.watching.jobs import RANKS, Running, target

POLL_S = 0.2


class Server:
    """Answers, or keeps those who ask."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = threading.Event()
        self.answers.set()

        def slow(paths: list[Path], *, follow_links: bool) -> list[FoundPath]:
            self.answers.wait()
            return walk_paths(paths, follow_links=follow_links)

        monkeypatch.setattr(census, "walk_paths", slow)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server(monkeypatch)
    yield server
    server.answers.set()


def put(running: Running, dumps: Path) -> list[Path]:
    return [running.draft(rank).rename(target(dumps, rank)) for rank in range(RANKS)]


def test_it_is_said_and_the_job_goes_on_where_it_was(tmp_path: Path, server: Server) -> None:
    dumps, clock = tmp_path / "dumps", HandClock()
    running = Running(tmp_path / "drafts", clock=clock)
    dumps.mkdir()
    running.step(3)
    put(running, dumps)
    with Following(dumps, poll_s=POLL_S, clock=clock) as following:
        following.until(lambda u: u.dataset.ops.height == 3 * RANKS)
        server.answers.clear()
        clock.turn(POLL_S)
        following.rest(hangs=True)
        assert not following.readings[-1].away
        clock.turn(PATIENCE_S)
        away = following.until_read(lambda r: r.away)
        assert away.away == f"{dumps}: the file system does not answer"
        assert "what was read is shown" in away.trouble
        shown = len(following.updates)
        running.step()
        put(running, dumps)
        clock.turn(POLL_S)
        following.rest(hangs=True)
        assert len(following.updates) == shown
        server.answers.set()
        update = following.until(lambda u: u.dataset.ops.height == 4 * RANKS)
        assert update.reading.away is None and update.analysis.status in ("progressing", "healthy")


def test_one_that_never_answers_is_said_and_can_be_left(tmp_path: Path, server: Server) -> None:
    server.answers.clear()
    clock = HandClock()
    with Following(tmp_path, clock=clock) as following:
        following.rest(hangs=True)
        clock.turn(PATIENCE_S)
        assert "does not answer" in (following.until_read(lambda r: r.away).away or "")
        assert following.updates == []


def test_one_look_that_hung_does_not_put_off_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, took = HandClock(), [0.0]

    def slow(paths: list[Path], *, follow_links: bool) -> list[FoundPath]:
        assert not follow_links
        if paths == [tmp_path]:  # not of a thread that an earlier test left hanging
            clock.turn(took[0])
        return []

    monkeypatch.setattr(census, "walk_paths", slow)
    looks = FileCensus([tmp_path], clock)

    def rest_after(seconds: float) -> float:
        """Seconds between a look of this length and the next."""
        took[0] = seconds
        looks.scan()
        return looks.may_scan_at - looks.scanned_at

    assert rest_after(0.01) == 0.0
    assert rest_after(600.0) == pytest.approx(0.1), "as after the look before"
    assert rest_after(2.0) == pytest.approx(20.0), "twice in a row it is slow indeed"
    assert rest_after(600.0) == pytest.approx(20.0)
    assert rest_after(600.0) == pytest.approx(census.LONGEST_PAUSE_S)
