"""The app, driven by its keys."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from textual.widgets import Input

from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from rankscope.tui.app import RankscopeApp
from rankscope.tui.help_screen import HelpScreen
from rankscope.tui.options import Palette, Progress, ProgressLike, ViewOptions
from rankscope.tui.text_bars import TextBar
from tests.builders import JobBuilder
from tests.tui.drive import LONGEST_S, PLAIN, act, bar, board_of, loaded, loads, opened, press, screen_text, until
from tests.tui.jobs import hang, healthy

ROOMY = (80, 30)
"""A screen with room for all rows of the hang and the whole card."""


def rank(app: RankscopeApp) -> int:
    selection = board_of(app).selection
    assert selection is not None
    return selection.rank


async def type_text(app: RankscopeApp, text: str) -> None:
    app.screen.query_one(Input).value = text


# Opening


async def test_the_first_screen_says_the_answer() -> None:
    async with opened(hang()) as (app, _):
        assert bar(app, "title") == " rankscope dumps  16 ranks  HANG since 22:13:20, still 10 min   sure: high  1/3 "
        assert "ROOT  rank 6 never issued all_reduce #11 of TENSOR_PARALLEL_1" in bar(app, "verdict")
        assert rank(app) == 6
        selection = board_of(app).selection
        assert selection is not None
        assert (selection.seq, selection.absence, selection.finding) == (11, "never issued", 0)
        assert "<- never arrived" in screen_text(app)
        assert "Ranks 4,5,7 wait in all_reduce #11" in screen_text(app)
        assert re.search(r"\n \$ \S.*   Y copies it\n", screen_text(app)), "and what to do now"


async def test_progress_is_shown_while_loading_and_keys_are_not_blocked() -> None:
    go_on = threading.Event()

    def load(progress: Callable[[ProgressLike], None]) -> tuple[Dataset, Analysis]:
        progress(Progress(3, 10, "reading dumps"))
        assert go_on.wait(LONGEST_S)
        return healthy()

    app = RankscopeApp(load, "dumps", PLAIN)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "reading" in app.opening.query_one("#progress", TextBar).text)
        assert app.opening.query_one("#title", TextBar).text == " rankscope dumps  opening ..."
        assert app.opening.query_one("#progress", TextBar).text.startswith(" reading dumps 3/10 ####")
        await pilot.press("j", "t", "n", "c", "enter", "question_mark")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape", "slash", "e", "y", "1", "4", "w", "g", "u", "f", "o", "Y", "F")
        go_on.set()
        await loaded(app, pilot)
        assert "HEALTHY" in bar(app, "title")


def test_the_first_screen_needs_neither_polars_nor_numpy() -> None:
    code = "import sys, rankscope.tui.app; print({'polars', 'numpy', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


async def test_an_error_while_loading_ends_the_app_and_is_raised() -> None:
    def load(progress: Callable[[ProgressLike], None]) -> tuple[Dataset, Analysis]:
        raise OSError("no such directory")

    app = RankscopeApp(load, "dumps", PLAIN)
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.failure is not None)
    assert isinstance(app.failure, OSError)
    assert app.return_code == 2


def test_run_raises_what_ended_the_app() -> None:
    def load(progress: Callable[[ProgressLike], None]) -> tuple[Dataset, Analysis]:
        raise OSError("no such directory")

    with pytest.raises(OSError, match="no such directory"):
        RankscopeApp(load, "dumps", PLAIN).run(headless=True)


def test_an_error_of_its_own_prints_no_pages(capfd: pytest.CaptureFixture[str]) -> None:
    class Broken(RankscopeApp):
        def action_help(self) -> None:
            raise RuntimeError("a bug")

    app = Broken(loads(*healthy()), "dumps", PLAIN)
    with pytest.raises(RuntimeError, match="a bug"):
        app.run(headless=True, auto_pilot=lambda pilot: pilot.press("question_mark"))
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
async def test_quit(key: str) -> None:
    async with opened(healthy()) as (app, pilot):
        await pilot.press(key)
        await pilot.pause()
        assert app.return_code == 0


async def test_nothing_to_show_is_shown() -> None:
    empty = JobBuilder(0).build()
    async with opened((empty, Analysis("nothing was found", "unknown"))) as (app, pilot):
        assert "UNKNOWN" in bar(app, "title")
        await press(app, pilot, *"jklhwntu0cfyYeF14", "enter", "plus", "g")


@pytest.mark.parametrize("palette", ["none", "256"])
async def test_no_color_is_obeyed_unless_colours_are_asked_for(
    palette: Palette, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened(hang(), options=ViewOptions(palette=palette)) as (app, pilot):
        for keys in ([], ["question_mark"], ["escape", "4"]):
            await press(app, pilot, *keys)
            styles = [style for strip in app.screen._compositor.render_strips() for _, style, _ in strip if style]
            coloured = [s for s in styles if any(c and not c.is_default for c in (s.color, s.bgcolor))]
            assert bool(coloured) == (palette == "256")


# Moving


async def test_lanes_are_walked_with_arrows_and_vi_keys() -> None:
    async with opened(hang(), ROOMY) as (app, pilot):
        for keys, wanted in (
            ("up", 4), ("k", 0), ("j", 4), ("down", 6), ("ctrl+end", 8), ("pageup", 0), ("pagedown", 8),
            ("ctrl+home", 0),
        ):  # fmt: skip
            await pilot.press(keys)
            assert rank(app) == wanted, keys


async def test_the_run_is_walked_in_both_directions() -> None:
    async with opened(hang()) as (app, pilot):
        board = board_of(app)
        start = board.unit
        for key, unit in (("h", start - 1), ("left", start - 2), ("l", start - 1), ("right", start)):
            await pilot.press(key)
            assert board.unit == unit
        await pilot.press("home")
        assert board.unit == 0
        await pilot.press("ctrl+right")
        assert board.unit == 1
        await pilot.press("ctrl+left", "shift+right")
        assert board.unit > 10
        await pilot.press("shift+left")
        assert board.unit == 0
        await pilot.press("end")
        assert board.unit == 31


async def test_zoom_keys() -> None:
    async with opened(hang()) as (app, pilot):
        board = board_of(app)
        for key, chars in (("plus", 4), ("equals_sign", 8), ("minus", 4), ("0", 2)):
            await pilot.press(key)
            assert board.view.chars == chars, key
        for name, chars in (("zoom_undo", 4), ("zoom_selection", 8)):
            await act(app, pilot, name)
            assert board.view.chars == chars, name
        await pilot.press("minus", "minus", "minus", "minus")
        assert board.view.chars == 2


async def test_unfolding() -> None:
    async with opened(hang(), ROOMY) as (app, pilot):
        await pilot.press("ctrl+end", "u")
        assert len(board_of(app).rows) == 12
        await pilot.press("u")
        assert len(board_of(app).rows) == 5
        await press(app, pilot, "g", "u")
        assert len(board_of(app).rows) == 16
        assert "16 ranks, rows" in bar(app, "status")


async def test_the_marker_measures() -> None:
    async with opened(hang()) as (app, pilot):
        await act(app, pilot, "marker")
        await pilot.press("h", "h", "h")
        assert "marker -3 steps" in bar(app, "status")
        await pilot.press("l", "l", "l")
        await act(app, pilot, "marker")
        assert "marker" not in bar(app, "status")


async def test_the_mouse_moves_the_cursor() -> None:
    async with opened(hang(), ROOMY) as (app, pilot):
        await pilot.click("#lanes", offset=(20, 1))
        assert rank(app) == 0
        await pilot.click("#lanes", offset=(2, 3))
        assert rank(app) == 6


# Findings


async def test_findings_are_walked() -> None:
    async with opened(hang()) as (app, pilot):
        count = len(app.lanes.boards.whole.analysis.findings)
        assert count > 1
        await pilot.press("n")
        assert f" 2/{count}" in bar(app, "title")
        await pilot.press("N", "N")
        assert f" {count}/{count}" in bar(app, "title")
        await pilot.press("n")
        assert f"sure: high  1/{count}" in bar(app, "title")
        assert rank(app) == 6


async def test_the_chain_leads_to_the_root() -> None:
    async with opened(hang(), ROOMY) as (app, pilot):
        await pilot.press("ctrl+home", "c")
        assert "rank 0 waits in _all_gather_base #21 for rank 6" in bar(app, "keys")
        assert rank(app) == 6
        await pilot.press("c")
        assert bar(app, "keys").strip() == "rank 6 waits for nobody: it is a root cause"
        await pilot.press("h")
        assert "? keys" in bar(app, "keys")


async def test_findings_drop_filters_that_hide_them() -> None:
    async with opened(hang()) as (app, pilot):
        await pilot.press("f")
        await type_text(app, "0-3")
        await press(app, pilot, "enter")
        assert board_of(app).model.ranks.tolist() == [0, 1, 2, 3]
        await press(app, pilot, "N", "n")
        assert rank(app) == 6
        assert not app.lanes.boards.wanted


async def test_the_chain_says_where_it_ends() -> None:
    async with opened(hang()) as (app, pilot):
        await press(app, pilot, ":", *"12", "enter", "c")
        assert "where the chain ends" in screen_text(app).splitlines()[-1]
        await press(app, pilot, "c")
        assert "waits for nobody" in screen_text(app).splitlines()[-1]
