"""Lanes coloured by call site: letters, legend, groups, moves, and the tree of selected cells."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from rankscope.tui import site_letters as sites_module
from rankscope.tui.cell_selection import Place, item_of
from rankscope.tui.letters import cell_style
from rankscope.tui.model import Model, build_model
from rankscope.tui.options import Look, Palette, ThemeName, ViewOptions
from rankscope.tui.popups import ChoiceScreen
from rankscope.tui.shown_sites import ShownSites
from rankscope.tui.site_letters import STYLES, call_sites, legend
from rankscope.tui.themes import THEMES
from tests.builders import JobBuilder
from tests.tui.branch_jobs import EARLY_STOP, FORWARD, branches
from tests.tui.drive import act, opened, press, screen_text, settle, until
from tests.tui.jobs import hang, model_of
from tests.tui.live import drive as live


def board_of(model: Model, group: str | None = "TP_0", width: int = 40) -> ShownSites:
    """The call sites of a group with those like it, or of all groups."""
    known = {one.description: one.id for one in model.dataset.group_list}
    return ShownSites(model, call_sites(model.dataset), None if group is None else known[group])


def rows(board: ShownSites) -> list[tuple[list[int], str]]:
    """The ranks of each row, and its letters."""
    board.resize(60, 20)
    lines, _ = board.compose(board.gutter(80), 20)
    return [(board.ranks_of(at), line.text.decode().rstrip()) for at, line in enumerate(lines)]


def facts(board: ShownSites, width: int = 78) -> str:
    board.resize(60, 20)
    make = board.facts()
    assert make is not None
    return "\n".join(one.plain for one in make(width, 20))


@pytest.fixture(scope="module")
def branching() -> Model:
    return build_model(*branches())


def test_ranks_that_take_another_branch_have_rows_of_their_own(branching: Model) -> None:
    assert rows(board_of(branching)) == [([0, 1, 3, 4, 6, 7], "A A A A A A A A A"), ([2, 5], "A A A A A A A A C")]


def test_lanes_of_states_cannot_tell_them_apart(branching: Model) -> None:
    assert branching.analysis.status == "healthy"
    first, third = (branching.items.code[branching.items.lane == lane] for lane in (0, 2))
    assert first.tolist() == third.tolist()


def test_all_groups_stand_in_one_order_of_issue(branching: Model) -> None:
    board = board_of(branching)
    board.change_groups()
    assert rows(board) == [
        (list(range(8)), "    B     B     B     B   B"),
        ([0, 1, 3, 4, 6, 7], "A A   A A   A A   A A   A"),
        ([2, 5], "A A   A A   A A   A A   C"),
    ]
    assert [board.group_label(row).strip() for row in range(3)] == ["default_p", "TP*", "TP*"]
    board.change_groups()
    assert len(board.rows) == 2


def test_legend_names_call_sites_in_view_the_most_frequent_first(branching: Model) -> None:
    text = facts(board_of(branching))
    assert "2 call sites in view, the most frequent first\nA 70x all_reduce  model/attention.py:211, forward" in text
    assert "C  2x all_reduce  model/attention.py:211, forward < validate" in text
    board = board_of(branching)
    board.zoom(3)
    assert "1 call site in view" in facts(board), "the branch lies beyond the window"
    board.go_unit(8)
    assert "2 call sites in view" in facts(board)


def test_legend_below_the_lanes_names_what_tells_sites_apart(branching: Model) -> None:
    board = board_of(branching)
    _, present = board.compose(board.gutter(80), 20)
    assert legend(board.sites, np.unique(present)) == [
        "A all_reduce train/step.py:30",
        "C all_reduce train/validate.py:41",
    ]


def test_stacks_of_the_selected_cells_are_one_tree(branching: Model) -> None:
    board = board_of(branching)
    board.go_unit(8)
    assert facts(board).partition("stacks of ")[2].splitlines() == [
        "this column, 8 ranks",
        "x8 [0-7] main main.py:12",
        "|- x6 [0,1,3,4,6,7] train_step train/step.py:30",
        "|    > forward model/attention.py:211",
        "`- x2 [2,5] validate train/validate.py:41 > forward model/attention.py:211",
    ]
    board.go_unit(2)
    assert "validate" not in facts(board).partition("stacks of ")[2]
    board.marker = 8
    assert "stacks of 7 columns, 8 ranks" in facts(board)
    assert "x2 [2,5] validate" in facts(board)


def test_pending_and_absent_operations_keep_their_marks() -> None:
    board = board_of(build_model(*hang()), "TENSOR_PARALLEL_1")
    board.go_unit(board.high - 1)
    shown = {tuple(ranks): text for ranks, text in rows(board)}
    assert shown[6,].endswith("A !  <- never arrived")
    assert shown[4, 5, 7].endswith("A A a")
    assert "x1 [6] no operation here" in facts(board)
    _, present = board.compose(board.gutter(80), 20)
    assert board.legend(np.unique(present))[:2] == ["! never issued", "lower case waits"]


def test_a_rank_without_a_dump_is_not_known() -> None:
    board = board_of(build_model(*hang(8, 2, no_dump=(6,))), "TENSOR_PARALLEL_1")
    assert ([6], "? ? ?") in [(ranks, text[:5]) for ranks, text in rows(board)]


def test_rare_call_sites_share_a_sign_and_are_named() -> None:
    job = JobBuilder(2)
    for number in range(30):
        job.collective("0", stack=((f"part{number}", "model.py", number + 1),))
    board = board_of(model_of(job), None)
    board.resize(60, 20)
    ((_, text),) = rows(board)
    assert text.split() == [*"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "+", "+", "+", "+"]
    assert "+ 2x all_reduce  model.py:30, part29" in facts(board)


def test_a_cell_of_several_operations_has_the_letter_of_the_rarest(branching: Model) -> None:
    board = board_of(branching)
    board.resize(3, 20)
    board.zoom_fit()
    lines, _ = board.compose(board.gutter(80), 20)
    assert [line.text.decode() for line in lines] == ["AAA", "AAC"]


def test_without_stacks_a_letter_is_an_operation() -> None:
    job = JobBuilder(2)
    job.collective("0", stack=())
    job.collective("0", op="broadcast", stack=())
    board = board_of(model_of(job), None)
    assert rows(board) == [([0, 1], "A B")]
    text = facts(board)
    assert "no stack was recorded: a letter is an operation" in text
    assert "B 2x broadcast, no stack recorded" in text


def test_frames_of_libraries_make_no_call_site_of_their_own() -> None:
    job = JobBuilder(2)
    torch = ("all_reduce", "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py", 2501)
    job.collective("0", stack=(torch, *FORWARD))
    job.collective("0", stack=FORWARD)
    assert rows(board_of(model_of(job), None)) == [([0, 1], "A A")]


def test_a_place_of_another_group_shows_that_group(branching: Model) -> None:
    board = board_of(branching)
    group = next(one.id for one in branching.dataset.group_list if one.description == "default_pg")
    item = item_of(branching, 5, group, 3)
    board.go_place(branching, Place(5, item))
    assert board.group == group
    assert board.selection is not None
    assert (board.selection.rank, board.selection.group, board.selection.seq) == (5, group, 3)


def test_a_newer_state_of_the_job_is_shown(branching: Model) -> None:
    board = board_of(branching)
    board.replace_model(build_model(*branches(6)))
    assert rows(board)[1][1].count("A") == 12
    board.replace_model(build_model(*branches(2)))
    assert rows(board)[0][1] == "A A A A A"


@pytest.mark.parametrize(("theme", "palette"), list(product(THEMES, ("true", "256", "16", "8"))))
def test_neighbouring_letters_differ_in_colour(theme: ThemeName, palette: Palette) -> None:
    look = Look(theme, palette)
    styles = [cell_style(int(STYLES[sites_module._FIRST + 2 * site]), look) for site in range(7)]
    seen = [(style.color, style.bgcolor, style.bold) for style in styles]
    assert all(one != after for one, after in pairwise(seen))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_palette_shows_call_sites_and_escape_ends_them(size: tuple[int, int]) -> None:
    async with opened(branches(), size) as (app, pilot):
        await press(app, pilot, "ctrl+p")
        assert isinstance(app.screen, ChoiceScreen)
        await press(app, pilot, *"call site", "enter")
        await settle(app, pilot)
        text = screen_text(app)
        assert "2,5" in text
        assert "A A A A A A A A C" in text
        assert "A 70x all_reduce" in text
        assert "validate" in text
        await press(app, pilot, "g", "g")
        assert "call sites of all 3 groups" in screen_text(app)
        assert "g g one group" in screen_text(app)
        await act(app, pilot, "memory")
        assert "memory is drawn on the axis of time" in screen_text(app)
        await press(app, pilot, "escape")
        assert app.lanes.boards.sites is None
        assert "call sites" not in screen_text(app)


async def test_time_findings_filters_and_search_go_on_from_call_sites() -> None:
    async with opened(hang(), (100, 30)) as (app, pilot):
        await press(app, pilot, "t")
        app.lanes.commands["sites"]()
        await settle(app, pilot)
        await press(app, pilot, "n")
        assert app.lanes.boards.sites is not None
        await press(app, pilot, "slash", *"forward", "enter")
        assert "hits of 'forward'" in screen_text(app)
        await press(app, pilot, "escape", "f", *"4-7", "enter")
        assert set(app.lanes.boards.shown.model.ranks.tolist()) == {4, 5, 6, 7}
        await press(app, pilot, "t")
        assert app.lanes.boards.shown is app.lanes.boards.operations
        assert app.lanes.boards.sites is None


async def test_call_sites_of_a_watched_job_follow_it() -> None:
    async with live.watched(None, ViewOptions(ascii_only=True, palette="none")) as (app, pilot, told):
        told.put(live.job(3))
        await until(pilot, lambda: app.screen is not app.opening)
        app.lanes.commands["sites"]()
        await until(pilot, lambda: app.lanes.boards.sites is not None)
        before = app.lanes.boards.shown.model.width
        told.put(live.job(6))
        await until(pilot, lambda: app.lanes.boards.shown.model.width > before)
        assert app.lanes.boards.shown is app.lanes.boards.sites


def test_an_early_stop_of_one_rank_shows_where_it_went() -> None:
    job = JobBuilder(4)
    job.collective("0", stack=FORWARD)
    job.collective("0", [0, 1, 3], stack=FORWARD)
    job.collective("0", [2], op="broadcast", stack=EARLY_STOP)
    model = model_of(job)
    board = board_of(replace(model), None)
    board.go_rank(2)
    board.go_unit(1)
    assert "broadcast  train/early_stop.py:19, all_agree" in facts(board)
    assert "x1 [2] all_agree train/early_stop.py:19" in facts(board)
