"""A job whose dumps say the same again and again costs next to nothing, and is not missed when it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.watching import job
from tests.watching.following import Following
from tests.watching.jobs import RANKS, Running, target
from tests.watching.writer import Writer


def write_all(writer: Writer, running: Running, dumps: Path) -> None:
    for rank in range(RANKS):
        writer.do("replace", running.draft(rank), target(dumps, rank))


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    (tmp_path / "dumps").mkdir()
    return tmp_path / "dumps"


def test_what_a_frozen_job_says_again_is_read_and_not_judged_again(
    tmp_path: Path, dumps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "REST_NS", 3600 * 10**9)
    running = Running(tmp_path / "drafts")
    running.step(5)
    with Writer() as writer, Following(dumps, freeze_after_s=0.5) as following:
        write_all(writer, running, dumps)
        following.until(lambda u: u.dataset.ops.height == 5 * RANKS)
        running.step(without=2)
        while following.updates[-1].live.state != "frozen":
            write_all(writer, running, dumps)
            following.quiet(0.3)
        last = following.updates[-1].number
        for _ in range(3):
            read = following.watcher.bytes_read
            write_all(writer, running, dumps)
            following.until_bytes(read + 1)
        assert following.quiet(0.5) == [] and following.updates[-1].number == last
        running.step()
        write_all(writer, running, dumps)
        following.until(lambda u: u.number > last and u.dataset.ops.height == 7 * RANKS - 1)


def test_after_a_rest_a_frozen_job_is_judged_again(
    tmp_path: Path, dumps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "REST_NS", 10**9)
    running = Running(tmp_path / "drafts")
    running.step(5)
    running.step(without=2)
    with Writer() as writer, Following(dumps, freeze_after_s=0.5) as following:
        while not following.updates or following.updates[-1].live.state != "frozen":
            write_all(writer, running, dumps)
            following.quiet(0.3)
        first = following.updates[-1]
        write_all(writer, running, dumps)
        later = following.until(lambda u: u.number > first.number)
        assert later.live.state == "frozen" and (later.live.still_ns or 0) > (first.live.still_ns or 0)
        assert not later.alarm
