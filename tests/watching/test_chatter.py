"""A log to which a job prints what tells nothing changes no verdict, and hides nothing that follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.tui.live.prepared import prepare
from rankscope.watching.update import JobUpdate
from rankscope.watching.watched_file import SETTLED_S
from tests.watching.following import Following
from tests.watching.hand_clock import HandClock
from tests.watching.jobs import RANKS, Running, target
from tests.watching.test_logs import CRASH, text
from tests.watching.writer import Writer

LOSSES = [f"[rank{step % RANKS}]: step {step} loss 2.{step}" for step in range(900)]


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    (tmp_path / "dumps").mkdir()
    return tmp_path / "dumps"


def size(update: JobUpdate) -> int:
    """Bytes of the log."""
    files = update.dataset.files
    return int(files.filter(files["path"].str.ends_with("job.log"))["size"].sum())


def write_all(writer: Writer, running: Running, dumps: Path) -> None:
    for rank in range(RANKS):
        writer.do("replace", running.draft(rank), target(dumps, rank))


@pytest.mark.parametrize("name", ["job.log", "notes.job.log"])
def test_of_a_log_that_only_grows_the_same_is_said(tmp_path: Path, dumps: Path, name: str) -> None:
    clock = HandClock()
    running = Running(tmp_path / "drafts", clock=clock)
    running.step(5)
    lines = LOSSES if name == "job.log" else ["nothing", "of", "ranks"]
    with Writer() as writer, Following(dumps, clock=clock) as following:
        write_all(writer, running, dumps)
        text(tmp_path / name, lines).rename(dumps / name)
        following.seen(*(target(dumps, rank) for rank in range(RANKS)), dumps / name)
        following.turn(SETTLED_S)
        first = following.updates[-1]
        assert first.dataset.ops.height == 5 * RANKS and size(first)
        writer.do("append", text(tmp_path / "more", lines), dumps / name)
        following.seen(dumps / name)
        following.turn(SETTLED_S)
        second = following.updates[-1]
        assert size(second) == 2 * size(first)
        assert second.dataset.ops.equals(first.dataset.ops) and second.analysis == first.analysis


def test_what_follows_such_lines_is_seen(tmp_path: Path, dumps: Path) -> None:
    running = Running(tmp_path / "drafts")
    running.step(5)
    with Writer() as writer, Following(dumps) as following:
        write_all(writer, running, dumps)
        text(dumps / "job.log", LOSSES)
        first = following.until(lambda u: u.dataset.ops.height == 5 * RANKS and size(u))
        writer.do("append", text(tmp_path / "more", LOSSES), dumps / "job.log")
        second = following.until(lambda u: size(u) == 2 * size(first))
        running.step(2)
        write_all(writer, running, dumps)
        third = following.until(lambda u: u.dataset.ops.height == 7 * RANKS)
        assert len(prepare(third).model.items.col) == 7 * RANKS > len(prepare(second).model.items.col)
        writer.do("append", text(tmp_path / "crash", CRASH), dumps / "job.log")
        assert following.until(lambda u: u.analysis.status == "failed").analysis.culprits == (1,)
