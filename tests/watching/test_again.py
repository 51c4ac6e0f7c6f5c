"""A job whose dumps say the same again and again costs next to nothing, and is not missed when it goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rankscope.watching.update import JobUpdate
from rankscope.watching.watched_job import REST_NS
from tests.watching.following import Following
from tests.watching.hand_clock import HandClock
from tests.watching.jobs import RANKS, Running, target
from tests.watching.writer import Writer

FREEZE_S, PAUSE_S = 20.0, 6.0
"""Silence is judged as well, and not before the job is rested."""
REST_S = REST_NS / 1e9


class Frozen:
    """A job in which rank 2 does not come, whose dumps said so until it was called frozen."""

    def __init__(self, writer: Writer, following: Following, running: Running, dumps: Path) -> None:
        self._writer, self.following, self.running, self._dumps = writer, following, running, dumps
        running.step(5)
        self.write()
        running.step(without=2)
        for _ in range(8):
            following.turn(PAUSE_S)
            self.write()
            if following.updates[-1].live.state == "frozen":
                return
        raise AssertionError(following.updates[-1].live)

    def write(self) -> Sequence[JobUpdate]:
        """All write what they know, of which the clock takes no time; the updates that come of it."""
        for rank in range(RANKS):
            self._writer.do("replace", self.running.draft(rank), target(self._dumps, rank))
        return self.following.seen(*(target(self._dumps, rank) for rank in range(RANKS)))


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Frozen]:
    dumps, clock = tmp_path / "dumps", HandClock()
    dumps.mkdir()
    running = Running(tmp_path / "drafts", clock=clock)
    with Writer() as writer, Following(dumps, freeze_after_s=FREEZE_S, clock=clock) as following:
        yield Frozen(writer, following, running, dumps)


def test_what_a_frozen_job_says_again_is_read_and_not_judged_again(frozen: Frozen) -> None:
    following, last = frozen.following, frozen.following.updates[-1].number
    for _ in range(3):
        read = following.watcher.bytes_read
        assert not following.turn(1.0) and not frozen.write()
        assert following.watcher.bytes_read > read
    frozen.running.step()
    frozen.write()
    update = following.updates[-1]
    assert update.number > last and update.dataset.ops.height == 7 * RANKS - 1


def test_after_a_rest_a_frozen_job_is_judged_again(frozen: Frozen) -> None:
    first = frozen.following.updates[-1]
    assert not frozen.following.turn(1.0) and not frozen.write() and not frozen.following.turn(REST_S - 1.1)
    (later,) = frozen.following.turn(0.1)
    assert later.live.state == "frozen" and (later.live.still_ns or 0) > (first.live.still_ns or 0)
    assert not later.alarm
