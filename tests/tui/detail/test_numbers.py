"""The page of numbers: its cells, its cursor, its words."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.analysis.model import Analysis
from rankscope.features.numbers.page.number_grid import (
    FIRST,
    LOOKS,
    NEAR,
    OFF,
    SAME,
    binned_line,
    line_text,
    lines_off,
    number_grid,
    rule_codes,
    worst_cell,
)
from rankscope.features.numbers.page.numbers_page import NumbersScreen
from rankscope.features.numbers.rules.model import NumberMarks, RowState, number_results
from rankscope.kinds.view_kinds import VIEWS
from rankscope.tui.letters import CHARACTERS, SHIFT, Mark
from rankscope.tui.model import build_model
from rankscope.tui.selection import Selection
from tests.builders import JobBuilder
from tests.numbers_writer import NumbersJob
from tests.tui.detail.number_jobs import dumped, flipped, judged, recorded, referenced
from tests.tui.detail.show import UNSET, opened, screen_text
from tests.tui.drive import workers_done


def test_a_line_is_an_operation_of_twin_groups() -> None:
    dataset, _ = flipped()
    grid = number_grid(dataset)
    told = grid.lines.select("step", "site", "nth", "groups", "shared_seq").rows()
    assert told[:3] == [(0, "forward", 0, 1, True), (0, "collective", 0, 2, True), (0, "collective", 1, 2, True)]
    assert (len(told), grid.ranks.tolist(), np.diff(grid.ends).tolist()) == (12, list(range(6)), [6] * 12)
    assert sorted(grid.rows.tolist()) == list(range(dataset.tensors.height))


def test_a_column_shows_the_worst_of_its_ranks() -> None:
    dataset, analysis = flipped()
    grid = number_grid(dataset)
    marks = number_results(analysis).marks
    assert marks is not None
    cells = grid.cells(rule_codes(marks))
    at = int(lines_off(grid, cells)[0])
    each = binned_line(grid, cells, at, 1)
    assert LOOKS[each[4]].text == "X"
    for per in (2, 4, 5):
        expected = [int(each[first : first + per].max()) for first in range(0, 6, per)]
        assert binned_line(grid, cells, at, per).tolist() == expected
    cell = worst_cell(grid, cells, at, 1, 3)
    assert cell is not None and grid.ranks[grid.columns[cell]] == 4


def test_codes_follow_the_share_of_the_limit() -> None:
    share = np.array([0.0, 0.05, 0.31, 0.999, 0.0])
    limit = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    state = np.full(5, RowState.RIGHT, np.uint8)
    marks = NumberMarks(state, np.zeros(5, np.uint8), share, limit, np.zeros(5, np.bool_))
    assert rule_codes(marks).tolist() == [NEAR, NEAR, NEAR + 3, NEAR + 9, SAME]
    assert OFF[FIRST]


async def test_the_first_wrong_cell_is_under_the_cursor_and_keys_walk() -> None:
    dataset, analysis = flipped()
    page = NumbersScreen(dataset, analysis)
    async with opened(page) as (app, pilot):
        await workers_done(app)
        await pilot.pause()
        text = screen_text(app)
        assert (
            "rank 4  step 2  all_reduce #6 (sum) of group tp1" in text
            and "WRONG  rank 4 holds other bits than ranks 3,5 after" in text
        )
        await pilot.press("tab", "end")
        assert "step train.py:12 < main train.py:40" in screen_text(app)
        await pilot.press("tab")
        wrong = page.listing.cursor
        await pilot.press("n")
        assert "nothing is off below" in screen_text(app)
        await pilot.press("home", "n")
        assert page.listing.cursor == wrong
        await pilot.press("g", "o")
        assert page.listing.count == 1
        await pilot.press("escape", "minus", "minus")
        assert page.columns == [0, 4] and "the worst of ranks 4,5" in " ".join(screen_text(app).split())
        await pilot.press("enter")
        assert "no dump holds this collective" in screen_text(app) and app.result is UNSET


async def test_enter_leads_to_the_lanes_where_a_dump_has_it() -> None:
    async with opened(NumbersScreen(*dumped())) as (app, pilot):
        await workers_done(app)
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
        assert app.result == Selection(4, group=2, seq=6)


def test_lanes_mark_the_collective() -> None:
    model = build_model(*dumped())
    off = (model.items.code >> SHIFT) == Mark.WRONG_NUMBERS
    assert model.items.lane[off].tolist() == [4] and model.items.seq[off].tolist() == [6]
    assert chr(CHARACTERS[model.items.code[off][0]]) == "%"


async def test_a_reference_has_a_view_of_its_own() -> None:
    page = NumbersScreen(*referenced())
    async with opened(page) as (app, pilot):
        await workers_done(app)
        await pilot.pause()
        assert "against the reference" in screen_text(app) and "FIRST DIFFERENCE" in screen_text(app)
        await pilot.press("g", "m")
        assert not page.is_reference and "1 wrong" in screen_text(app)


async def test_names_from_files_are_plain_and_searched() -> None:
    dataset = recorded(flip=False, name="bad\x1b[2J[red]layer").dataset()
    page = NumbersScreen(dataset, judged(dataset))
    async with opened(page) as (app, pilot):
        await workers_done(app)
        await pilot.pause()
        assert "\x1b" not in screen_text(app) and "[red]layer" in screen_text(app)
        page.find("step 3")
        assert page.listing.count == 3
        page.find("5")
        assert page.columns[page._cell] == 5 and page.listing.count == 12
        page.find("nowhere")
        await pilot.pause()
        assert "nothing here has" in screen_text(app)


def test_without_numbers_it_says_what_to_record() -> None:
    dataset = JobBuilder(2).build()
    assert NumbersScreen.lacks_data(dataset, Analysis("", "unknown"))
    assert "numbers.start(" in VIEWS["numbers"].fill


def test_names_keep_their_ends() -> None:
    one = {"site": "forward", "again": False, "name": "model.layers.11.self_attention.dense"}
    assert line_text(one, 24) == "fwd ..lf_attention.dense"


def test_a_row_without_a_step_or_a_group_has_a_place() -> None:
    job = NumbersJob({"dp": [0, 1]})
    job.row(0, "loss", "out0", np.ones((1, 1), np.float32))
    dataset = job.dataset()
    bare = dataset.tensors.with_columns(step=pl.lit(None, pl.Int64), order=pl.lit(None, pl.Int64))
    grid = number_grid(type(dataset)(dataset.ops, dataset.groups, dataset.stacks, dataset.frontiers, dataset.files,
                                     tensors=bare))  # fmt: skip
    assert grid.lines["step"].to_list() == [-1] and grid.place_of(0) == (0, 0) and grid.place_of(9) is None
