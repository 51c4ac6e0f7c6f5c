"""An early verdict is on the screen while the rest is read; the whole takes its place and says if it differs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import polars as pl

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.read_parts import shortened
from rankscope.schema import Dataset, ReadParts
from rankscope.tui.app import RankscopeApp
from rankscope.tui.detail.screens.member_page import MemberScreen
from rankscope.tui.options import ProgressLike
from tests.features.traces.page.jobs import traced
from tests.tui.drive import LONGEST_S, PLAIN, bar, loaded, loads, screen_text, settle, until, workers_done
from tests.tui.jobs import hang, healthy

Job = tuple[Dataset, Analysis]


def ends(job: Job) -> Job:
    """The last entries of each rank of a job."""
    dataset = job[0]
    part = ReadParts("the last 4 entries of each dump", cuts_rings=True, whole_follows=True)
    last = replace(dataset, ops=dataset.ops.group_by("rank", maintain_order=True).tail(4), parts=part)
    return last, analyse(last)


async def test_the_whole_takes_the_place_of_the_last_entries() -> None:
    go = threading.Event()
    early, whole = ends(hang()), hang()

    def rest(_: Callable[[ProgressLike], None]) -> Job:
        assert go.wait(LONGEST_S)
        return whole

    app = RankscopeApp(loads(*early), "dumps", PLAIN, rest=rest)
    async with app.run_test(size=(100, 30)) as pilot:
        try:
            said = "only the last 4 entries of each dump, reading the rest ..."
            await until(pilot, lambda: said in screen_text(app))
            assert "rank 6" in screen_text(app)
            assert app.lanes.boards.whole.dataset.ops.height == early[0].ops.height
        finally:
            go.set()
        await settle(app, pilot)
        assert app.lanes.boards.whole.dataset.ops.height == whole[0].ops.height
        assert "entries of each dump" not in screen_text(app)
        assert "before:" not in screen_text(app), "the verdict is the same"


async def test_another_verdict_says_so() -> None:
    app = RankscopeApp(loads(*ends(healthy(16, 10))), "dumps", PLAIN, rest=loads(*hang()))
    async with app.run_test(size=(120, 30)) as pilot:
        await loaded(app, pilot)
        assert "all files are read, and the verdict is another one; before: " in bar(app, "keys")
        assert "rank 6" in screen_text(app)


async def test_a_rest_that_cannot_be_read_is_told() -> None:
    def broken(_: Callable[[ProgressLike], None]) -> Job:
        raise OSError("the disk is gone")

    app = RankscopeApp(loads(*ends(hang())), "dumps", PLAIN, rest=broken)
    async with app.run_test(size=(100, 30)) as pilot:
        await loaded(app, pilot)
        assert "the rest of the files was not read: OSError: the disk is gone" in bar(app, "keys")
        await pilot.press("j")
        assert "only the last 4 entries of each dump" in bar(app, "keys")
        assert "reading the rest" not in bar(app, "keys")


async def test_a_job_larger_than_the_memory_says_so() -> None:
    dataset, _ = ends(hang())
    part = replace(dataset, parts=shortened(ReadParts(), 4))
    app = RankscopeApp(loads(part, analyse(part)), "dumps", PLAIN)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        told = bar(app, "keys")
        assert "only the last 4 entries of each dump, as memory is short" in told
        assert "? keys" in told and "reading the rest" not in told


async def test_an_open_view_says_that_it_still_loads_and_is_filled_when_all_is_there() -> None:
    go = threading.Event()
    early = replace(traced()[0], traces=traced()[0].traces.with_columns(detail=pl.lit("collectives")))
    early = replace(early, parts=ReadParts(whole_follows=True))

    def rest(_: Callable[[ProgressLike], None]) -> Job:
        assert go.wait(LONGEST_S)
        return traced()

    app = RankscopeApp(loads(early, analyse(early)), "traces", PLAIN, rest=rest)
    async with app.run_test(size=(100, 30)) as pilot:
        try:
            await until(pilot, lambda: "reading the rest ..." in screen_text(app))
            assert "its work in that time is not read yet" in app.lanes.boards.whole.analysis.verdict
            app.lanes.open_view("breakdown")
            await pilot.pause()
            assert "still loading" in screen_text(app) and "0%" not in screen_text(app)
            app.lanes.open_view("path")
            await pilot.pause()
            assert "no path of a step is known yet: the rest of the files is being read" in screen_text(app)
        finally:
            go.set()
        await until(pilot, lambda: "what the length of each step comes from" in screen_text(app))
        assert "still loading" not in screen_text(app)


async def test_a_choice_is_made_in_the_data_that_it_was_offered_for() -> None:
    go = threading.Event()

    def rest(_: Callable[[ProgressLike], None]) -> Job:
        assert go.wait(LONGEST_S)
        return hang()

    app = RankscopeApp(loads(*ends(hang())), "dumps", PLAIN, rest=rest)
    async with app.run_test(size=(100, 30)) as pilot:
        try:
            await until(pilot, lambda: "reading the rest ..." in screen_text(app))
            await pilot.press("2", "enter")
            assert isinstance(app.screen, MemberScreen)
        finally:
            go.set()
        await until(pilot, lambda: all(worker.is_finished for worker in app.workers))
        await pilot.pause()
        assert app.lanes.boards.whole.is_partial, "the page tells of operations by their rows in the part"
        await pilot.press("escape")
        await until(pilot, lambda: not app.lanes.boards.whole.is_partial)


async def test_a_page_that_is_opened_over_another_one_gets_the_whole_job() -> None:
    go = threading.Event()

    def rest(_: Callable[[ProgressLike], None]) -> Job:
        assert go.wait(LONGEST_S)
        return hang()

    app = RankscopeApp(loads(*ends(hang())), "dumps", PLAIN, rest=rest)
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.screen is not app.opening)
        await pilot.press("3")
        assert isinstance(app.screen, MemberScreen)
        go.set()
        await workers_done(app)
        await pilot.pause()
        await pilot.press("4")
        await until(pilot, lambda: "still loading" not in screen_text(app) and " 16 " in screen_text(app))
        await pilot.press("1")
        await settle(app, pilot)
        assert not app.lanes.boards.whole.is_partial and app.lanes.findings.at_verdict
