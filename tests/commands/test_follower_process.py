"""Following a job in a process of its own: what it tells crosses whole, and it ends with whoever started it."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from rankscope.commands.follower_process import FollowerProcess, FollowRequest
from rankscope.commands.source import JobSource
from rankscope.commands.watch import FollowOptions
from rankscope.tui.live.prepared import Prepared, prepare
from rankscope.watching.update import FollowProgress, JobUpdate
from tests.watching.jobs import RANKS, Running, target

LONGEST_S = 600.0


class Screen:
    """Takes what it is given, in a thread, as the screen does."""

    def __init__(self, wanted: FollowRequest) -> None:
        self.apart = FollowerProcess(wanted)
        self.news: queue.SimpleQueue[JobUpdate | FollowProgress | Prepared] = queue.SimpleQueue()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.apart.run(self.news.put)
        except click.ClickException as error:
            self.error = error

    def until(self, wanted: Callable[[Prepared], bool]) -> Prepared:
        """The first update that is as wanted."""
        while True:
            news = self.news.get(timeout=LONGEST_S)
            if isinstance(news, Prepared) and wanted(news):
                return news

    def ended(self) -> None:
        """Waits for the thread."""
        self._thread.join(LONGEST_S)
        assert not self._thread.is_alive()


def put(running: Running, dumps: Path) -> None:
    for rank in range(RANKS):
        running.draft(rank).rename(target(dumps, rank))


def wanted(dumps: Path) -> FollowRequest:
    return FollowRequest(JobSource((str(dumps),), jobs=1), FollowOptions(), (("/job", "/here"),))


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    (tmp_path / "dumps").mkdir()
    return tmp_path / "dumps"


def test_what_the_screen_needs_comes_whole(tmp_path: Path, dumps: Path) -> None:
    running = Running(tmp_path / "drafts")
    running.step(3)
    put(running, dumps)
    screen = Screen(wanted(dumps))
    try:
        made = screen.until(lambda made: made.update.dataset.ops.height == 3 * RANKS)
        here = prepare(made.update)
        assert (made.overview == here.overview).all() and made.marks == here.marks
        assert (made.model.items.col == here.model.items.col).all() and made.model.instances.equals(
            here.model.instances
        )
        running.step()
        put(running, dumps)
        screen.until(lambda made: made.update.dataset.ops.height == 4 * RANKS)
    finally:
        screen.apart.stop()
    screen.ended()
    assert screen.error is None


def test_a_process_that_is_killed_is_said(tmp_path: Path, dumps: Path) -> None:
    running = Running(tmp_path / "drafts")
    running.step(3)
    put(running, dumps)
    before = _children(os.getpid())
    screen = Screen(wanted(dumps))
    screen.until(lambda _: True)
    (child,) = set(_children(os.getpid())) - set(before)
    os.kill(child, signal.SIGKILL)
    screen.ended()
    assert str(screen.error) == "the process that follows the job has ended (SIGKILL)"


def test_options_that_are_no_good_are_refused_at_once(dumps: Path) -> None:
    with pytest.raises(click.ClickException, match="not a regular expression"):
        FollowerProcess(FollowRequest(JobSource((str(dumps),), rank_from="("), FollowOptions()))
    with pytest.raises(click.ClickException, match="newest attempt"):
        FollowerProcess(FollowRequest(JobSource((str(dumps),), attempt=1), FollowOptions()))


STARTER = """
import sys
from rankscope.commands.follower_process import FollowerProcess, FollowRequest
from rankscope.commands.source import JobSource
from rankscope.commands.watch import FollowOptions
request = FollowRequest(JobSource((sys.argv[1],), jobs=1), FollowOptions())
FollowerProcess(request).run(lambda news: print("news", flush=True))
"""


def test_it_ends_with_whoever_started_it(tmp_path: Path, dumps: Path) -> None:
    running = Running(tmp_path / "drafts")
    running.step(3)
    put(running, dumps)
    process = subprocess.Popen([sys.executable, "-c", STARTER, str(dumps)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "news\n"
    started = _children(process.pid)
    started += [worker for each in started for worker in _children(each)]
    process.kill()
    process.communicate()
    end = time.monotonic() + LONGEST_S
    while any(map(_is_alive, started)):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert started


def _children(pid: int) -> list[int]:
    files = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for file in files for child in file.read_text().split()]
    return [pid for pid in found if b"commands.follower_process" in _command(pid) or b"workers.worker" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
