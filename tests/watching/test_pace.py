"""When a job that is watched is judged: after a rest in proportion to what that takes, and once more at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from rankscope.analysis.live_state import WRITING_NS, LiveState
from rankscope.analysis.model import Analysis
from rankscope.watching.update import JobUpdate
from rankscope.watching.watched_job import WatchedJob
from rankscope.watching.watcher import REST_FACTOR
from tests.watching.following import Following
from tests.watching.hand_clock import HandClock
from tests.watching.jobs import Running, target
from tests.watching.test_chatter import LOSSES
from tests.watching.test_logs import CRASH, text
from tests.watching.writer import Writer

RANKS = 8
FREEZE_S = 3600.0


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    (tmp_path / "dumps").mkdir()
    return tmp_path / "dumps"


class Going:
    """A job of many ranks that was seen to go on; time passes for it when a test says so."""

    def __init__(self, writer: Writer, following: Following, running: Running, dumps: Path, clock: HandClock) -> None:
        self._writer, self.following, self.running, self._dumps, self.clock = writer, following, running, dumps, clock
        for _ in range(2):
            running.step(5)
            self.write(*range(RANKS))
        # until then more dumps may be coming in
        self.turn(WRITING_NS / 1e9)
        assert self.last.dataset.ops.height == 10 * RANKS and self.last.live.state == "progressing"

    @property
    def last(self) -> JobUpdate:
        """The newest update."""
        return self.following.updates[-1]

    def write(self, *ranks: int) -> Sequence[JobUpdate]:
        """These write what they know, of which the clock takes no time; the updates that come of it."""
        count = len(self.following.updates)
        for rank in ranks:
            self._writer.do("replace", self.running.draft(rank), target(self._dumps, rank))
        self.following.seen(*(target(self._dumps, rank) for rank in ranks))
        return self.following.updates[count:]

    def differ(self) -> None:
        """All issue one more, which is another one of rank 3."""
        self.running.come_to_now()
        for recorder in self.running.ranks:
            recorder.collective(op="broadcast" if recorder.rank == 3 else "all_reduce", state="started")

    def turn(self, seconds: float) -> Sequence[JobUpdate]:
        """The updates that come of nothing but time."""
        return self.following.turn(seconds)


@pytest.fixture
def going(tmp_path: Path, dumps: Path) -> Iterator[Going]:
    clock = HandClock()
    running = Running(tmp_path / "drafts", ranks=RANKS, clock=clock)
    with Writer() as writer, Following(dumps, freeze_after_s=FREEZE_S, clock=clock) as following:
        yield Going(writer, following, running, dumps, clock)


def test_one_dump_of_many_is_shown_and_judged_at_once(going: Going) -> None:
    before = going.last
    going.running.step()
    (shown,) = going.write(3)
    assert shown.dataset.ops.height == 10 * RANKS + 1 and shown.changed == 1 and not shown.alarm
    assert shown.analysis.status == "progressing" and (shown.live.since_ns or 0) > (before.live.since_ns or 0)


def test_what_a_rank_does_otherwise_is_found_at_once(going: Going) -> None:
    going.differ()
    found = going.write(3, 4)[-1]
    # the others have not written what they issued: of two that differ either may be the one
    assert found.analysis.status == "mismatch" and found.alarm and found.analysis.culprits == (3, 4)


def slowly(going: Going, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Has judging take so long."""
    judge = WatchedJob.judge

    def slow(job: WatchedJob, at_ns: int, *, unread: bool) -> tuple[Analysis, LiveState]:
        going.clock.turn(seconds)
        return judge(job, at_ns, unread=unread)

    monkeypatch.setattr(WatchedJob, "judge", slow)


def test_after_judging_there_is_a_rest_twice_as_long_as_it_took(going: Going, monkeypatch: pytest.MonkeyPatch) -> None:
    took = 0.3
    slowly(going, monkeypatch, took)
    for turn in range(3):
        going.running.step()
        came = going.write(3, 4, 5)
        if not turn:
            assert came, "it had rested"
            continue
        assert not came and not going.turn(REST_FACTOR * took - 0.01)
        (judged,) = going.turn(0.02)
        assert judged.changed == 3


def test_what_waits_for_its_rest_is_judged_when_following_ends(going: Going, monkeypatch: pytest.MonkeyPatch) -> None:
    slowly(going, monkeypatch, 0.3)
    going.running.step()
    going.write(*range(RANKS))
    going.differ()
    assert not going.write(3, 4) and going.last.analysis.status == "progressing"
    going.following.watcher.stop()
    assert going.following.until(lambda u: u.analysis.status == "mismatch").analysis.culprits == (3, 4)


def test_beside_a_log_that_goes_on_dumps_are_judged_all_the_same(going: Going, tmp_path: Path, dumps: Path) -> None:
    log = text(tmp_path / "job.log", LOSSES).rename(dumps / "job.log")
    going.following.seen(log)
    for count in (1, 2):
        with log.open("a") as file:
            file.write("\n".join(LOSSES) + "\n")
        going.following.seen(log)
        going.running.step()
        going.write(3)
        assert going.last.dataset.ops.height == 10 * RANKS + count and going.last.live.state == "progressing"
    with log.open("a") as file:
        file.write("\n".join(CRASH) + "\n")
    found = going.following.seen(log)[-1]
    assert found.analysis.culprits == (1,) and found.alarm
