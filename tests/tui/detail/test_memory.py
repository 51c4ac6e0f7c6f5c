"""The page of memory, and the arrays behind it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.features.memory.page.memory_grid import MOST_COLUMNS, memory_grids, row_bounds
from rankscope.features.memory.page.memory_page import MemoryScreen
from rankscope.features.memory.page.memory_text import rank_memory
from rankscope.schema import Dataset
from rankscope.schema.tables import MEMORY
from tests.builders import START_NS
from tests.features.memory.rules.test_memory_findings import leak
from tests.memory_writer import GIB, MIB, sampled_job
from tests.tui.detail.show import opened, screen_text
from tests.tui.drive import PLAIN, board_of, press, until, workers_done
from tests.tui.drive import opened as opened_app
from tests.tui.jobs import hang


def rows(*samples: tuple[int, int, int | None]) -> pl.DataFrame:
    """Samples of (rank, step, gibibytes in tensors) on devices of 10 GiB."""
    made = [
        {"rank": rank, "device": "cuda:0", "time_ns": START_NS + step, "step": step, "capacity": 10 * GIB,
         "allocated": None if held is None else held * GIB, "source": "capture"}
        for rank, step, held in samples
    ]  # fmt: skip
    return pl.DataFrame(made, schema=MEMORY)


def test_a_cell_holds_the_most_of_its_samples_and_lasts_until_the_next() -> None:
    (grid,) = memory_grids(rows((0, 0, 1), (0, 2, 3), (1, 0, 5), (1, 1, 2), (1, 3, None), (3, 3, 10)), {})
    assert grid.starts.tolist() == [0, 1, 2, 3] and grid.ranks.tolist() == [0, 1, 3]
    assert [grid.codes("allocated", at, at + 1, 1).tolist() for at in range(3)] == [
        [2, 2, 4, 0], [6, 3, 0, 0], [0, 0, 0, 10],
    ]  # fmt: skip
    assert grid.codes("allocated", 0, 3, 2).tolist() == [6, 10]
    assert grid.worst_series("allocated", 0, 3, slice(0, 2)) == 1
    assert grid.sample_at(0, slice(1, 2), "allocated") == 0 and grid.sample_at(2, slice(0, 1), "allocated") is None
    assert grid.peers_median("allocated", 0, slice(0, 4)) == 7.5 * GIB


def test_ranks_are_compared_within_their_stage() -> None:
    (grid,) = memory_grids(rows((0, 0, 1), (0, 1, 1), (1, 1, 4), (2, 1, 2)), {0: 0, 1: 1, 2: 0})
    assert grid.peers_median("allocated", 0, slice(0, 2)) == 2 * GIB
    assert grid.peers_median("allocated", 1, slice(0, 2)) is None


def test_many_samples_and_a_clock_far_off_stay_bounded() -> None:
    many = rows(*((0, step, step % 10) for step in range(4 * MOST_COLUMNS)))
    (by_step,) = memory_grids(many, {})
    assert len(by_step.starts) == MOST_COLUMNS and by_step.starts.tolist()[:3] == [0, 4, 8]
    far = many.with_columns(step=None, time_ns=pl.when(pl.col("step") == 9).then(-(2**62)).otherwise(2**62))
    (by_time,) = memory_grids(far, {})
    assert not by_time.by_step and set(by_time.places.tolist()) == {0, MOST_COLUMNS - 1}


def test_marked_ranks_have_a_row_of_their_own() -> None:
    alone = np.zeros(8, np.bool_)
    alone[5] = True
    assert row_bounds(np.arange(8), alone, 4).tolist() == [0, 4, 5, 6, 8]
    assert row_bounds(np.arange(1), alone[:1], 4).tolist() == [0, 1]


async def test_the_rank_that_leaks_is_under_the_cursor_and_keys_walk() -> None:
    dataset = sampled_job(leak, ranks=64)
    page = MemoryScreen(dataset, analyse(dataset))
    async with opened(page) as (app, pilot):
        await workers_done(app)
        await pilot.pause()
        assert "rank 2 LEAKS  grows by" in screen_text(app) and page.size_shown == "growth"
        assert page.listing.cursor == 1 and page.listing.count == 10
        await pilot.press("g", "m", "end", "n")
        assert page.size_shown == "allocated" and "no rank is marked below" in screen_text(app)
        await pilot.press("N")
        assert page.listing.cursor == 1
        await pilot.press("u", "plus")
        assert page.listing.count == 64 and page.listing.cursor == 2 and len(page.columns) == 120
        page.find("40")
        await until(pilot, lambda: page.listing.count == 1 and "no leak is found" in screen_text(app))


async def test_where_most_ranks_grow_none_is_marked() -> None:
    dataset = sampled_job(lambda _, step: 20 * GIB + step * 50 * MIB)
    page = MemoryScreen(dataset, analyse(dataset))
    async with opened(page) as (app, pilot):
        await workers_done(app)
        await pilot.pause()
        assert page.marks == [] and "4 of 4 ranks grows" in screen_text(app)
        assert page.size_shown == "growth" and "most ranks grow, so none is" in screen_text(app)


def with_samples(held_s: int) -> tuple[Dataset, Analysis]:
    """The hang, with samples of memory from so many seconds after its start."""
    dataset, _ = hang()
    memory = sampled_job(lambda rank, step: (3 if rank == 4 else 2) * GIB + step, ranks=16, samples=3).memory
    moved = memory.with_columns(time_ns=START_NS + (pl.col("step") + held_s) * 1_000_000_000)
    dataset = replace(dataset, memory=moved)
    return dataset, analyse(dataset)


async def test_enter_goes_to_the_time_in_the_lanes() -> None:
    options = replace(PLAIN, view="memory")
    async with opened_app(with_samples(0), options=options, at_start=MemoryScreen) as (app, pilot):
        await press(app, pilot, "home", "enter")
        board = board_of(app)
        assert app.screen is app.lanes and board.view.kind == "time"
        assert abs(board.unit - START_NS) <= 1_000_000_000


async def test_a_sample_outside_of_the_lanes_says_so() -> None:
    options = replace(PLAIN, view="memory")
    async with opened_app(with_samples(900), options=options, at_start=MemoryScreen) as (app, pilot):
        await press(app, pilot, "enter")
        assert isinstance(app.screen, MemoryScreen) and "and nothing at" in screen_text(app)


def test_messages_alone_are_no_samples_and_mark_their_rank() -> None:
    sample = rows((0, 0, 1), (0, 1, 1))
    failed = rows((3, 0, 9)).with_columns(source=pl.lit("log").cast(MEMORY["source"]), asked=pl.lit(2 * GIB))
    dataset = replace(hang()[0], memory=failed)
    assert MemoryScreen.lacks_data(dataset, hang()[1])
    (mark,) = MemoryScreen(replace(dataset, memory=pl.concat([sample, failed])), hang()[1]).marks
    assert (mark.rank, mark.word, mark.text) == (3, "FAILED", "asked cuda:0 for 2 GiB, and did not get it")


def test_the_detail_of_a_rank_tells_its_peak() -> None:
    analysis = analyse(sampled_job(lambda rank, step: (10 + rank + (step == 7)) * GIB))
    assert rank_memory(analysis, 1) == "cuda:1 12 GiB of 80 GiB at its peak, 11 GiB at last"
    assert rank_memory(analysis, 9) == "" == rank_memory(hang()[1], 1)
