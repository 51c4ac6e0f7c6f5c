"""What keys do on the screens, and what the screens dismiss with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from textual import events
from textual.pilot import Pilot

from rankscope.report.words import under_causes
from rankscope.tui.detail.line_widgets import LineList, Lines
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.screens.files_page import FilesScreen
from rankscope.tui.detail.screens.findings_page import FindingsScreen
from rankscope.tui.detail.screens.groups_page import GroupsScreen
from rankscope.tui.detail.screens.member_page import MemberScreen
from rankscope.tui.detail.screens.page import Page
from rankscope.tui.options import ViewOptions
from rankscope.tui.selection import GroupFilter, Selection
from tests.builders import JobBuilder
from tests.tui.detail.goldens import absent, present
from tests.tui.detail.samples import CULPRIT, DP, FORWARD, LAST_SEQ, QUIET, STUCK, TP, hang, large
from tests.tui.detail.show import UNSET, OneScreen, opened, screen_text


def member(options: ViewOptions | None = None) -> MemberScreen:
    dataset, analysis = hang()
    return MemberScreen(dataset, analysis, absent(), options)


async def result_of(page: Page, *keys: str) -> Any:
    """What a screen dismisses with after some keys."""
    async with opened(page) as (app, pilot):
        await pilot.press(*keys)
        await pilot.pause()
        return app.result


async def bottom(app: OneScreen, pilot: Pilot[None], *keys: str) -> str:
    """The last line of the screen after some keys."""
    await pilot.press(*keys)
    await pilot.pause()
    return screen_text(app).splitlines()[-1].strip()


async def test_a_member_is_gone_to() -> None:
    dataset, _ = hang()
    assert await result_of(member(), "enter") == replace(absent(), finding=0)
    there = await result_of(member(), "down", "u", "down", "down", "enter")
    assert there == present(dataset, 5, TP, LAST_SEQ)


async def test_back_goes_nowhere_and_q_quits() -> None:
    assert await result_of(member(), "escape") is None
    dataset, analysis = hang()
    assert await result_of(FindingsScreen(dataset, analysis), "escape") is None
    async with opened(member()) as (app, pilot):
        await pilot.press("q")
        assert app.return_code == 0 and not app.is_running


async def test_folds_open_and_close() -> None:
    async with opened(member()) as (app, pilot):
        listing = app.screen.query_one("#members", LineList)
        await pilot.press("j", "enter")
        assert listing.count == 5
        await pilot.press("j", "j", "u")
        await pilot.pause()
        assert (listing.count, listing.cursor) == (2, 1)


async def test_members_are_found_by_rank_and_by_state() -> None:
    async with opened(member()) as (app, pilot):
        listing = app.screen.query_one("#members", LineList)
        await pilot.press("slash", *"4-5", "enter")
        await pilot.pause()
        assert listing.count == 2
        assert "only '4-5'" in screen_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert listing.count == 2
        assert "only" not in screen_text(app)
        await pilot.press("slash", *"never", "enter")
        await pilot.pause()
        assert listing.count == 1
        await pilot.press("slash", "escape", "enter")
        await pilot.pause()
        assert isinstance(app.result, Selection)


async def test_nothing_is_chosen_where_nothing_was_found() -> None:
    async with opened(member()) as (app, pilot):
        await pilot.press("slash", *"zzz", "enter", "enter", "u", "o")
        await pilot.pause()
        assert app.result is UNSET
        assert app.screen.query_one("#members", LineList).count == 0


async def test_a_line_of_the_tree_goes_to_its_first_rank() -> None:
    result = await result_of(member(), "tab", "enter")
    assert (result.rank, result.seq) == (4, LAST_SEQ)


async def test_the_keys_of_the_other_pane_are_not_offered() -> None:
    async with opened(member()) as (app, pilot):
        assert "unfold" in await bottom(app, pilot)
        assert "g show" not in await bottom(app, pilot)
        keys = await bottom(app, pilot, "tab")
        assert "g show" in keys
        assert "unfold" not in keys
        await pilot.press("g")
        await pilot.pause()
        assert "i  frames of torch" in screen_text(app)


async def test_internals_are_shown_when_asked_for() -> None:
    async with opened(member(), (130, 24)) as (app, pilot):
        await pilot.press("tab")
        assert "_call_impl" not in screen_text(app)
        await pilot.press("g", "i")
        await pilot.pause()
        assert "_call_impl" in screen_text(app)


async def test_a_source_that_is_not_here_is_said() -> None:
    async with opened(member()) as (app, pilot):
        assert await bottom(app, pilot, "o") == "not here: /app/model/attention.py:211 (see --path-map)"
        assert await bottom(app, pilot, "tab", "h", "o") == "not here: /app/main.py:120 (see --path-map)"
        assert "enter" in await bottom(app, pilot, "k")


async def test_a_source_that_is_here_goes_to_the_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "attention.py").write_text("pass\n")
    ran: list[list[str]] = []
    monkeypatch.setenv("VISUAL", "ed")
    monkeypatch.setattr("rankscope.tui.detail.screens.page.subprocess.run", lambda command, **_: ran.append(command))
    monkeypatch.setattr(OneScreen, "suspend", _suspended)
    async with opened(member(ViewOptions(path_map=(("/app", str(tmp_path)),)))) as (_, pilot):
        await pilot.press("o")
    assert ran == [["ed", "+211", str(tmp_path / "model" / "attention.py")]]


class _suspended:  # noqa: N801
    """Stands in for `App.suspend`, which needs a terminal."""

    def __init__(self, _app: object = None) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


async def test_an_editor_that_cannot_start_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "attention.py").write_text("pass\n")
    options = ViewOptions(path_map=(("/app", str(tmp_path)),))
    monkeypatch.setenv("VISUAL", "ed")
    async with opened(member(options)) as (app, pilot):
        assert "cannot be handed" in await bottom(app, pilot, "o")
    monkeypatch.setattr(OneScreen, "suspend", _suspended)
    monkeypatch.setenv("VISUAL", "/nowhere/editor")
    async with opened(member(options)) as (app, pilot):
        assert "did not start" in await bottom(app, pilot, "o")


async def test_a_rank_without_an_operation_here_shows_its_last_one() -> None:
    dataset, analysis = hang()
    async with opened(MemberScreen(dataset, analysis, Selection(7))) as (app, _):
        assert "#5 all_reduce" in screen_text(app).splitlines()[0]
    async with opened(MemberScreen(dataset, analysis, Selection(2))) as (app, pilot):
        assert "no operation here" in screen_text(app)
        await pilot.press("enter", "u", "o", "tab", "j", "o", "g", "i", "l")
        assert app.result is UNSET


async def test_both_sides_of_a_send_are_members() -> None:
    job = JobBuilder(3)
    job.p2p("0", 0, 1, "send", state="scheduled")
    dataset = job.build()
    sent = OpIndex(dataset).last_operation(0)
    async with opened(MemberScreen(dataset, STUCK, sent)) as (app, pilot):
        text = screen_text(app)
        assert "1 of 2 issued it, 1 never issued" in text
        await pilot.press("enter")
        await pilot.pause()
        assert app.result == replace(sent, rank=1, row=None, absence="never issued")


async def test_a_finding_is_gone_to_by_its_number() -> None:
    dataset, analysis = hang()
    assert await result_of(FindingsScreen(dataset, analysis), "end", "enter") == under_causes(analysis)[-1]
    assert await result_of(FindingsScreen(dataset, analysis, index=1), "enter") == 1
    assert await result_of(FindingsScreen(dataset, analysis), "slash", *"blocked", "enter", "enter") == 2
    assert await result_of(FindingsScreen(dataset, QUIET), "enter") is UNSET


async def test_the_text_of_a_finding_is_scrolled_by_the_same_keys() -> None:
    dataset, analysis = hang()
    async with opened(FindingsScreen(dataset, analysis)) as (app, pilot):
        text = app.screen.query_one("#text", Lines)
        await pilot.press("tab", "j", "j")
        assert text.top == 2
        await pilot.press("end")
        assert text.top == text.count - text.size.height
        await pilot.press("home")
        assert text.top == 0
        assert app.screen.query_one("#list", LineList).cursor == 0


async def test_the_mouse_scrolls_a_text_and_leaves_the_cursor_of_a_list_where_it_is() -> None:
    dataset, analysis = hang()
    async with opened(FindingsScreen(dataset, analysis)) as (app, pilot):
        text = app.screen.query_one("#text", Lines)
        for kind, top in ((events.MouseScrollDown, 2), (events.MouseScrollUp, 0), (events.MouseScrollUp, 0)):
            text.post_message(kind(text, 1, 1, 0, 1, 0, shift=False, meta=False, ctrl=False))
            await pilot.pause()
            assert text.top == top
        assert app.screen.query_one("#list", LineList).cursor == 0


async def test_a_file_goes_to_the_last_operation_of_its_rank() -> None:
    dataset, analysis = hang()
    last = OpIndex(dataset).last_operation(5)
    assert await result_of(FilesScreen(dataset, analysis), "slash", "5", "enter", "enter") == last
    assert await result_of(FilesScreen(dataset, analysis), "enter") == OpIndex(dataset).last_operation(0)


async def test_a_file_that_was_not_read_goes_nowhere() -> None:
    dataset, analysis = hang()
    problem = pl.when(pl.col("rank") == 7).then(pl.lit("it is empty")).alias("problem")
    broken = replace(dataset, files=dataset.files.with_columns(problem, used=pl.col("rank") != 7))
    async with opened(FilesScreen(broken, analysis)) as (app, pilot):
        first = screen_text(app).splitlines()[2]
        assert first.startswith(">!")
        assert first.endswith("it is empty")
        assert "1 not read" in screen_text(app)
        assert "no operation of this file" in await bottom(app, pilot, "enter")
        assert app.result is UNSET
        await pilot.press("slash", *"EMPTY", "enter")
        await pilot.pause()
        assert app.screen.query_one("#list", LineList).count == 1


async def test_a_group_goes_to_where_it_parts() -> None:
    dataset, analysis = hang()
    stuck = replace(absent(), finding=None)
    assert await result_of(GroupsScreen(dataset, analysis), "enter") == GroupFilter(TP, stuck)
    assert await result_of(GroupsScreen(dataset, analysis), "g", "p") == stuck
    assert await result_of(GroupsScreen(dataset, analysis), "g", "a") == GroupFilter(None)
    followed = await result_of(GroupsScreen(dataset, analysis), "j", "enter")
    assert followed == GroupFilter(DP, Selection(4, None, DP, LAST_SEQ, absence="never issued"))
    assert await result_of(GroupsScreen(dataset, analysis), "end", "enter") == GroupFilter(0, Selection(0, group=0))


async def test_groups_are_found_by_name_and_by_rank() -> None:
    dataset, analysis = hang()
    async with opened(GroupsScreen(dataset, analysis)) as (app, pilot):
        listing = app.screen.query_one("#list", LineList)
        for typed, count in (("model", 1), ("5", 2), ("nothing", 0)):
            await pilot.press("slash", *typed, "enter")
            await pilot.pause()
            assert listing.count == count
            await pilot.press("escape")


@pytest.mark.parametrize("size", [(20, 6), (40, 10), (300, 100)])
async def test_screens_of_any_size_do_not_fail(size: tuple[int, int]) -> None:
    dataset, analysis = hang()
    for page in (
        member(), FindingsScreen(dataset, analysis), FilesScreen(dataset, analysis), GroupsScreen(dataset, analysis),
    ):  # fmt: skip
        async with opened(page, size) as (app, pilot):
            await pilot.press("j", "tab", "j", "end", "home", "pagedown")
            await pilot.resize_terminal(90, 30)
            await pilot.pause()
            assert screen_text(app).strip()


async def test_many_ranks_open_and_scroll() -> None:
    dataset = large(16_384, absent=(77,))
    page = MemberScreen(dataset, STUCK, Selection(77, None, 0, 2, absence="never issued"))
    async with opened(page) as (app, pilot):
        await pilot.press("j", "enter", "end")
        await pilot.pause()
        assert app.screen.query_one("#members", LineList).count == 16_385
        assert "16383" in screen_text(app)
        await pilot.press("enter")
        await pilot.pause()
        assert app.result.rank == 16_383


def test_the_sample_has_the_frame_the_tests_look_for() -> None:
    assert FORWARD[0][1:] == ("/app/model/attention.py", 211)
    assert CULPRIT in hang()[1].culprits
