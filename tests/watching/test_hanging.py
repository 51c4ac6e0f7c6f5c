"""A file system that does not answer is said, and survived: it holds up only the thread that asks it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from rankscope.parsers.files.walk import Found, walk
from rankscope.watching import census, patience
from rankscope.watching.census import Census
from tests.watching.following import Following
from tests.watching.jobs import RANKS, Running, target


class Server:
    """Answers, or keeps those who ask."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = threading.Event()
        self.answers.set()

        def slow(paths: list[Path]) -> list[Found]:
            self.answers.wait()
            return walk(paths)

        monkeypatch.setattr(census, "walk", slow)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(patience, "PATIENCE_S", 0.3)
    server = Server(monkeypatch)
    yield server
    server.answers.set()


def put(running: Running, dumps: Path) -> None:
    for rank in range(RANKS):
        running.draft(rank).rename(target(dumps, rank))


def test_it_is_said_and_the_job_goes_on_where_it_was(tmp_path: Path, server: Server) -> None:
    dumps, running = tmp_path / "dumps", Running(tmp_path / "drafts")
    dumps.mkdir()
    running.step(3)
    with Following(dumps, poll_s=0.2) as following:
        put(running, dumps)
        following.until(lambda u: u.dataset.ops.height == 3 * RANKS)
        server.answers.clear()
        away = following.until_read(lambda r: r.away)
        assert away.away == f"{dumps}: the file system does not answer"
        assert "what was read is shown" in away.trouble
        running.step()
        put(running, dumps)
        assert following.quiet(0.5) == []
        server.answers.set()
        update = following.until(lambda u: u.dataset.ops.height == 4 * RANKS)
        assert update.reading.away is None and update.analysis.status in ("progressing", "healthy")


def test_one_that_never_answers_is_said_and_can_be_left(tmp_path: Path, server: Server) -> None:
    server.answers.clear()
    with Following(tmp_path) as following:
        assert "does not answer" in (following.until_read(lambda r: r.away).away or "")
        assert following.updates == []


def test_one_look_that_hung_does_not_put_off_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Census([tmp_path])
    assert _rest_after(looks, 0.01, monkeypatch) == 0.0
    assert _rest_after(looks, 600.0, monkeypatch) == pytest.approx(0.1), "as after the look before"
    assert _rest_after(looks, 2.0, monkeypatch) == pytest.approx(20.0), "twice in a row it is slow indeed"
    assert _rest_after(looks, 600.0, monkeypatch) == pytest.approx(20.0)
    assert _rest_after(looks, 600.0, monkeypatch) == pytest.approx(census.LONGEST_S)


def _rest_after(looks: Census, took: float, monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds between a look of this length and the next."""
    times, here = iter([1000.0, 1000.0 + took]), threading.get_ident()
    # one that was kept waiting in the test before may look only now
    monkeypatch.setattr(census, "monotonic", lambda: next(times) if threading.get_ident() == here else monotonic())
    looks.scan()
    return looks.may_scan_at - looks.scanned_at
