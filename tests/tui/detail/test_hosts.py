"""Stacks of hosts as trees, and the keys of their screen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from rankscope.analysis.host_stacks import host_stacks
from rankscope.features.stacks.hosts_page import HostsScreen, host_forest
from rankscope.tui.detail.line_widgets import LineList
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.selection_facts import look_up
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import Selection
from tests.analysis.hosts import LEAVE, REDUCE
from tests.builders import JobBuilder
from tests.tui.detail.samples import CULPRIT, QUIET, hang, hostile, looked
from tests.tui.detail.show import UNSET, OneScreen, opened, screen_text
from tests.tui.detail.test_screens import _suspended


def hosts(options: ViewOptions | None = None) -> HostsScreen:
    return HostsScreen(*looked(), options)


def test_ranks_at_one_place_share_a_line() -> None:
    job = JobBuilder(300)
    for rank in range(300):
        job.thread(rank, LEAVE if rank == 7 else REDUCE, gil=rank == 7)
    lines = [tree.parts.plain for tree in host_forest(host_stacks(job.build()).values(), 100)]
    assert lines[0] == "300 ranks, main thread"
    assert sum("(in all_reduce)" in line for line in lines) == 1
    assert lines[-1].endswith("cleanup train.py:55 > (in destroy_process_group) > (holds the GIL)")
    assert "x299 [0-6,8-299]" in lines[1]


@pytest.mark.parametrize("width", [1, 12, 80, 300])
def test_trees_of_any_width_have_every_rank(width: int) -> None:
    found = host_forest(host_stacks(looked()[0]).values(), width, everything=True, internals=True)
    assert {rank for tree in found for rank in tree.ranks} == set(range(7))


async def test_all_threads_and_internals_are_shown_when_asked_for() -> None:
    async with opened(hosts()) as (app, pilot):
        assert "pin_memory" not in screen_text(app)
        assert "take_gil" not in screen_text(app)
        await pilot.press("g", "a", "g", "i")
        await pilot.pause()
        assert "7 ranks, Thread-# (pin_memory)" in screen_text(app)
        assert "take_gil python3.11" in screen_text(app)
        await pilot.press("g", "a", "g", "i")
        await pilot.pause()
        assert "pin_memory" not in screen_text(app)


async def test_the_holder_of_the_gil_is_marked() -> None:
    async with opened(hosts()) as (app, _):
        text = screen_text(app)
        assert "1 rank, another thread, which holds the GIL" in text
        assert "(running) > (holds the GIL)" in text


async def test_a_rank_is_gone_to() -> None:
    async with opened(hosts()) as (app, pilot):
        await pilot.press("end", "g", "r")
        await pilot.pause()
        assert (app.result.rank, app.result.seq) == (CULPRIT, 4)


async def test_hosts_are_found_by_rank_and_by_function() -> None:
    async with opened(hosts()) as (app, pilot):
        listing = app.screen.query_one("#tree", LineList)
        await pilot.press("slash", *"3", "enter")
        await pilot.pause()
        assert "x1 [3]" in screen_text(app)
        assert "x1 [6]" not in screen_text(app)
        await pilot.press("slash", "backspace", *"flush", "enter")
        await pilot.pause()
        assert listing.count > 1
        await pilot.press("escape", "slash", *"nowhere", "enter", "enter", "g", "r", "o", "l")
        await pilot.pause()
        assert "nothing here has" in screen_text(app)
        assert app.result is UNSET


async def test_the_source_of_a_frame_is_opened_also_from_a_remark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sink.py").write_text("pass\n")
    ran: list[list[str]] = []
    monkeypatch.setenv("VISUAL", "ed")
    monkeypatch.setattr("rankscope.tui.detail.screens.page.subprocess.run", lambda command, **_: ran.append(command))
    monkeypatch.setattr(OneScreen, "suspend", _suspended)
    async with opened(hosts(ViewOptions(path_map=(("/app/log", str(tmp_path)),)))) as (_, pilot):
        await pilot.press("end", "enter", "h", "o")
    assert ran == [["ed", "+9", str(tmp_path / "sink.py")]] * 2


async def test_without_a_look_the_screen_says_how_to_get_one() -> None:
    async with opened(HostsScreen(*hang())) as (app, pilot):
        assert "no stacks loaded: run rankscope stacks" in screen_text(app)
        assert "--native --pid PID > py-spy_rank_N.txt" in screen_text(app)
        await pilot.press("enter", "o", "g", "a", "g", "i", "l", "escape")
        await pilot.pause()
        assert app.result is None


@pytest.mark.parametrize("size", [(20, 5), (80, 24), (300, 90)])
async def test_the_screen_of_any_size_does_not_fail(size: tuple[int, int]) -> None:
    for job in (looked(), hostile(), (JobBuilder(1).build(), QUIET)):
        async with opened(HostsScreen(*job), size) as (app, pilot):
            await pilot.press("g", "a", "g", "i", "down", "right", "left", "end", "tab", "tab")
            await pilot.pause()
            assert "\x1b" not in screen_text(app)


def test_the_dump_of_the_recorder_comes_before_that_of_py_spy() -> None:
    dataset, analysis = looked()
    renamed = pl.when(pl.col("kind") == "py-spy").then(pl.format("a_{}", "rank")).otherwise("path")
    files = dataset.files.with_columns(path=renamed).sort("path")
    detail = look_up(OpIndex(replace(dataset, files=files)), analysis, Selection(CULPRIT))
    assert [path for path, _ in detail.files] == [f"nccl_trace_rank_{CULPRIT}", f"a_{CULPRIT}"]
