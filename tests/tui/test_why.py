"""W: why the rank under the cursor is accused, or why it is not."""

from __future__ import annotations

from textual.pilot import Pilot

from rankscope.analysis.model import Evidence, RankExplanation, Reason
from rankscope.tui.app import RankscopeApp
from rankscope.tui.detail.screens.why_page import WhyScreen, why_lines
from tests.report.samples import EVIL
from tests.tui.drive import board_of, opened, press, screen_text
from tests.tui.jobs import hang, healthy
from tests.tui.test_golden import compare


async def of_rank(app: RankscopeApp, pilot: Pilot[None], rank: int) -> WhyScreen:
    """The page for a rank."""
    await press(app, pilot, "colon", *str(rank), "enter", "W")
    assert isinstance(app.screen, WhyScreen)
    assert app.screen.rank == rank
    return app.screen


async def test_a_culprit() -> None:
    async with opened(hang(16, 10)) as (app, pilot):
        await press(app, pilot, "W")
        compare("why_80x24", screen_text(app))


async def test_a_rank_that_waits() -> None:
    async with opened(hang(16, 10)) as (app, pilot):
        await of_rank(app, pilot, 1)
        compare("why_not_80x24", screen_text(app))


async def test_along_the_chain_and_back() -> None:
    async with opened(hang(16, 10)) as (app, pilot):
        page = await of_rank(app, pilot, 1)
        await press(app, pilot, "c")
        assert page.why.accused
        assert "rank 6" in screen_text(app).splitlines()[0]
        await press(app, pilot, "c")
        assert "rank 6 waits for nobody" in screen_text(app)
        await press(app, pilot, "escape")
        assert app.screen is app.lanes


async def test_enter_goes_to_the_finding() -> None:
    async with opened(hang(16, 10)) as (app, pilot):
        await of_rank(app, pilot, 1)
        await press(app, pilot, "enter")
        assert app.screen is app.lanes
        selection = board_of(app).selection
        assert (board_of(app).finding, selection and selection.rank) == (0, 6)


async def test_without_a_finding_enter_goes_to_the_last_operation() -> None:
    async with opened(healthy()) as (app, pilot):
        page = await of_rank(app, pilot, 5)
        assert not page.why.accused
        await press(app, pilot, "enter")
        selection = board_of(app).selection
        assert app.screen is app.lanes
        assert selection is not None
        assert selection.rank == 5


async def test_only_lines_with_what_is_looked_for() -> None:
    async with opened(hang(16, 10)) as (app, pilot):
        await of_rank(app, pilot, 6)
        await press(app, pilot, "slash", *"cleared", "enter")
        assert "clears it" in screen_text(app)
        assert "evidence" not in screen_text(app)


async def test_the_key_is_in_the_footer_and_the_help() -> None:
    async with opened(hang(16, 10)) as (app, pilot):
        assert "W why" in screen_text(app).splitlines()[-1]
        await press(app, pilot, "question_mark")
        assert "why the rank is accused, or why it is not" in screen_text(app)


def test_hostile_text_keeps_to_its_lines() -> None:
    why = RankExplanation(0, True, "f1", EVIL, (Reason("evidence", Evidence(EVIL * 3, EVIL, 0)),))
    lines = why_lines(why, 40)
    assert all(parts.cell_len <= 40 for parts in lines)
    assert all(parts.plain.isprintable() for parts in lines)
