"""The view of the mesh: how the grid is laid out, what its letters say, and where its keys lead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rankscope.analysis.mesh_recovery import recover_mesh
from rankscope.analysis.model import Analysis, Dimension, Mesh, Misfit
from rankscope.schema import Dataset
from rankscope.tui.detail.detail_text import compact, expanded
from rankscope.tui.detail.operation_index import OpIndex
from rankscope.tui.detail.screens.mesh_page import MeshScreen, lay_out, legend, letters, row_line
from rankscope.tui.detail.selection_facts import look_up
from rankscope.tui.model import build_model
from rankscope.tui.options import ViewOptions
from rankscope.tui.order import order_lanes, orderings
from rankscope.tui.selection import Selection
from tests.analysis.meshes import job_of, megatron
from tests.tui.detail.goldens import BARE
from tests.tui.detail.samples import HOSTILE, hang
from tests.tui.detail.show import opened, screen_text


def job(no_dump: tuple[int, ...] = (), **sizes: int) -> tuple[Dataset, Analysis]:
    """A job of Megatron-LM in which rank 6 breaks things, 4 and 5 wait, and rank 1 is in the wrong group."""
    world, groups = megatron(**(sizes or {"pp": 2, "dp": 4, "tp": 2}))
    dataset = job_of(world, groups, no_dump)
    mesh = recover_mesh(dataset)
    assert mesh is not None
    found = replace(hang()[1].findings[0], culprit_ranks=(6,), waiting_ranks=(4, 5))
    mesh = replace(mesh, misfits=(Misfit(1, (0, 1), (0, 2), (1,), ()),))
    return dataset, replace(hang()[1], findings=(found,), waits={}, mesh=mesh)


def rows_of(width: int, **sizes: int) -> list[str]:
    dataset, analysis = job((), **sizes)
    assert analysis.mesh is not None
    layout = lay_out(analysis.mesh, (), width)
    lines = [row_line(row, layout, letters(dataset, analysis), None) for row in layout.rows]
    assert max(parts.cell_len for parts in lines) <= width
    assert sorted(rank for row in layout.rows for rank in row.ranks) == list(range(dataset.world_size))
    return [parts.plain for parts in lines]


def test_rows_of_the_outermost_dimension_where_the_others_fit() -> None:
    assert rows_of(78) == ["pp 0  0 .m .. ww C.", "pp 1  8 .. .. .. .."]


def test_rows_of_more_dimensions_where_they_do_not() -> None:
    assert rows_of(24, pp=2, dp=8, tp=8)[:3] == [
        "pp 0 dp 0   0 .m..wwC.",
        "pp 0 dp 1   8 ........",
        "pp 0 dp 2  16 ........",
    ]


def test_a_dimension_longer_than_the_screen_goes_on_in_the_next_row() -> None:
    lines = rows_of(40, pp=2, dp=100)
    assert lines[0] == "pp 0   0 .m..wwC. ........ ........"
    assert [line[:9] for line in lines[3:6]] == ["pp 0  72 ", "pp 0  96 ", "pp 1 100 "]


def test_ranks_that_are_not_on_the_grid_have_rows_of_their_own() -> None:
    mesh = Mesh((Dimension("dp", 2, 2), Dimension("tp", 2, 1)), {r: (r // 2, r % 2) for r in range(4)}, 6)
    layout = lay_out(mesh, (4, 5), 78)
    assert [(row.label, row.ranks) for row in layout.rows] == [("dp 0", (0, 1)), ("dp 1", (2, 3)), ("outside", (4, 5))]


@pytest.mark.parametrize("width", [31, 40, 80, 200])
def test_sixteen_thousand_ranks_fit_any_width(width: int) -> None:
    ranks = range(16_384)
    sizes = {"pp": 8, "dp": 128, "cp": 2, "tp": 8}
    places = {r: (r // 2048, r // 16 % 128, r // 8 % 2, r % 8) for r in ranks}
    mesh = Mesh(tuple(Dimension(n, s, None) for n, s in sizes.items()), places, len(ranks))
    layout = lay_out(mesh, (), width)
    lines = [row_line(row, layout, {}, None) for row in layout.rows]
    assert max(parts.cell_len for parts in lines) <= width
    assert [rank for row in layout.rows for rank in row.ranks] == list(ranks)


def test_letters_say_the_worst() -> None:
    dataset, analysis = job(no_dump=(2, 3, 6))
    of = letters(dataset, analysis)
    assert of == {1: "m", 2: "?", 3: "?", 4: "w", 5: "w", 6: "C"}
    assert legend(of, 16).plain == "  C culprit 1  m misfit 1  ? no dump 2  w waits 2  . other 10"


async def test_the_screen_begins_at_the_culprit_and_goes_to_its_lane() -> None:
    async with opened(MeshScreen(*job(), BARE)) as (app, pilot):
        await pilot.pause()
        text = screen_text(app)
        assert " mesh  pp 2 x dp 4 x tp 2, tp innermost" in text
        assert ">pp 0  0 .m .. ww C." in text
        assert "rank 6  pp 0, dp 3, tp 0  culprit" in text
        assert "along pp 6,14, dp 0,2,4,6, tp 6,7" in text
        await pilot.press("enter")
        assert app.result == Selection(6)


@pytest.mark.parametrize(
    ("keys", "rank"),
    [
        (("l",), 7), (("right", "right"), 8), (("h", "left"), 4), (("j",), 14), (("down", "l", "l"), 15),
        (("end",), 14), (("j", "home"), 6), (("n",), 1), (("n", "n"), 6), (("N",), 1), (("h",) * 9, 0),
        (("slash", *"13", "enter"), 13), (("slash", *"pp 1", "enter"), 14), (("slash", *"99", "enter"), None),
    ],
)  # fmt: skip
async def test_keys_move_from_rank_to_rank(keys: tuple[str, ...], rank: int | None) -> None:
    async with opened(MeshScreen(*job(), BARE)) as (app, pilot):
        await pilot.pause()
        await pilot.press(*keys)
        await pilot.pause()
        assert isinstance(app.screen, MeshScreen)
        assert app.screen.rank == rank


async def test_the_cursor_stays_on_its_rank_when_the_width_changes() -> None:
    async with opened(MeshScreen(*job(pp=2, dp=100), BARE)) as (app, pilot):
        await pilot.pause()
        await pilot.press("slash", *"155", "enter", "escape")
        await pilot.pause()
        assert isinstance(app.screen, MeshScreen)
        app.screen.go(155)
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        assert app.screen.rank == 155
        assert "rank 155" in screen_text(app)


async def test_without_a_grid_it_says_so() -> None:
    async with opened(MeshScreen(*hang(), BARE)) as (app, pilot):
        await pilot.press("enter", "l", "n", "j")
        await pilot.pause()
        assert "no mesh: the groups do not clearly form a grid" in screen_text(app)


async def test_names_from_files_do_not_act_on_the_screen() -> None:
    dataset, analysis = job()
    mesh = analysis.mesh
    assert mesh is not None
    evil = replace(mesh, dimensions=(Dimension(HOSTILE, 2, 8), *mesh.dimensions[1:]))
    async with opened(MeshScreen(dataset, replace(analysis, mesh=evil), ViewOptions())) as (app, pilot):
        await pilot.pause()
        assert all(line.isprintable() for line in screen_text(app).splitlines())


def test_the_pane_names_the_place_of_the_rank() -> None:
    dataset, analysis = job()
    lines = [parts.plain for parts in compact(look_up(OpIndex(dataset), analysis, Selection(6)), 80)]
    assert "mesh    pp 0, dp 3, tp 0" in lines
    wide = [parts.plain for parts in expanded(look_up(OpIndex(dataset), analysis, Selection(6)), analysis, 60)]
    assert "mesh    pp 0, dp 3, tp 0" in wide
    without = [parts.plain for parts in compact(look_up(OpIndex(dataset), hang()[1], Selection(6)), 80)]
    assert not any(line.startswith("mesh") for line in without)


def test_lanes_are_ordered_by_pipeline_stage_where_there_is_one() -> None:
    dataset, analysis = job(tp=2, pp=2, dp=2)
    model = build_model(dataset, analysis)
    assert "stage" in orderings(model)
    looks = model.items.lane.astype("uint64")
    assert order_lanes(model, "stage", None, looks).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert "stage" not in orderings(build_model(*hang()))
