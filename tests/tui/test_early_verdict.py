"""An early verdict is on the screen while the rest is read; the whole takes its place and says if it differs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.read_parts import shortened
from rankscope.schema import Dataset, ReadParts
from rankscope.tui.app import RankscopeApp
from rankscope.tui.options import ProgressLike
from tests.tui.drive import LONGEST_S, PLAIN, bar, loaded, loads, screen_text, settle, until
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
        assert "? help" in told and "reading the rest" not in told
