"""Ways to find a function: words of the palette, keys in the bottom line, the mouse, views and their empty pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import OptionList

from rankscope.analysis import analyse
from rankscope.assemble.load import load
from rankscope.features.logs.page.messages_page import MessagesScreen
from rankscope.kinds.functions import function
from rankscope.kinds.view_kinds import TABS, VIEWS
from rankscope.tui.actions import ACTIONS, DETAIL_PANE, FOOTER, Hint, fitting, hint_line, lane_hints
from rankscope.tui.copies import FILE
from rankscope.tui.detail.screens.groups_page import GroupsScreen
from rankscope.tui.help_screen import HelpScreen
from rankscope.tui.popups import Choice, ChoiceScreen, found_choices
from tests.builders import JobBuilder
from tests.tui.drive import PLAIN, bar, board_of, opened, press, screen_text, settle
from tests.tui.jobs import hang, healthy

PALETTE = [Choice(f"{action.help}  ({action.display})", also=action.also) for action in ACTIONS]
PALETTE += [Choice(f"view {row.name}: {row.meaning}", also=row.also) for row in VIEWS.values()]


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("export", "write the report"), ("save", "write the report"), ("copy", "copy what is under"),
        ("logs", "view logs"), ("why", "why the rank"), ("theme", "theme:"), ("filter", "filter:"),
        ("group", "view groups"), ("find", "search: op"), ("undo", "back:"),
        ("quit", "quit"), ("help", "all keys"), ("stdout", "view logs"),
        ("w", "why the rank"), ("pyspy", "copy the commands"), ("marker", "set or remove a marker"),
        ("memory", "memory of each rank"), ("trigger", "ask the running job"), ("perfetto", "write all traces"),
    ],
)  # fmt: skip
def test_plain_words_find_an_action(typed: str, first: str) -> None:
    found = [PALETTE[at].text for at in found_choices(PALETTE, typed)]
    assert found
    assert any(text.startswith(first) for text in found[:3])


def test_a_word_that_nothing_has_finds_nothing() -> None:
    assert found_choices(PALETTE, "qqzz") == []
    assert found_choices(PALETTE, "") == list(range(len(PALETTE)))


def test_views_have_a_tab_each_and_say_how_to_be_filled() -> None:
    assert len({row.name for row in VIEWS.values()}) == len(VIEWS)
    assert {row.tab for row in VIEWS.values()} == set(TABS) == set(range(3, 8))
    dataset, analysis = healthy()
    pages: dict[str, Any] = {row.name: function(row.page) for row in VIEWS.values()}
    empty = {name for name, page in pages.items() if page.lacks_data(dataset, analysis)}
    assert {"logs", "stacks", "settings", "heat", "breakdown"} <= empty
    assert all(VIEWS[name].fill for name in empty - {"findings"})


@pytest.mark.parametrize("width", [20, 40, 60, 80, 200])
def test_the_important_keys_are_the_last_to_go(width: int) -> None:
    kept = fitting(DETAIL_PANE, width, ("question_mark", "q"))
    assert {"question_mark", "q"} <= {hint.key for hint in kept}
    line = hint_line(kept, width)
    assert len(line.plain.rstrip()) <= width
    assert [hint.what in line.plain for hint in kept] == [True] * len(kept)


def test_findings_and_help_come_before_rarer_keys() -> None:
    keys = {hint.key for hint in lane_hints(60, FOOTER, [Hint("escape", "esc", "show all")])}
    assert {"escape", "n", "w", "enter", "question_mark", "q"} <= keys
    assert {"n", "w", "enter", "slash", "e", "Y", "question_mark", "q"} == {hint.key for hint in lane_hints(80, FOOTER)}


async def test_the_bottom_line_follows_the_focus_the_search_and_the_filter() -> None:
    async with opened(hang()) as (app, pilot):
        assert "w why  enter open" in bar(app, "keys") and "Y copy command" in bar(app, "keys")
        await press(app, pilot, "tab")
        assert bar(app, "keys").startswith(" tab lanes  up down scroll")
        await press(app, pilot, "tab", "slash", *"all_reduce", "enter")
        assert "hits of 'all_reduce'; n next, N before, esc ends" in bar(app, "keys")
        await press(app, pilot, "n")
        assert "esc end search" in bar(app, "keys")
        await press(app, pilot, "slash", *"zzz", "enter")
        assert bar(app, "keys").startswith(" nothing has 'zzz': no op, group, rank")
        await press(app, pilot, "escape", "f", *"4-7", "enter")
        assert bar(app, "keys").strip() == "4 of 16 ranks shown; esc shows all"
        await press(app, pilot, "colon", "5", "enter")
        assert bar(app, "keys").startswith(" rank 5: lane 2 of 4") and "12 hidden (esc shows all)" in bar(app, "keys")
        await press(app, pilot, "j")
        assert bar(app, "keys").startswith(" esc show all")
        await press(app, pilot, "colon", "9", "enter")
        assert bar(app, "keys").strip() == "no rank 9 among the lanes (ranks 4-7); esc ends a filter"


async def test_the_mouse_presses_keys_opens_cells_and_spans_windows() -> None:
    async with opened(hang()) as (app, pilot):
        await pilot.click("#keys", offset=(bar(app, "keys").index("keys"), 0))
        await settle(app, pilot)
        assert isinstance(app.screen, HelpScreen)
        assert screen_text(app).splitlines()[1].startswith("| This view (lanes)")
        await press(app, pilot, "escape")
        await pilot.click("#overview", offset=(11, 0))
        assert board_of(app).unit <= 1
        lanes = app.lanes.lanes
        x = lanes.head.width
        await pilot.mouse_down("#lanes", offset=(x + 4, 2))
        await pilot.hover("#lanes", offset=(x + 10, 2))
        await pilot.mouse_up("#lanes", offset=(x + 10, 2))
        await settle(app, pilot)
        board = board_of(app)
        assert board.marker is not None and board.unit - board.marker == 3
        assert "ctrl+p, zoom: zooms to this window" in bar(app, "keys")
        await pilot.click("#lanes", offset=(x + 4, 2), times=2)
        await settle(app, pilot)
        assert app.lanes.is_covered


async def test_the_command_of_the_next_step_is_copied(tmp_path: Path) -> None:
    async with opened(hang(), options=replace(PLAIN, export_dir=tmp_path)) as (app, pilot):
        await press(app, pilot, "Y")
        assert bar(app, "keys").startswith(" copied: rankscope stacks -o dumps, also to")
        assert app.clipboard == "rankscope stacks -o dumps\n"
    assert (tmp_path / FILE).read_text() == "rankscope stacks -o dumps\n\n"
    async with opened(healthy()) as (app, pilot):
        await press(app, pilot, "Y")
        assert "names no command" in bar(app, "keys")


async def test_a_view_is_open_at_the_start_and_its_keys_are_found_by_name() -> None:
    async with opened(hang(), options=replace(PLAIN, view="groups"), at_start=GroupsScreen) as (app, pilot):
        await press(app, pilot, "question_mark")
        assert "This view (groups)" in screen_text(app)
        await press(app, pilot, "escape", "ctrl+p", *"all groups")
        assert isinstance(app.screen, ChoiceScreen)
        assert app.screen.query_one(OptionList).option_count == 1
        await press(app, pilot, "enter")
        assert not app.lanes.is_covered
        assert bar(app, "keys").strip() == "all 16 ranks shown"


async def test_logs_without_findings_open_on_their_view_with_the_verdict(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(
        "[rank1]:[I101 10:00:00.000000000 ProcessGroupNCCL.cpp:900] [PG 0 Rank 1] ProcessGroupNCCL initialization"
        " options: size: 4, global rank: 1, TIMEOUT(ms): 600000\n"
    )
    dataset = load([log])
    analysis = analyse(dataset)
    assert not analysis.findings and dataset.source_noun == "logs"
    async with opened((dataset, analysis), at_start=MessagesScreen) as (app, pilot):
        assert "no failure in these logs" in screen_text(app)
        await press(app, pilot, "escape")
        assert " in logs" in bar(app, "title") and "0 ranks" not in bar(app, "title")


def test_ranks_are_counted_as_the_only_source_knows_them() -> None:
    job = JobBuilder(4)
    job.collective()
    dataset = job.build()
    assert (dataset.source_noun, dataset.told_ranks) == ("", (0, 1, 2, 3))
