"""File times may be those of a server whose clock is ahead, or of a copy: a job that goes on is not frozen by them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.watching.following import Following
from tests.watching.hand_clock import HandClock
from tests.watching.jobs import RANKS, Running, target

AHEAD_S = 1800
FREEZE_S = 1.2


def write_all(running: Running, dumps: Path, ahead_s: float) -> Sequence[Path]:
    """Dumps of now, as a server writes them whose clock is ahead."""
    for rank in range(RANKS):
        running.draft(rank, ahead_s).rename(target(dumps, rank))
    return [target(dumps, rank) for rank in range(RANKS)]


def go_on(running: Running, pending: bool) -> None:
    """All issue some more, with times of now; the last of them may be pending."""
    for recorder in running.ranks:
        for entry in recorder.entries:
            entry["state"], entry["retired"] = "completed", True
    running.step(3)
    if pending:
        for recorder in running.ranks:
            recorder.collective(state="started")


@pytest.mark.parametrize(("ahead_s", "pending"), [(100, True), (AHEAD_S, False), (AHEAD_S, True)])
def test_a_job_that_goes_on_is_never_frozen(tmp_path: Path, ahead_s: int, pending: bool) -> None:
    dumps, clock = tmp_path / "dumps", HandClock()
    dumps.mkdir()
    running = Running(tmp_path / "drafts", clock=clock)
    with Following(dumps, freeze_after_s=FREEZE_S, clock=clock) as following:
        for turn in range(1, 13):
            go_on(running, pending)
            following.seen(*write_all(running, dumps, ahead_s))
            assert following.updates[-1].dataset.ops.height == (3 + pending) * turn * RANKS
            following.turn(FREEZE_S / 4)
        states = {update.live.state for update in following.updates}
        assert "progressing" in states
        assert states <= {"waiting", "progressing"}, [u.live for u in following.updates]
        assert not any(update.alarm or update.analysis.is_critical for update in following.updates)


def test_once_it_stands_still_newer_dumps_show_it_all_the_same(tmp_path: Path) -> None:
    dumps, clock = tmp_path / "dumps", HandClock()
    dumps.mkdir()
    running = Running(tmp_path / "drafts", clock=clock)
    with Following(dumps, freeze_after_s=1.0, clock=clock) as following:
        for turn in (1, 2):
            go_on(running, pending=False)
            following.seen(*write_all(running, dumps, AHEAD_S))
            assert following.updates[-1].dataset.ops.height == 3 * turn * RANKS
            following.turn(0.3)
        running.step(without=2)
        for _ in range(8):
            following.seen(*write_all(running, dumps, AHEAD_S))
            following.turn(0.3)
        assert following.updates[-1].live.state == "frozen"
        assert following.updates[-1].analysis.culprits == (2,)
