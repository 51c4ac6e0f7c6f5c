"""Memory below the lanes: its cells at the time scale of the lanes, and the key that draws it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from textual.pilot import Pilot

from rankscope.analysis import analyse
from rankscope.features.memory.page.memory_track import MemoryTrack, build_track
from rankscope.features.traces.page.trace_board import TraceBoard
from rankscope.schema import Dataset
from rankscope.schema.tables import MEMORY
from rankscope.tui.app import RankscopeApp
from tests.builders import START_NS
from tests.memory_writer import GIB
from tests.traces import TraceBuilder
from tests.tui.drive import act, board_of, opened, press, screen_text
from tests.tui.jobs import hang

MS = 1_000_000
EDGES = np.arange(0, 7, dtype=np.int64)[None, :] * 10


def samples(*told: tuple[int, int, int | None], device: str = "cuda:0", source: str = "capture") -> pl.DataFrame:
    """Samples of (rank, nanoseconds, gibibytes) on devices of 10 GiB."""
    held = "reserved" if device == "host" else "allocated"
    made = [
        {"rank": rank, "device": device, "time_ns": time, "capacity": None if device == "host" else 10 * GIB,
         held: None if size is None else size * GIB, "source": source}
        for rank, time, size in told
    ]  # fmt: skip
    return pl.DataFrame(made, schema=MEMORY)


def track_of(memory: pl.DataFrame, offsets: dict[int, int] | None = None) -> MemoryTrack:
    """The track of samples, which has some."""
    track = build_track(memory, offsets or {})
    assert track is not None
    return track


def shown(track: MemoryTrack, *ranks: list[int]) -> list[str]:
    """The cells of rows of ranks."""
    return [bytes(row).decode() for row in track.cells(ranks, EDGES).text]


def test_a_cell_shows_the_most_and_lasts_to_the_next_sample() -> None:
    track = track_of(samples((0, 12, 2), (0, 18, 4), (0, 41, 1), (1, 0, 9), (1, 59, 10)))
    assert shown(track, [0], [1], [0, 1], [7]) == [" 4444 ", "999999", "999999", " " * 6]
    assert (track.held_at([0], 20), track.held_at([0, 1], 60), track.held_at([0], 12)) == ("4 GiB", "10 GiB", "")


def test_times_are_brought_to_the_clock_of_the_lanes() -> None:
    assert shown(track_of(samples((0, 112, 5), (0, 139, 5)), {0: 100}), [0]) == [" 555  "]


def test_rows_may_have_edges_of_their_own() -> None:
    track = track_of(samples((0, 12, 2), (1, 12, 3)))
    cells = track.cells([[0], [1]], np.concatenate([EDGES, EDGES + 10]))
    assert [bytes(row).decode() for row in cells.text] == [" 2    ", "3     "]


def test_a_device_goes_before_the_host_and_the_capture_before_traces() -> None:
    both = pl.concat([samples((0, 5, 3)), samples((0, 5, 9), device="host"), samples((0, 25, 8), source="profiler")])
    assert shown(track_of(both), [0]) == ["3     "]
    alone = track_of(samples((0, 5, 1), (1, 5, 2), device="host"))
    assert shown(alone, [0], [1]) == ["5     ", "9     "] and alone.note == "host in tenths of 2 GiB, the most"
    assert build_track(samples((0, 5, None)), {}) is None


def watched_memory(world: int = 16) -> Dataset:
    """The hang, with samples of each rank while it runs."""
    dataset, _ = hang()
    told = ((rank, START_NS + at * MS, 1 + rank % 8) for rank in range(world) for at in range(0, 400, 20))
    return replace(dataset, memory=samples(*told))


async def until_drawn(app: RankscopeApp, pilot: Pilot[None]) -> list[str]:
    """The lines of the lanes with memory below them."""
    await press(app, pilot, "g", "m")
    await press(app, pilot, "home")
    return screen_text(app).splitlines()


def drawn(app: RankscopeApp) -> tuple[bool, bool]:
    """Whether the board has a track, and whether it is drawn."""
    board = board_of(app)
    return board.track is not None, board.has_memory


async def test_the_key_draws_memory_on_the_axis_of_time_and_takes_it_away() -> None:
    dataset = watched_memory()
    async with opened((dataset, analyse(dataset))) as (app, pilot):
        lines = await until_drawn(app, pilot)
        board = board_of(app)
        assert board.view.kind == "time" and board.has_memory
        lane = next(at for at, text in enumerate(lines) if "!6" in text)
        assert lines[lane + 1].split()[:2] == ["7", "GiB"] and "777" in lines[lane + 1]
        assert "cuda in tenths of the capacity" in "".join(lines)
        assert board.height <= max(app.lanes.lanes.size.height // 2, 1)
        await press(app, pilot, "t")
        assert drawn(app) == (True, False) and "GiB" not in "\n".join(screen_text(app).splitlines()[4:8])
        await press(app, pilot, "g", "m")
        assert drawn(app) == (True, True)
        await press(app, pilot, "g", "m")
        assert drawn(app) == (False, False)


async def test_a_click_on_memory_goes_to_its_lane() -> None:
    dataset = watched_memory()
    async with opened((dataset, analyse(dataset)), (120, 40)) as (app, pilot):
        await until_drawn(app, pilot)
        await pilot.click("#lanes", offset=(40, app.lanes.lanes.ruled + 3))
        await pilot.pause()
        assert board_of(app).row - board_of(app).top == 1


async def test_without_times_the_key_says_so() -> None:
    async with opened(hang()) as (app, pilot):
        await act(app, pilot, "memory")
        assert "no sample of memory has a time" in screen_text(app) and board_of(app).track is None


@pytest.mark.parametrize("size", [(80, 30), (160, 50)])
async def test_traces_have_one_line_of_memory_for_each_rank(size: tuple[int, int]) -> None:
    job = TraceBuilder(2)
    for number in range(4):
        job.begin_step(number)
        for rank in range(2):
            job.launch(rank, "gemm", 5 * MS)
        job.collective("0")
        job.end_step()
    dataset = job.build()
    spans = dataset.spans.select(low=pl.col("start_ns").min(), high=(pl.col("start_ns") + pl.col("duration_ns")).max())
    low, high = spans.row(0)
    told = [(rank, at, 3 + rank) for rank in range(2) for at in range(low, high, (high - low) // 9)]
    dataset = replace(dataset, memory=samples(*told))
    async with opened((dataset, analyse(dataset)), size) as (app, pilot):
        await press(app, pilot, "g", "m")
        board = app.lanes.boards.shown
        assert isinstance(board, TraceBoard) and board.has_memory
        lines = screen_text(app).splitlines()
        assert [sum(digit * 20 in text for text in lines) for digit in "34"] == [1, 1]
        await press(app, pilot, "t")
        await press(app, pilot, "t")
        assert board.has_memory
