"""The page of stacks over time."""

from __future__ import annotations

from rankscope.analysis.model import Analysis
from rankscope.features.stacks.shares_page import SharesScreen
from tests.builders import JobBuilder
from tests.features.stacks.test_stack_shares import profiled
from tests.tui.detail.show import opened

NOTHING = Analysis(verdict="", status="unknown")


async def test_the_tree_and_the_shares_of_a_call() -> None:
    page = SharesScreen(profiled({0: (100, 0), 1: (50, 0), 2: (20, 80), 3: (100, 0)}), NOTHING)
    async with opened(page):
        title, heads = page.heading()
        assert title.plain == " stacks over time  rank 2: 80% in read data.py:8, the others 0%"
        assert heads.plain == "  mean share      call"
        assert page.search("") == 5 and page.search("read") == 1
        assert page.entry_line(0, 80).plain == "  20% ##            read data.py:8  rank 2: 80%"
        assert [text.plain for text in page.entry_text(0, 80)] == [
            "call  read data.py:8", "share rank 2 80%", "never ranks 0,1,3",
        ]  # fmt: skip


def test_without_stacks_over_time_it_says_how_to_take_them() -> None:
    dataset = JobBuilder(2).build()
    assert SharesScreen.lacks_data(dataset, NOTHING) and SharesScreen(dataset, NOTHING).search("") == 0
