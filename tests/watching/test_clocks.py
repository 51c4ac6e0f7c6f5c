"""File times may be those of a server whose clock is ahead, or of a copy: a job that goes on is not frozen by them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.watching.following import Following
from tests.watching.jobs import RANKS, Running, target

AHEAD_S = 1800
FREEZE_S = 1.2


def write_all(running: Running, dumps: Path, ahead_s: float) -> None:
    """Dumps of now, as a server writes them whose clock is ahead."""
    at = time.time_ns() + round(ahead_s * 1e9)
    for rank in range(RANKS):
        draft = running.draft(rank)
        os.utime(draft, ns=(at, at))
        draft.rename(target(dumps, rank))


def go_on(running: Running, pending: bool) -> None:
    """All issue some more, with times of now; the last of them may be pending."""
    for recorder in running.ranks:
        for entry in recorder.entries:
            entry["state"], entry["retired"] = "completed", True
        recorder.clock = time.time_ns()
    running.step(3)
    if pending:
        for recorder in running.ranks:
            recorder.collective(state="started")


def until(following: Following, height: int) -> None:
    following.until(lambda u: u.dataset.ops.height == height)


@pytest.mark.parametrize(("ahead_s", "pending"), [(100, True), (AHEAD_S, False), (AHEAD_S, True)])
def test_a_job_that_goes_on_is_never_frozen(tmp_path: Path, ahead_s: int, pending: bool) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    running = Running(tmp_path / "drafts")
    with Following(dumps, freeze_after_s=FREEZE_S) as following:
        for turn in range(1, 7):
            go_on(running, pending)
            write_all(running, dumps, ahead_s)
            until(following, (3 + pending) * turn * RANKS)
            following.quiet(FREEZE_S / 4)
        states = {update.live.state for update in following.updates}
        assert states <= {"waiting", "progressing"}, [u.live for u in following.updates]
        assert not any(update.alarm or update.analysis.is_critical for update in following.updates)


def test_once_it_stands_still_newer_dumps_show_it_all_the_same(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    running = Running(tmp_path / "drafts")
    with Following(dumps, freeze_after_s=1.0) as following:
        for turn in (1, 2):
            go_on(running, pending=False)
            write_all(running, dumps, AHEAD_S)
            until(following, 3 * turn * RANKS)
        running.step(without=2)
        while following.updates[-1].live.state != "frozen":
            write_all(running, dumps, AHEAD_S)
            following.quiet(0.3)
            assert len(following.updates) < 200
        assert following.updates[-1].analysis.culprits == (2,)
