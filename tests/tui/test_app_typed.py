"""What is typed, filtered, opened and written, by keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Event

import polars as pl
import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.kinds.functions import function
from rankscope.kinds.view_kinds import VIEWS
from rankscope.schema import Dataset
from rankscope.tui.app import RankscopeApp
from rankscope.tui.copies import FILE
from rankscope.tui.detail import pane
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.screens.findings_page import FindingsScreen
from rankscope.tui.detail.screens.groups_page import GroupsScreen
from rankscope.tui.detail.selection_facts import Detail, look_up
from rankscope.tui.help_screen import HelpScreen
from rankscope.tui.options import ViewOptions
from rankscope.tui.popups import ChoiceScreen
from rankscope.tui.selection import Selection
from tests.builders import JobBuilder
from tests.tui.drive import LONGEST_S, PLAIN, bar, board_of, opened, press, screen_text, settle, until
from tests.tui.jobs import hang, healthy, step


def rank(app: RankscopeApp) -> int:
    selection = board_of(app).selection
    assert selection is not None
    return selection.rank


async def type_text(app: RankscopeApp, text: str) -> None:
    app.screen.query_one(Input).value = text


# Axes and orders


async def test_the_axis_of_time_and_back() -> None:
    async with opened(hang()) as (app, pilot):
        await press(app, pilot, "t")
        assert board_of(app).view.kind == "time"
        assert "|22:13:20" in screen_text(app)
        assert "clocks" in bar(app, "status")
        assert rank(app) == 6
        await press(app, pilot, "f")
        await type_text(app, "0-7")
        await press(app, pilot, "enter")
        assert board_of(app).view.kind == "time"
        await press(app, pilot, "t")
        assert board_of(app).view.kind == "sequence"
        await press(app, pilot, "t")
        assert board_of(app).view.kind == "time"


async def test_without_times_the_sequence_stays() -> None:
    dataset, analysis = healthy()
    none = [pl.lit(None, pl.Int64).alias(name) for name in ("created_ns", "started_ns", "completed_ns")]
    bare = replace(dataset, ops=dataset.ops.with_columns(none))
    async with opened((bare, analysis)) as (app, pilot):
        await press(app, pilot, "t")
        assert board_of(app).view.kind == "sequence"
        assert "no times were recorded" in bar(app, "keys")


async def test_orders_are_chosen_from_a_menu_that_lacks_the_present_one() -> None:
    async with opened(hang(), size=(80, 30)) as (app, pilot):
        seen = []
        for letter in "dghar":
            await press(app, pilot, "g")
            assert ("rows by rank" in screen_text(app)) == (board_of(app).ordering != "rank")
            await press(app, pilot, letter)
            seen.append(bar(app, "keys").strip())
        assert seen == [
            "lanes by distance from the root", "lanes by process group", "lanes by host",
            "lanes culprits first, then alike",
            "lanes by rank",
        ]  # fmt: skip
        assert rank(app) == 6


# What is typed


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("3", (3, 31)), ("rank 12", (12, 31)), ("@5", (6, 5)), ("#4", (6, 9))],
)
async def test_going_somewhere(text: str, wanted: tuple[int, int]) -> None:
    async with opened(hang()) as (app, pilot):
        await pilot.press("end", "h", "colon")
        await type_text(app, text)
        await press(app, pilot, "enter")
        expected_unit = wanted[1] if wanted[1] != 31 else 30
        assert (rank(app), board_of(app).unit) == (wanted[0], expected_unit)


@pytest.mark.parametrize(
    ("text", "says"),
    [("99", "no rank 99"), ("#999", "no collective #999"), ("xyz", "type "), ("22:13:20", "need the time axis")],
)
async def test_going_nowhere_says_why(text: str, says: str) -> None:
    async with opened(hang()) as (app, pilot):
        await pilot.press("colon")
        await type_text(app, text)
        await press(app, pilot, "enter")
        assert says in bar(app, "keys")
        assert rank(app) == 6


async def test_going_to_a_time() -> None:
    async with opened(hang()) as (app, pilot):
        await press(app, pilot, "t", "colon")
        await type_text(app, "22:13:20.005")
        await press(app, pilot, "enter")
        assert board_of(app).unit == 1_700_000_000_005_000_000
        await press(app, pilot, "colon")
        await type_text(app, "+2ms")
        await press(app, pilot, "enter")
        assert board_of(app).unit == 1_700_000_000_007_000_000


async def test_searching_and_walking_hits() -> None:
    async with opened(hang()) as (app, pilot):
        await pilot.press("slash", *"rank", "space", *"9", "space", *"scatter", "enter")
        await settle(app, pilot)
        assert "find 'rank 9 scatter': 1/10" in bar(app, "status")
        assert rank(app) == 9
        column = board_of(app).unit
        await pilot.press("n")
        assert board_of(app).unit == column + 3
        await pilot.press("N", "N")
        assert "10/10" in bar(app, "status")
        await pilot.press("escape")
        assert "find" not in bar(app, "status")
        await pilot.press("n")
        assert " 2/3" in bar(app, "title"), "the next finding"


async def test_searching_for_what_is_not_there() -> None:
    async with opened(hang()) as (app, pilot):
        await pilot.press("slash", *"nothing", "enter")
        await settle(app, pilot)
        assert "find 'nothing': nothing" in bar(app, "status")
        await pilot.press("n", "escape")
        assert rank(app) == 6


async def test_giving_up_a_prompt_changes_nothing() -> None:
    async with opened(hang()) as (app, pilot):
        await pilot.press("colon", "3", "escape")
        await settle(app, pilot)
        assert rank(app) == 6
        assert app.focused is app.lanes.lanes
        assert not app.screen.query(Input)


# Filters


async def test_filtering_ranks() -> None:
    async with opened(hang()) as (app, pilot):
        await pilot.press("f", *"4-7,12", "enter")
        await settle(app, pilot)
        assert board_of(app).model.ranks.tolist() == [4, 5, 6, 7, 12]
        assert "only ranks 4-7,12" in bar(app, "status")
        await pilot.press("escape")
        assert len(board_of(app).model.ranks) == 16


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("abc", "'abc' is no rank, group, operation or state"), ("400", "no rank up to 15"),
        ("0-x", "not a list of ranks: 0-x"), ("group abc", "no group is called 'abc'"), ("3 group", "which group?"),
    ],
)  # fmt: skip
async def test_filters_that_make_no_sense_are_refused(text: str, says: str) -> None:
    async with opened(hang()) as (app, pilot):
        await pilot.press("f", *text, "enter")
        await settle(app, pilot)
        assert says in bar(app, "keys")
        assert len(board_of(app).model.ranks) == 16


async def test_filtering_by_group() -> None:
    async with opened(hang()) as (app, pilot):
        await press(app, pilot, "f", *"group tp1", "enter")
        assert board_of(app).model.ranks.tolist() == [4, 5, 6, 7]
        assert "only group TENSOR_PARALLEL_1" in bar(app, "status")
        assert bar(app, "keys").strip() == "4 of 16 ranks shown; esc shows all"
        await press(app, pilot, "f", "enter")
        assert bar(app, "keys").strip() == "all 16 ranks shown"
        await press(app, pilot, "4", "slash", *"l_1", "enter", "enter")
        assert not app.lanes.is_covered
        assert board_of(app).model.ranks.tolist() == [4, 5, 6, 7]
        await press(app, pilot, "4", "g", "a")
        assert bar(app, "keys").strip() == "all 16 ranks shown"


async def test_filtering_by_operation_and_state() -> None:
    async with opened(hang()) as (app, pilot):
        await press(app, pilot, "f", *"pending", "enter")
        assert board_of(app).model.ranks.tolist() == [0, 1, 2, 3, 4, 5, *range(7, 16)]
        await pilot.press("f")
        await type_text(app, "0-7 ALL_GATHER pending")
        await press(app, pilot, "enter")
        assert board_of(app).model.ranks.tolist() == [0, 1, 2, 3]
        assert "only ranks 0-7, all_gather, pending" in bar(app, "status")
        await press(app, pilot, "f", *"send", "enter")
        assert "nothing is left with send" in bar(app, "keys")
        assert board_of(app).model.ranks.tolist() == [0, 1, 2, 3]


async def test_a_list_of_choices_is_walked_with_arrows() -> None:
    async with opened(hang(), size=(80, 30)) as (app, pilot):
        await press(app, pilot, "g")
        assert "rows by process group" in screen_text(app)
        await press(app, pilot, "down", "down", "up", "enter")
        assert bar(app, "keys").strip() == "lanes by process group"
        await press(app, pilot, "g", "escape")
        assert not isinstance(app.screen, ChoiceScreen)


# Other screens and what goes out


async def test_help_is_opened_and_closed() -> None:
    async with opened(hang()) as (app, pilot):
        await pilot.press("question_mark")
        assert "next finding" in screen_text(app)
        await pilot.press("j", "k", "escape")
        assert app.screen is app.lanes
        await pilot.press("question_mark", "question_mark")
        assert app.screen is app.lanes


@pytest.mark.parametrize(
    ("words", "does"),
    [("start of the run", "unit"), ("zoom in", "chars"), ("unfold or fold all", "rows"), ("all keys", "help")],
)
async def test_the_command_palette_runs_actions(words: str, does: str) -> None:
    async with opened(hang()) as (app, pilot):
        await pilot.press("ctrl+p")
        await type_text(app, words)
        await press(app, pilot, "enter")
        board = board_of(app)
        done = {
            "unit": board.unit == 0, "chars": board.view.chars == 4, "rows": len(board.rows) == 16,
            "help": isinstance(app.screen, HelpScreen),
        }  # fmt: skip
        assert [name for name, value in done.items() if value] == [does]


async def test_members_and_views_open_and_close() -> None:
    async with opened(hang()) as (app, pilot):
        for key, page in (("enter", "FindingsScreen"), ("j", ""), ("enter", "MemberScreen")):
            await press(app, pilot, key)
            if page:
                assert type(app.screen).__name__ == page
                await press(app, pilot, "escape")
            assert app.screen is app.lanes
        for row in VIEWS.values():
            app.lanes.open_view(row.name)
            await settle(app, pilot)
            assert (type(app.screen), getattr(app.screen, "VIEW", "")) == (function(row.page), row.name)
            await press(app, pilot, "escape")
            assert not app.lanes.is_covered


async def test_the_keys_of_tabs_go_through_the_views_that_have_data() -> None:
    async with opened(hang()) as (app, pilot):
        assert " ".join(bar(app, "tabs").split()) == "1 verdict 2 lanes 3 stacks 4 groups 7 evidence"
        seen = []
        for key in "4443771":
            await press(app, pilot, key)
            seen.append(getattr(app.screen, "title_text", "lanes"))
        assert seen == ["groups", "mesh", "groups", "members", "findings", "files", "lanes"]
        assert bar(app, "status").startswith("- why -")
        await press(app, pilot, "7", "2")
        assert not app.lanes.is_covered and bar(app, "status").startswith("- detail -")
        await press(app, pilot, "6")
        assert not app.lanes.is_covered
        assert bar(app, "keys").strip() == "no data for state"


async def test_the_findings_are_exported(tmp_path: Path) -> None:
    def export(dataset: Dataset, analysis: Analysis, folder: Path) -> Path:
        path = folder / "findings.md"
        path.write_text(analysis.verdict)
        return path

    async with opened(hang(), options=replace(PLAIN, exports={"Markdown": export}, export_dir=tmp_path)) as (
        app,
        pilot,
    ):
        await press(app, pilot, "e")
        assert "Markdown: write the report to" in screen_text(app)
        await press(app, pilot, "m")
        assert bar(app, "keys").strip().endswith("written")
    assert "rank 6" in (tmp_path / "findings.md").read_text()


async def test_an_export_that_fails_says_why(tmp_path: Path) -> None:
    def export(dataset: Dataset, analysis: Analysis, folder: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    async with opened(hang(), options=replace(PLAIN, exports={"HTML": export})) as (app, pilot):
        await press(app, pilot, "e", "h")
        assert bar(app, "keys").strip() == "not written: Permission denied"


async def test_a_copy_goes_to_a_file_too(tmp_path: Path) -> None:
    async with opened(hang(), options=replace(PLAIN, export_dir=tmp_path)) as (app, pilot):
        await pilot.press("y", "h", "y")
        assert "copied, also to" in bar(app, "keys")
        assert app.clipboard.startswith("dumps: rank 6 never issued")
    text = (tmp_path / FILE).read_text()
    assert "rank 6 #11 of TENSOR_PARALLEL_1: never issued" in text
    assert "model/attention.py:211" in text


async def test_the_other_pane_takes_the_keys() -> None:
    async with opened(hang()) as (app, pilot):
        order = []
        for _ in range(3):
            order.append(app.focused.id if app.focused else None)
            await pilot.press("tab")
        assert order == ["lanes", "detail", "lanes"]


# Sizes


async def test_resizing_keeps_the_culprit_in_view() -> None:
    async with opened(hang()) as (app, pilot):
        for size in ((200, 50), (40, 12), (20, 8), (120, 30), (80, 24)):
            await pilot.resize_terminal(*size)
            await settle(app, pilot)
            assert "!6" in screen_text(app) or size[1] <= 8
            assert rank(app) == 6


async def test_the_detail_stands_beside_lanes_only_where_their_rows_fill_a_wide_screen() -> None:
    for size in ((80, 24), (160, 45)):
        async with opened(hang(), size=size) as (app, pilot):
            lanes, detail = app.lanes.lanes, app.lanes.detail
            assert not app.lanes.is_beside
            assert detail.region.x <= 1 and detail.region.y > lanes.region.bottom
            # a lane of each rank fills no more than the higher one of the two
            await press(app, pilot, "g", "u")
            assert not app.lanes.is_beside
    async with opened(hang(), size=(160, 30)) as (app, pilot):
        await press(app, pilot, "g", "u")
        lanes, detail = app.lanes.lanes, app.lanes.detail
        assert app.lanes.is_beside
        assert detail.region.y == lanes.region.y
        assert detail.region.x == lanes.region.right + 1
        await press(app, pilot, "g", "u")
        assert not app.lanes.is_beside


async def test_hostile_names_stay_on_one_line() -> None:
    job = JobBuilder(8, {"tp0": [0, 1, 2, 3], "tp1": [4, 5, 6, 7]})
    job.descriptions["tp1"] = "\x1b[31m[red]\n\u202eevil[/red]"
    for _ in range(3):
        step(job, ["tp0", "tp1"])
    job.collective("tp1", [4, 5, 7], op="all_reduce", state="scheduled", stack=(("\x1b]0;x\x07", "[b]f.py", 3),))
    from tests.tui.jobs import still

    dataset = still(job.build())
    async with opened((dataset, analyse(dataset)), options=ViewOptions()) as (app, pilot):
        for keys in (["k"], ["4"], ["enter"], ["f", *"recv", "enter"], ["escape"], ["y"], ["slash", "x", "enter"]):
            await press(app, pilot, *keys)
            text = screen_text(app)
            assert "\x1b" not in text
            assert "\u202e" not in text
            assert "\x07" not in text


async def test_holding_a_key_draws_the_detail_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pane, "DETAIL_AFTER", 0.4)
    async with opened(hang()) as (app, pilot):
        seen: list[object] = []
        monkeypatch.setattr(app.lanes.detail, "show_found", lambda *args: seen.append(args))
        await _quiet(pilot, seen)
        seen.clear()
        for _ in range(10):
            app.lanes.lanes.action_move("left")
        await _quiet(pilot, seen, least=1)
        assert len(seen) == 1


async def test_keys_are_answered_while_the_detail_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    may_go_on = Event()

    def slow(index: OpIndex, analysis: Analysis, selection: Selection) -> Detail:
        asked.append(selection.row)
        assert may_go_on.wait(LONGEST_S)
        return look_up(index, analysis, selection)

    async with opened(hang()) as (app, pilot):
        before = app.lanes.detail.detail
        monkeypatch.setattr(pane, "look_up", slow)
        for count in range(1, 6):
            await pilot.press("left")
            await pilot.pause(2 * pane.DETAIL_AFTER)
            await until(pilot, lambda: asked)
            assert app.lanes.detail.detail is before, count
        selection = board_of(app).selection
        assert app.lanes.detail_is_due
        assert len(asked) == 1
        may_go_on.set()
        await settle(app, pilot)
        assert selection is not None and before is not None
        assert asked[1:] == [selection.row] != asked[:1]
        assert app.lanes.detail.detail is not None
        assert app.lanes.detail.detail.selection == selection != before.selection


async def _quiet(pilot: Pilot[None], seen: list[object], least: int = 0) -> None:
    """Waits until `least` things were seen and nothing new came for a while, on however slow a machine."""
    for _ in range(20):
        before = len(seen)
        await pilot.pause(0.8)
        if len(seen) == before >= least:
            return


async def test_enter_at_a_card_opens_this_finding() -> None:
    async with opened(hang()) as (app, pilot):
        await press(app, pilot, "n", "enter")
        page = app.screen
        assert isinstance(page, FindingsScreen)
        assert page.row(page.listing.cursor)[0] == app.lanes.boards.shown.finding != 0


async def test_the_users_own_keys_are_the_ones_that_are_shown_and_pressed() -> None:
    keys = {"tab_4": "f4", "search": "f2", "zoom_selection": "z"}
    async with opened(hang(), options=replace(PLAIN, keys=keys)) as (app, pilot):
        assert " f4 groups " in bar(app, "tabs") and "f2 find" in bar(app, "keys")
        await press(app, pilot, "4")
        assert app.lanes.pages.page is None
        await press(app, pilot, "f4")
        assert isinstance(app.screen, GroupsScreen) and "f2 find" in screen_text(app)
    async with opened(hang()) as (app, _):
        assert " 4 groups " in bar(app, "tabs"), "the next app has the keys of its own options"
