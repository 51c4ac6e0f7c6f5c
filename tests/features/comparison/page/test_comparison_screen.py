"""The screen of `rankscope diff`: the answer first, then lanes, series and maps, by keys alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import polars as pl
from textual.pilot import Pilot

from rankscope.features.comparison.page.aligned_lanes import paired_lanes
from rankscope.features.comparison.page.answer_page import AnswerPage, CardPlace, card_lines, command
from rankscope.features.comparison.page.compared_view import ComparedPage, ComparedView
from rankscope.features.comparison.page.comparison_app import ComparisonApp
from rankscope.features.comparison.page.difference_map import DifferencePage, ScatterPage
from rankscope.features.comparison.page.lanes_page import LanesPage
from rankscope.features.comparison.page.series_page import SeriesPage
from rankscope.features.comparison.rules.run_sides import WholeComparison, compare_in_full
from rankscope.tui.options import ProgressLike, ViewOptions
from tests.features.comparison.page.views import ONSET, scalars, simulated, view_of
from tests.tui.drive import PLAIN, screen_text, until
from tests.tui.test_golden import compare

PageOf = TypeVar("PageOf", bound=ComparedPage)


@asynccontextmanager
async def compared(
    view: ComparedView, size: tuple[int, int] = (80, 24), options: ViewOptions = PLAIN
) -> AsyncIterator[tuple[ComparisonApp, Pilot[None]]]:
    """The app after the runs are compared."""

    def load(progress: Callable[[ProgressLike], None]) -> WholeComparison:
        return view.whole

    app = ComparisonApp(load, "runs", options)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: isinstance(app.screen, AnswerPage))
        await pilot.pause()
        yield app, pilot


async def shows(app: ComparisonApp, pilot: Pilot[None], key: str, kind: type[PageOf]) -> PageOf:
    """Presses a key and waits for the page that it opens."""
    await pilot.press(key)
    await until(pilot, lambda: isinstance(app.screen, kind))
    await pilot.pause()
    await pilot.pause()
    assert isinstance(app.screen, kind)
    return app.screen


async def test_the_first_screen_is_the_answer() -> None:
    async with compared(view_of()) as (app, _):
        text = screen_text(app)
        compare("comparison_answer_80x24", text)
        assert app.last_words.endswith("full report: rankscope diff -f text runs/a runs/b")


async def test_all_of_the_answer_fits_a_small_terminal() -> None:
    for width, height in ((60, 15), (80, 24), (160, 45)):
        async with compared(view_of(), (width, height)) as (app, _):
            lines = screen_text(app).splitlines()
            assert len(lines) <= height and max(map(len, lines)) <= width
            for part in ("why", "decide", "copy Y", "schedule", "settings", "values", "durations"):
                assert any(part in one[:12] for one in lines), (part, width)


async def test_both_cursors_stay_on_the_same_operation() -> None:
    async with compared(view_of()) as (app, pilot):
        page = await shows(app, pilot, "2", LanesPage)
        compare("comparison_lanes_80x24", screen_text(app))
        first, second = page.lanes.places
        assert page.board.unit == first.column
        await pilot.press("n")
        assert page.board.unit == second.column and "difference 2 of 2" in screen_text(app)
        await pilot.press("tab", "left", "left")
        boards = [timeline.board for timeline in page.timelines]
        assert boards[0] is not None and boards[1] is not None
        assert boards[0].unit == boards[1].unit == second.column - 2
        await pilot.press("g", "x")
        await pilot.pause()
        assert "* where B differs" in screen_text(app) and page.board.unit == second.column - 2


async def test_series_map_and_scatter_begin_at_the_difference() -> None:
    async with compared(view_of()) as (app, pilot):
        series = await shows(app, pilot, "3", SeriesPage)
        assert series.key.rank == 1 and series.step == ONSET and "DIFFERS" in screen_text(app)
        await pilot.press("plus", "t", "down")
        assert series.window[1] - series.window[0] < 39 and series.key.rank == 0 and "equal" in screen_text(app)
        await shows(app, pilot, "4", DifferencePage)
        assert f"step {ONSET}" in screen_text(app) and "1 of 2" in screen_text(app)
        await shows(app, pilot, "5", ScatterPage)
        assert "up: " in screen_text(app)
        await shows(app, pilot, "escape", AnswerPage)


async def test_a_part_opens_with_its_lines_and_leads_on() -> None:
    async with compared(view_of()) as (app, pilot):
        await pilot.press("tab", "tab", "enter")
        await pilot.pause()
        assert "loss of rank 1 at step 21" in screen_text(app)
        page = await shows(app, pilot, "enter", SeriesPage)
        assert page.key.name == "loss"


async def test_equal_runs_and_missing_data_say_so(tmp_path: Path) -> None:
    view = view_of(changed=False)
    none = ComparedView(view.whole, None)
    assert LanesPage.missing(none).startswith("no lanes: schedules are equal")
    async with compared(view, options=replace(PLAIN, export_dir=tmp_path)) as (app, pilot):
        assert " SAME " in screen_text(app) and "means" in screen_text(app)
        await pilot.press("Y")
    assert (tmp_path / "rankscope-copy.txt").read_text() == "rankscope diff -o diff.md runs/a runs/a\n"


def test_the_card_keeps_what_matters_where_there_is_no_room() -> None:
    view = view_of()
    for height in range(1, 16):
        lines = [one.plain for one in card_lines(view, CardPlace(), 78, height)]
        assert len(lines) <= height and any(one.startswith("why") for one in lines)
    assert command(view, CardPlace()).startswith("rankscope diff -o diff.md ")


async def test_names_from_files_are_text_and_nothing_else() -> None:
    runs = [
        replace(simulated(False), title="[bold]\x1b[2J", series=scalars(values, name="\x1b[31m[red]loss"))
        for values in ([1.0, 2.0], [1.0, 2.5])
    ]
    whole = compare_in_full(*runs)
    async with compared(ComparedView(whole, paired_lanes(whole))) as (app, pilot):
        for key, kind in (("2", LanesPage), ("3", SeriesPage)):
            await shows(app, pilot, key, kind)
            assert all(char.isprintable() or char == "\n" for char in screen_text(app))
            assert "[bold]" in screen_text(app)
        assert "[red]loss" in screen_text(app)


async def test_pages_without_data_are_not_offered() -> None:
    bare = (replace(simulated(changed), series=pl.DataFrame()) for changed in (False, True))
    whole = compare_in_full(*bare)
    async with compared(ComparedView(whole, paired_lanes(whole))) as (app, _):
        assert isinstance(app.screen, AnswerPage)
        assert [hint.what for hint in app.screen.hints() if hint.key in "2345"] == [
            name for name in app.screen.view.pages if name != "answer"
        ]
        assert "series" not in app.screen.view.pages and "lanes" in app.screen.view.pages
