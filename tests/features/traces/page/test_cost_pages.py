"""The pages of collectives, and of annotations and modules."""

from __future__ import annotations

from typing import Any

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.features.traces.page.collectives_page import CollectivesScreen
from rankscope.features.traces.page.ranges_page import RangesScreen
from rankscope.schema import Dataset
from rankscope.tui.selection import GroupFilter, Selection
from tests.features.traces.rules.test_collectives import SIZES, exchanging
from tests.features.traces.rules.test_ranges import annotated
from tests.tui.drive import opened, press, screen_text, settle

SCREENS = [(80, 24), (160, 45)]


def judged(dataset: Dataset) -> tuple[Dataset, Analysis]:
    return dataset, analyse(dataset)


@pytest.mark.parametrize("size", SCREENS)
async def test_sizes_ranks_and_pairs_follow_one_another(size: tuple[int, int]) -> None:
    async with opened(judged(exchanging(SIZES)), size) as (app, pilot):
        app.lanes.open_view("collectives")
        await settle(app, pilot)
        sizes = screen_text(app)
        assert "all_to_all 25 KiB default_pg" in sizes and "busbw" in sizes and "busiest rank sends 1.7 times" in sizes
        assert ("Float" in sizes) == (size[0] > 100)
        await press(app, pilot, "g", "m")
        assert "how often it was that" in screen_text(app)
        await press(app, pilot, "g", "m")
        pairs = screen_text(app)
        assert "tenths of 38 KiB" in pairs and "from 2 9 3 ." in pairs and "from 0 . 1 5" in pairs
        await press(app, pilot, "g", "m")
        assert screen_text(app) == sizes


@pytest.mark.parametrize("size", SCREENS)
async def test_annotations_then_modules(size: tuple[int, int]) -> None:
    async with opened(judged(annotated().build()), size) as (app, pilot):
        app.lanes.open_view("annotations")
        await settle(app, pilot)
        text = screen_text(app)
        assert "forward" in text and "nn.Module" not in text and "annotations  of a step" in text
        await press(app, pilot, "g", "m")
        assert "Linear_0" in screen_text(app)
        await press(app, pilot, "g", "m")
        text = screen_text(app)
        assert "classes of modules" in text and "Linear_0" not in text and "Linear" in text


@pytest.mark.parametrize(
    ("page", "wanted", "found"),
    [("sizes", "all_to", 1), ("sizes", "nothing", 0), ("ranks", "2", 1), ("pairs", "2", 5), ("pairs", "default", 9)],
)
def test_rows_are_found(page: Any, wanted: str, found: int) -> None:
    screen = CollectivesScreen(*judged(exchanging(SIZES)))
    screen.part = page
    assert sum(screen.has(row, wanted) for row in screen.rows()) == found


def test_enter_leads_to_a_group_or_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[Any] = []
    for kind in (CollectivesScreen, RangesScreen):
        monkeypatch.setattr(kind, "dismiss", lambda _, result: gone.append(result))
    screen = CollectivesScreen(*judged(exchanging(SIZES)))
    for part in ("sizes", "pairs"):
        screen.part = part
        screen.shown = screen.rows()
        screen.choose(0)
    ranges = RangesScreen(*judged(annotated().build()))
    ranges.shown = ranges.rows()
    ranges.choose(0)
    assert gone == [GroupFilter(0), Selection(2), Selection(1)]


def test_without_times_the_pages_say_what_brings_them() -> None:
    dataset, analysis = judged(annotated().build())
    bare = Analysis(analysis.verdict, analysis.status)
    assert CollectivesScreen.lacks_data(dataset, bare) and RangesScreen.lacks_data(dataset, bare)
    assert not RangesScreen.lacks_data(dataset, analysis)
