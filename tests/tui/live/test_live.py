"""The screen of a job that is watched: it keeps its place, follows, pauses, and says what is new."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

import polars as pl
import pytest

from rankscope.tui.board import Board
from rankscope.tui.lanes_screen import LanesScreen
from rankscope.tui.quiet import EVERY_S, Quiet
from rankscope.tui.selection import Selection
from rankscope.watching.update import FollowProgress
from tests.traces import training
from tests.tui.drive import PLAIN, bar, screen_text
from tests.tui.live.drive import act, job, live_of, press, shown, until, watched


def selected(screen: LanesScreen) -> tuple[int, int | None]:
    """Rank and sequence number under the cursor."""
    selection = screen.boards.shown.selection
    assert isinstance(selection, Selection)
    return selection.rank, selection.seq


async def test_it_begins_at_the_newest_and_stays_there() -> None:
    async with watched(job(50)) as (app, pilot, told):
        assert selected(app.lanes)[1] == 50
        assert "FOLLOWING" in bar(app, "keys")
        told.put(job(90))
        await shown(app, pilot, told)
        assert selected(app.lanes)[1] == 90
        assert "WATCHING - progressing 12.3/s" in bar(app, "title")


async def test_a_key_puts_off_the_search_for_cycles() -> None:
    async with watched(job(50)) as (app, pilot, _):
        now = monotonic() + EVERY_S
        app.quiet = Quiet(lambda: now)
        now += EVERY_S
        assert app.quiet.is_due
        await press(app, pilot, "h")
        assert not app.quiet.is_due


async def test_any_movement_stops_following_and_f_goes_on() -> None:
    async with watched(job(50)) as (app, pilot, told):
        await press(app, pilot, "h")
        assert "FOLLOWING" not in bar(app, "keys") and "F follow" in bar(app, "keys")
        assert selected(app.lanes)[1] == 49
        told.put(job(90))
        await shown(app, pilot, told)
        assert selected(app.lanes)[1] == 49
        await press(app, pilot, "F")
        assert selected(app.lanes)[1] == 90
        assert "FOLLOWING" in bar(app, "keys")


@pytest.mark.parametrize("keys", [("k",), ("colon", "1", "enter"), ("slash", "b", "r", "o", "enter"), ("ctrl+home",)])
async def test_every_way_to_move_stops_following(keys: tuple[str, ...]) -> None:
    async with watched(job(50)) as (app, pilot, _):
        await press(app, pilot, "u", "j", "j", "F")
        await press(app, pilot, *keys)
        assert "FOLLOWING" not in bar(app, "keys")


async def test_the_view_keeps_its_place_when_the_ring_lets_go_what_is_old() -> None:
    async with watched(job(80, first=10)) as (app, pilot, told):
        screen = app.lanes
        await press(app, pilot, "u", "j", "colon", "number_sign", "4", "0", "enter")
        await act(app, pilot, "marker")
        await press(app, pilot, "l", "l")
        place = selected(screen)
        row, text = screen.boards.shown.row, screen_text(app).splitlines()[4]
        told.put(job(100, first=30))
        await shown(app, pilot, told)
        assert selected(screen) == place == (1, 42)
        assert screen.boards.shown.row == row
        assert screen_text(app).splitlines()[4] == text
        assert screen.boards.shown.marker is not None and screen.boards.shown.unit - screen.boards.shown.marker == 2


async def test_what_is_gone_under_the_cursor_leaves_it_at_the_oldest_that_is_left() -> None:
    async with watched(job(40)) as (app, pilot, told):
        screen = app.lanes
        await press(app, pilot, "home")
        told.put(job(100, first=60))
        await shown(app, pilot, told)
        assert 0 <= screen.boards.shown.unit < screen.boards.operations.model.width


async def test_zoom_filter_order_search_and_axis_stay() -> None:
    async with watched(job(60)) as (app, pilot, told):
        screen = app.lanes
        await press(app, pilot, "f", "0", "-", "1", "enter", "plus", "g", "d", "slash", "b", "r", "o", "enter")
        before = (
            screen.boards.wanted,
            screen.boards.operations.ordering,
            screen.boards.shown.view.chars,
            screen.search.found and screen.search.found.text,
        )
        told.put(job(70))
        await shown(app, pilot, told)
        after = (
            screen.boards.wanted,
            screen.boards.operations.ordering,
            screen.boards.shown.view.chars,
            screen.search.found and screen.search.found.text,
        )
        assert after == before
        assert screen.boards.operations.model.ranks.tolist() == [0, 1]
        assert screen.search.found is not None and screen.search.found.count == 2 * 24


async def test_the_axis_of_time_stays() -> None:
    async with watched(job(60)) as (app, pilot, told):
        screen = app.lanes
        await press(app, pilot, "t")
        await until(app, pilot, lambda: screen.boards.shown.view.kind == "time")
        await press(app, pilot, "plus", "plus", "plus")
        view = screen.boards.shown.view
        told.put(job(70))
        await shown(app, pilot, told)
        assert screen.boards.shown.view == view
        assert isinstance(screen.boards.shown, Board) and screen.boards.shown.times is not None


@pytest.mark.parametrize("by_key", [True, False])
async def test_pause_holds_the_screen_and_counts_what_waits(by_key: bool) -> None:
    async with watched(job(50)) as (app, pilot, told):

        async def pause() -> None:
            await (press(app, pilot, "F") if by_key else act(app, pilot, "pause"))

        await pause()
        before = screen_text(app).splitlines()[:-1]
        told.put(job(60))
        told.put(job(70))
        await until(app, pilot, lambda: "2 updates waiting" in bar(app, "keys"))
        assert screen_text(app).splitlines()[:-1] == before
        await pause()
        await shown(app, pilot, told)
        assert selected(app.lanes)[1] == 70
        assert "PAUSED" not in bar(app, "keys")


async def test_the_title_of_a_paused_screen_tells_that_and_how_the_job_is_since() -> None:
    async with watched(job(50)) as (app, pilot, told):
        await press(app, pilot, "F")
        assert "PAUSED - progressing 12.3/s" in bar(app, "title") and "WATCHING" not in bar(app, "title")
        told.put(job(60))
        await until(app, pilot, lambda: live_of(app).waiting_count == 1)
        assert "PAUSED - progressing 12.3/s" in bar(app, "title")
        told.put(job(60, waiting=True), "frozen", alarm=True)
        await until(app, pilot, lambda: live_of(app).waiting_count == 2)
        assert "PAUSED - now HANG, FROZEN" in bar(app, "title") and "progressing" not in bar(app, "title")
        assert "ROOT" not in bar(app, "verdict") and selected(app.lanes)[1] == 50
        told.put(job(70))
        await until(app, pilot, lambda: "PAUSED - progressing 12.3/s" in bar(app, "title"))
        told.put(job(70, waiting=True), "frozen", alarm=True)
        await until(app, pilot, lambda: "PAUSED - now HANG, FROZEN" in bar(app, "title"))
        await press(app, pilot, "F")
        await shown(app, pilot, told)
        assert "WATCHING - HANG, FROZEN" in bar(app, "title")


async def test_the_title_says_at_once_that_the_screen_goes_on() -> None:
    async with watched(job(50)) as (app, pilot, _):
        await press(app, pilot, "F")
        assert "PAUSED - progressing" in bar(app, "title") and "PAUSED" in bar(app, "keys")
        await press(app, pilot, "F")
        assert "WATCHING - progressing" in bar(app, "title")


async def test_updates_wait_while_another_screen_is_open() -> None:
    async with watched(job(50)) as (app, pilot, told):
        await press(app, pilot, "question_mark")
        told.put(job(70))
        await until(app, pilot, lambda: live_of(app).waiting_count == 1)
        assert live_of(app).shown.update.number == 1
        await pilot.press("escape")
        await shown(app, pilot, told)
        assert selected(app.lanes)[1] == 70


async def test_only_those_that_went_on_are_marked_until_somebody_looks() -> None:
    async with watched(job(50)) as (app, pilot, told):
        told.put(job(50, ahead=3))
        await shown(app, pilot, told)
        rows = [line for line in screen_text(app).splitlines() if "A " in line and line[1:2] in " >"]
        assert any("3" in line.split("A")[0] and "*" in line.split("A")[0] for line in rows)
        assert "* changed: 3" in bar(app, "keys")
        await press(app, pilot, "u")
        assert "changed" not in bar(app, "keys")
        assert "*" not in "".join(line.split("A")[0] for line in screen_text(app).splitlines()[4:9])


async def test_ranks_whose_profilers_have_written_more_are_marked_on_the_lanes_of_traces() -> None:
    dataset = training(4, steps=4).build()
    later = pl.when(pl.col("rank") == 2).then(pl.col("end_ns") + 1000).otherwise("end_ns")
    async with watched(dataset, size=(100, 30)) as (app, pilot, told):
        told.put(replace(dataset, traces=dataset.traces.with_columns(later.alias("end_ns"))), "waiting")
        await shown(app, pilot, told)
        heads = [line[:30] for line in screen_text(app).splitlines()]
        assert [head.split()[0] for head in heads if "host" in head and "*" in head] == ["2"]
        assert "* changed: 2" in bar(app, "keys")
        await press(app, pilot, "j")
        assert "*" not in "".join(line[:30] for line in screen_text(app).splitlines()[5:])


async def test_a_filter_stays_on_the_lanes_of_traces() -> None:
    dataset = training(4, steps=4).build()
    async with watched(dataset, size=(100, 30)) as (app, pilot, told):
        await press(app, pilot, "f", "0", "-", "1", "enter")
        assert app.lanes.boards.timed is not None
        assert app.lanes.boards.timed.model.ranks.tolist() == [0, 1]
        told.put(dataset, "waiting")
        await shown(app, pilot, told)
        assert app.lanes.boards.timed is not None
        assert app.lanes.boards.timed.model.ranks.tolist() == [0, 1]


async def test_a_freeze_is_told_once_and_led_to(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[int] = []
    async with watched(job(50)) as (app, pilot, told):
        monkeypatch.setattr(app, "bell", lambda: rung.append(1))
        told.put(job(50, waiting=True), "still")
        await shown(app, pilot, told)
        assert "ROOT" not in bar(app, "verdict") and "WATCHING - still" in bar(app, "title")
        told.put(job(50, waiting=True), "frozen", alarm=True)
        await shown(app, pilot, told)
        assert "ROOT  rank 2 never issued" in bar(app, "verdict")
        assert "HANG, FROZEN" in bar(app, "title")
        assert selected(app.lanes)[0] == 2
        assert rung == [1]
        await until(app, pilot, lambda: "FROZEN" in screen_text(app).split("\n", 3)[3])
        told.put(job(50, waiting=True), "frozen")
        await shown(app, pilot, told)
        assert rung == [1]
        await press(app, pilot, "u")
        await until(app, pilot, lambda: "FROZEN" not in screen_text(app).split("\n", 3)[3])


async def test_a_freeze_that_comes_while_nobody_looks_rings_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rung: list[int] = []
    async with watched(job(50)) as (app, pilot, told):
        monkeypatch.setattr(app, "bell", lambda: rung.append(1))
        await press(app, pilot, "F")
        told.put(job(50, waiting=True), "frozen", alarm=True)
        await until(app, pilot, lambda: live_of(app).waiting_count == 1)
        assert rung == [1]
        await press(app, pilot, "F")
        await shown(app, pilot, told)
        assert rung == [1] and "HANG, FROZEN" in bar(app, "title")


async def test_the_verdict_says_how_fast_each_group_goes() -> None:
    async with watched(job(50)) as (app, pilot, told):
        assert "4 ranks: operations go on: default_pg 12.3/s" in bar(app, "verdict")
        told.put(job(50, waiting=True), "frozen")
        await shown(app, pilot, told)
        assert "12.3/s" not in bar(app, "verdict")


async def test_the_bell_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async with watched(job(50), replace(PLAIN, bell=False)) as (app, pilot, told):
        monkeypatch.setattr(app, "bell", lambda: pytest.fail("it rang"))
        told.put(job(50, waiting=True), "frozen", alarm=True)
        await shown(app, pilot, told)


@pytest.mark.parametrize(("keys", "number"), [([], 61), (["w", "escape"], 61), (["h"], 50)])
async def test_where_the_screen_began_at_a_finding_it_leads_to_the_freeze_unless_somebody_moved(
    keys: list[str], number: int
) -> None:
    async with watched(None) as (app, pilot, told):
        told.put(job(50, waiting=True), "frozen")
        await until(app, pilot, lambda: app.screen is not app.opening)
        await until(app, pilot, lambda: selected(app.lanes) == (2, 51) and not app.lanes.detail_is_due)
        for key in keys:
            await press(app, pilot, key)
        told.put(job(60, waiting=True), "frozen", alarm=True)
        await shown(app, pilot, told)
        assert selected(app.lanes) == (2, number)
        assert "ROOT  rank 2 never issued" in bar(app, "verdict")


async def test_who_looks_elsewhere_is_not_moved_by_a_freeze() -> None:
    async with watched(job(50)) as (app, pilot, told):
        await press(app, pilot, "h", "h")
        place = selected(app.lanes)
        told.put(job(50, waiting=True), "frozen", alarm=True)
        await shown(app, pilot, told)
        assert selected(app.lanes) == place
        assert "ROOT  rank 2" in bar(app, "verdict")
        await press(app, pilot, "n")
        assert selected(app.lanes)[0] == 2


async def test_trouble_with_the_files_is_said_and_what_was_read_stays() -> None:
    async with watched(job(50), size=(100, 24)) as (app, pilot, told):
        told.say(FollowProgress(files=4, away="dumps: Stale file handle"))
        await until(app, pilot, lambda: "Stale file handle" in bar(app, "keys"))
        assert "AWAY" in bar(app, "title")
        assert selected(app.lanes)[1] == 50
        told.say(FollowProgress(files=4, writing=2, polled_s=2.0))
        await until(app, pilot, lambda: "2 files being written" in bar(app, "keys"))
        assert "every 2 s" in bar(app, "title")


async def test_what_went_wrong_is_said_until_a_key_is_pressed() -> None:
    async with watched(job(50)) as (app, pilot, told):
        told.say(FollowProgress(files=4, said="--on-freeze: the command failed with exit code 3"))
        await until(app, pilot, lambda: "exit code 3" in bar(app, "keys"))
        told.put(job(70), said="--on-freeze: the command failed with exit code 3")
        await shown(app, pilot, told)
        assert "exit code 3" in bar(app, "keys")
        await press(app, pilot, "u")
        assert "exit code 3" not in bar(app, "keys")
        told.put(job(80), said="--on-freeze: the command failed with exit code 3")
        await shown(app, pilot, told)
        assert "exit code 3" not in bar(app, "keys")


async def test_a_job_that_goes_on_takes_its_alarm_away() -> None:
    async with watched(job(50)) as (app, pilot, told):
        told.put(job(50, waiting=True), "frozen", alarm=True)
        await shown(app, pilot, told)
        await until(app, pilot, lambda: "FROZEN" in screen_text(app).split("\n", 3)[3])
        told.put(job(70))
        await shown(app, pilot, told)
        await until(app, pilot, lambda: "FROZEN" not in screen_text(app).split("\n", 3)[3])


async def test_before_there_is_anything_it_says_what_it_waits_for() -> None:
    async with watched(None) as (app, pilot, told):
        told.say(FollowProgress(polled_s=2.0, why_polled="lustre reports no changes"))
        await until(app, pilot, lambda: "no files yet, looking every 2 s (lustre reports" in screen_text(app))
        told.say(FollowProgress(files=10, unread=4))
        await until(app, pilot, lambda: "6/10" in screen_text(app))
        told.put(job(5))
        await until(app, pilot, lambda: app.screen is not app.opening)


async def test_leaving_ends_following() -> None:
    async with watched(job(5)) as (app, pilot, told):
        await pilot.press("q")
        await until(app, pilot, lambda: told.stopped)


async def test_every_line_fits_80_columns() -> None:
    async with watched(job(50)) as (app, pilot, told):
        said = {
            "12": FollowProgress(files=4, writing=12),
            "aaaa": FollowProgress(away="a" * 300),
            "bbbb": FollowProgress(said="b" * 300),
        }
        for shown, reading in said.items():
            told.say(reading)
            await until(app, pilot, lambda shown=shown: shown in screen_text(app))  # type: ignore[misc]
            assert all(len(line) <= 80 for line in screen_text(app).splitlines())
