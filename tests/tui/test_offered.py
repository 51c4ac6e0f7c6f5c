"""The screen offers and explains: each mark in view stands in the legend, and each tab leads to pages with data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load
from rankscope.schema import Dataset
from rankscope.tui.app import RankscopeApp
from rankscope.tui.detail.screens.page import Page
from tests.tui.drive import act, bar, opened, press, screen_text
from tests.tui.jobs import SHOWN_FAULTS, hang, healthy

SAMPLES = Path(__file__).parents[2] / "sample_data"
REMARK = "<-"
"""Begins the words after the last cell of a row."""


def sample(folder: Path) -> tuple[Dataset, Analysis]:
    """A bundled sample."""
    dataset = load([folder])
    return dataset, analyse(dataset)


FAULTS = {fault.name: fault.job for fault in SHOWN_FAULTS}
JOBS: dict[str, Callable[[], tuple[Dataset, Analysis]]] = {
    **{folder.name: partial(sample, folder) for folder in sorted(SAMPLES.glob("[a-z]*")) if folder.is_dir()},
    **FAULTS,
    "hang": hang,
    "hang without a dump": partial(hang, no_dump=(5, 9)),
    "healthy job": healthy,
}


def explained(legend: str) -> set[str]:
    """The characters that the words of a legend explain."""
    words = [word for line in legend.splitlines() for word in line.strip().split("  ")]
    signs = [word.split()[0] for word in words if word]
    letters = {sign for sign in signs if len(sign) == 1}
    # "a." explains the dot beside a letter, not the letter
    beside = {char for sign in signs if len(sign) == 2 and sign[0].isalpha() for char in sign if not char.isalpha()}
    lower = {letter.lower() for letter in letters if letter.isupper()} if "lower case waits" in words else set[str]()
    return letters | beside | lower


def marks_in_view(app: RankscopeApp) -> set[str]:
    """The characters of the cells in view that are not blank."""
    board, lanes = app.lanes.boards.shown, app.lanes.lanes
    lines, _ = board.compose(lanes.head, lanes.size.height - lanes.ruled)
    return set("".join(line.text.decode().partition(REMARK)[0] for line in lines)) - {" "}


@pytest.mark.parametrize("name", JOBS)
async def test_each_mark_in_view_stands_in_the_legend_and_each_tab_has_data(name: str) -> None:
    async with opened(JOBS[name]()) as (app, pilot):

        def unexplained() -> set[str]:
            legend = bar(app, "legend")
            assert {text.rstrip() for text in legend.splitlines()} <= set(screen_text(app).splitlines()), "it is cut"
            return marks_in_view(app) - explained(legend)

        assert not unexplained(), screen_text(app)
        for keys in (["2"], ["0"], ["t"]):
            await press(app, pilot, *keys)
            assert not unexplained(), f"after {keys}:\n{screen_text(app)}"
        await act(app, pilot, "sites")
        assert not unexplained(), screen_text(app)
        await press(app, pilot, "escape")
        # the pages of the other simulated faults are those of a hang
        for tab in app.lanes.pages.tabs() if name not in FAULTS else ():
            for view in tab.views:
                await press(app, pilot, str(tab.number))
                page = app.screen
                assert isinstance(page, Page) and page.title_text == view
                assert not page.has_class("-empty"), screen_text(app)
            await press(app, pilot, "1")
