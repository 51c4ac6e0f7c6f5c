"""Dumps of a dead job that are copied into a watched directory one after the other, by a clock that the test turns."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rankscope.analysis.live_state import DUMP_SPREAD_NS
from rankscope.report.watch_lines import render_line_text, verdict_key
from tests.watching.following import Following
from tests.watching.hand_clock import HandClock
from tests.watching.jobs import Running, target

RANKS, LATE = 16, 5
TIMEOUT_S = 700


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    (tmp_path / "dumps").mkdir()
    return tmp_path / "dumps"


@pytest.fixture
def dead(tmp_path: Path, clock: HandClock) -> Running:
    """A job that waited for one rank until the timeout."""
    running = Running(tmp_path / "drafts", ranks=RANKS, start_ns=clock.unix_ns() - TIMEOUT_S * 10**9)
    for recorder in running.ranks:
        for _ in range(5):
            recorder.collective()
        if recorder.rank != LATE:
            recorder.collective(state="started")
    return running


def copy(running: Running, dumps: Path, ranks: range) -> list[Path]:
    """Copies the dumps of these ranks with the time at which they were written."""
    places = []
    for rank in ranks:
        draft = running.draft(rank)
        written = draft.stat().st_mtime_ns - 3 * 10**9
        os.utime(draft, ns=(written, written))
        places.append(draft.rename(target(dumps, rank)))
    return places


def test_of_a_half_copied_set_nobody_is_accused_and_the_whole_is_judged_at_once(
    dumps: Path, dead: Running, clock: HandClock
) -> None:
    first = copy(dead, dumps, range(10))
    with Following(dumps, clock=clock) as following:
        following.seen(*first)
        half = following.updates[-1]
        assert (half.live.state, half.live.so_far) == ("waiting", "10 of 16 dumps so far")
        assert half.analysis.verdict == "10 of 16 dumps so far; judged in 30 s if no more come"
        assert half.analysis.culprits == () and not any("left no dump" in f.title for f in half.analysis.findings)
        following.turn(DUMP_SPREAD_NS / 2e9)
        following.seen(*copy(dead, dumps, range(10, RANKS)))
        # a look in the middle of the copy finds a part of the set; the clock stands still
        following.until(lambda update: not update.live.so_far)
        whole = following.updates[-1]
    assert (whole.live.state, whole.analysis.status, whole.analysis.culprits) == ("frozen", "hang", (LATE,))
    assert all(update.live.state != "progressing" for update in following.updates)
    lines = [render_line_text(u.analysis, u.live, clock.unix_ns()) for u in following.updates]
    assert "WAITING  10 of 16 dumps so far; judged in 30 s" in lines[0]
    assert verdict_key(half.analysis, half.live) != verdict_key(whole.analysis, whole.live)


def test_a_set_that_stays_incomplete_is_judged_after_the_wait(dumps: Path, dead: Running, clock: HandClock) -> None:
    some = copy(dead, dumps, range(RANKS - 1))
    with Following(dumps, clock=clock) as following:
        following.seen(*some)
        assert following.updates[-1].live.so_far == "15 of 16 dumps so far"
        following.turn(DUMP_SPREAD_NS / 1e9 - 1)
        assert following.updates[-1].live.so_far
        following.turn(1.5)
        last = following.updates[-1]
    assert (last.live.state, last.live.so_far) == ("frozen", "")
    assert last.analysis.culprits == (LATE,)


def test_a_whole_set_that_is_there_from_the_start_is_judged_at_once(
    dumps: Path, dead: Running, clock: HandClock
) -> None:
    every = copy(dead, dumps, range(RANKS))
    with Following(dumps, clock=clock) as following:
        following.seen(*every)
        (only,) = {(u.live.state, u.analysis.culprits) for u in following.updates[-1:]}
    assert only == ("frozen", (LATE,))
