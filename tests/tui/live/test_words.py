"""What the title says of a job that is watched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankscope.analysis.job_state import JobState
from rankscope.analysis.live_state import SECOND, CollectiveRate
from rankscope.tui.header import room_for_state, title_line
from rankscope.tui.live.following import WIDE, StateMoment, state_text
from rankscope.watching.update import FollowProgress, JobUpdate
from tests.tui.drive import bar
from tests.tui.live.drive import job, until, update_of, watched

NEWS_S = 1_000
SINCE_NS = 1_700_000_000 * SECOND


def update(state: JobState, still_s: float | None = None) -> JobUpdate:
    """An update of a job that waits for a rank, of which the last was heard at NEWS_S."""
    found = update_of(job(5, waiting=state == "frozen"), state, 1)
    still = None if still_s is None else round(still_s * SECOND)
    live = replace(found.live, news_at_ns=NEWS_S * SECOND, still_ns=still, since_ns=SINCE_NS)
    return replace(found, live=live)


def title(update: JobUpdate, after_s: float, reading: FollowProgress | None = None, width: int = 80) -> str:
    """The state so long after the last news."""
    return state_text(update, reading or FollowProgress(), None, moment_of(after_s, width))


def moment_of(after_s: float, width: int = 80, room: int = 80, lag_s: float = 0.0) -> StateMoment:
    """So long after the last news."""
    return StateMoment(round((NEWS_S + after_s) * SECOND), lag_s, room, width >= WIDE, ascii_only=True)


@pytest.mark.parametrize(
    ("still_s", "after_s", "lasts"),
    [(30, 4, "34 s"), (30, 4.9, "34 s"), (None, 0.2, "1 s"), (600, 125, "12 min 5 s"), (7200, 0, "2 h")],
)
def test_a_freeze_lasts_from_the_newest_event_to_now(still_s: float | None, after_s: float, lasts: str) -> None:
    assert title(update("frozen", still_s), after_s) == f"WATCHING - HANG, FROZEN for {lasts}"


def test_beside_a_mismatch_the_job_is_not_called_progressing() -> None:
    found = update("frozen", 30)
    mismatch = replace(found.analysis, status="mismatch")
    assert mismatch.is_critical
    live = replace(found.live, state="progressing", rates=())
    assert title(replace(found, analysis=mismatch, live=live), 4) == "WATCHING - MISMATCH"
    moving = replace(live, rates=(CollectiveRate("0", "dp", 12.0),))
    assert title(replace(found, analysis=mismatch, live=moving), 4) == "WATCHING - MISMATCH, others go on 12/s"


def test_a_wide_title_tells_the_moment_as_well() -> None:
    assert title(update("frozen", 30), 4, width=WIDE).startswith("WATCHING - HANG, FROZEN for 34 s, since ")


def test_of_what_cannot_be_seen_nobody_knows_how_long_it_lasts() -> None:
    away = FollowProgress(away="dumps: Stale file handle")
    assert " for " not in title(update("frozen", 30), 4, away) and "since" in title(update("frozen", 30), 4, away)
    assert "news" not in title(update("progressing"), 90, away)


def test_the_wait_for_more_dumps_is_counted() -> None:
    found = update("waiting")
    live = replace(found.live, so_far="10 of 16 dumps so far", judged_at_ns=(NEWS_S + 30) * SECOND)
    awaited = replace(found, live=live)
    assert title(awaited, 2.5) == "WATCHING - 10 of 16 dumps so far, verdict in 27 s"
    assert title(awaited, 40).startswith("WATCHING - 10 of 16 dumps so far, verdict in 1 s")
    unread = replace(awaited, live=replace(live, judged_at_ns=None))
    assert title(unread, 2.5) == "WATCHING - 10 of 16 dumps so far"


def test_silence_is_as_old_as_the_last_news() -> None:
    assert title(update("silent", 30), 600) == "WATCHING - silent for 10 min"


@pytest.mark.parametrize("state", ["progressing", "waiting", "idle"])
def test_old_news_is_called_so(state: JobState) -> None:
    assert "news" not in title(update(state), 14.9)
    assert title(update(state), 59.9).endswith(" - news 59 s old")
    assert title(update(state), 75).endswith(" - news 1 min old")


@pytest.mark.parametrize(
    ("room", "told"),
    [
        (70, " - every 2 s - news 1 min old - 3.4 s lag"),
        (69, " - news 1 min old - 3.4 s lag"),
        (57, " - every 2 s - 3.4 s lag"),
        (52, " - 3.4 s lag"),
        (40, ""),
    ],
)
def test_what_tells_least_is_left_out_where_there_is_no_room(room: int, told: str) -> None:
    moment = moment_of(75, room=room, lag_s=3.4)
    text = state_text(update("progressing"), FollowProgress(polled_s=2.0), None, moment)
    assert text == f"WATCHING - progressing 12.3/s{told}" and len(text) <= moment.room


@pytest.mark.parametrize(("ranks", "lag"), [(4, True), (1024, False)])
def test_a_title_of_80_columns_ends_with_a_whole_piece(ranks: int, lag: bool) -> None:
    dataset = replace(job(1, ranks=ranks), root="/scratch/somebody/dumps")
    room = room_for_state(dataset, 80)
    text = state_text(update("frozen", 600), FollowProgress(polled_s=2.0), None, moment_of(125, room=room, lag_s=3.4))
    line = title_line(dataset, update("frozen").analysis, 80, state=text).plain.rstrip()
    assert len(line) <= 80 and f"{ranks:,} ranks" in line and ".." in line
    assert line.endswith("FROZEN for 12 min 5 s - 3.4 s lag" if lag else "FROZEN for 12 min 5 s")


async def test_the_title_counts_while_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [NEWS_S * SECOND]
    monkeypatch.setattr("rankscope.tui.live.following.monotonic_ns", lambda: now[0])
    async with watched(None) as (app, pilot, told):
        told.give(update("frozen", 30))
        await until(app, pilot, lambda: app.screen is not app.opening)
        await until(app, pilot, lambda: "FROZEN for 30 s" in bar(app, "title"))
        now[0] += 5 * SECOND
        await until(app, pilot, lambda: "FROZEN for 35 s" in bar(app, "title"))
