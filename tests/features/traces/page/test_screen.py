"""The screen with traces, as text and by its keys; `RANKSCOPE_UPDATE_GOLDEN=1` writes the files anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event

import polars as pl
import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.features.traces.page.trace_board import TraceBoard
from rankscope.schema import Dataset
from rankscope.tui.app import RankscopeApp
from rankscope.tui.options import ProgressLike, ViewOptions
from tests.features.traces.page.jobs import traced
from tests.traces import MS, TraceBuilder
from tests.tui.drive import LONGEST_S, PLAIN, act, bar, loaded, loads, opened, press, screen_text, settle, until
from tests.tui.jobs import hang
from tests.tui.test_golden import compare

WIDE = (200, 50)


def below_the_verdict(app: RankscopeApp) -> str:
    """The screen without what the analysis says in words."""
    lines = screen_text(app).splitlines(keepends=True)
    first = next((at for at, line in enumerate(lines) if line.startswith(" overview")), 0)
    return "".join(lines[first:])


@pytest.mark.parametrize(
    ("name", "keys", "size"),
    [
        ("whole", [], (80, 24)), ("zoomed", ["plus"] * 4, (80, 24)), ("lined_up", ["g", "l"] * 2, (80, 24)),
        ("threads", ["g", "u"] * 2, (80, 24)), ("heat", ["5"], (80, 24)), ("breakdown", ["5", "5"], (80, 24)),
        ("path", ["5", "5", "5"], (80, 24)), ("sequence", ["t"], (80, 24)), ("whole", [], WIDE),
        ("heat", ["5", "g", "m"], WIDE),
    ],
)  # fmt: skip
async def test_looks(name: str, keys: list[str], size: tuple[int, int]) -> None:
    async with opened(traced(), size) as (app, pilot):
        await press(app, pilot, *keys)
        text = below_the_verdict(app)
        if name == "breakdown":
            text = text.partition("----")[0]
        compare(f"traces_{name}_{size[0]}x{size[1]}", text)


async def test_many_ranks_are_folded() -> None:
    async with opened(traced(32, 3, slow=9)) as (app, _):
        compare("traces_many_80x24", below_the_verdict(app))


def traces_of(app: RankscopeApp) -> TraceBoard:
    board = app.lanes.boards.shown
    assert isinstance(board, TraceBoard)
    return board


async def test_traces_alone_open_on_the_axis_of_time_on_the_rank_to_blame() -> None:
    async with opened(traced()) as (app, _):
        assert traces_of(app).rank == 2
        assert "4 ranks" in bar(app, "title")
        assert screen_text(app).isascii()


async def test_a_process_without_a_rank_has_none_on_any_page() -> None:
    job = TraceBuilder(1)
    for step in range(3):
        job.begin_step(step + 1)
        for _ in range(3):
            job.host(0, "aten::mm", MS)
            job.launch(0, "gemm", MS)
            job.launch(0, "relu", MS)
        job.end_step()
    dataset = job.build()
    files = dataset.files.with_columns(rank=pl.lit(None, dtype=pl.Int32))
    dataset = replace(dataset, files=files)
    assert dataset.is_rankless
    async with opened((dataset, analyse(dataset))) as (app, pilot):
        for view in ("", "heat", "breakdown", "path"):
            if view:
                app.lanes.open_view(view)
                await settle(app, pilot)
            assert not re.search(r"rank 0|1 rank|^[ >]*0 ", screen_text(app), re.MULTILINE), view


async def test_beside_dumps_the_key_for_the_axis_shows_them() -> None:
    dumps, _ = hang(4, 3, 2)
    traces, _ = traced()
    tables = {name: getattr(traces, name) for name in ("traced", "traces", "tracks", "spans")}
    both = replace(dumps, **tables)
    async with opened((both, replace(analyse(dumps), parts=traced()[1].parts))) as (app, pilot):
        shown = [isinstance(app.lanes.boards.shown, TraceBoard)]
        for _ in range(2):
            await press(app, pilot, "t")
            shown.append(isinstance(app.lanes.boards.shown, TraceBoard))
        assert shown == [False, True, False]


async def test_the_axes_show_the_same_collective() -> None:
    async with opened(traced()) as (app, pilot):
        await press(app, pilot, "g", "l")
        selection = traces_of(app).selection
        await press(app, pilot, "escape", "t")
        assert app.lanes.boards.shown.selection == selection
        await press(app, pilot, "t")
        assert traces_of(app).selection == selection


async def test_a_cell_of_the_heat_map_leads_to_its_step() -> None:
    async with opened(traced()) as (app, pilot):
        await press(app, pilot, "5", "down", "right", "right", "enter")
        board = traces_of(app)
        step = board.lanes.traces.steps.filter(rank=board.rank, step=5).row(0, named=True)
        assert board.unit == step["start_ns"]
        assert board.view.span(board.width) < 1.2 * (step["end_ns"] - step["start_ns"])


async def test_search_walks_over_spans() -> None:
    async with opened(traced()) as (app, pilot):
        await press(app, pilot, "slash", *"rank 2 sleep", "enter")
        board = traces_of(app)
        assert board.lanes.dataset.spans["name"][board.span or 0] == "<built-in function sleep>"
        first = board.unit
        assert "/4" in bar(app, "status")
        await press(app, pilot, "n")
        other = board.unit
        assert other != first
        await press(app, pilot, "slash", *"nothing of the kind", "enter")
        assert board.unit == other
        assert "nothing" in bar(app, "status")


async def test_why_is_answered_from_traces() -> None:
    async with opened(traced()) as (app, pilot):
        await press(app, pilot, "w")
        assert "late by itself in the median step" in screen_text(app)
    async with opened(traced(slow=None)) as (app, pilot):
        await press(app, pilot, "w")
        assert "is not accused: it is" in screen_text(app) and "dump" not in screen_text(app)


async def test_a_window_too_short_for_a_verdict_opens_on_who_came_last_by_most() -> None:
    async with opened(traced(steps=2)) as (app, _):
        board = traces_of(app)
        assert (board.rank, board.finding) == (2, None)
        assert "the last to come" in screen_text(app)
    async with opened(traced(slow=None)) as (app, _):
        assert traces_of(app).rank == 0, "with steps enough nobody is pointed at"


async def test_a_group_can_be_shown_alone() -> None:
    async with opened(traced()) as (app, pilot):
        await press(app, pilot, "f", *"group default_pg", "enter")
        assert "only group default_pg" in bar(app, "status")
        await press(app, pilot, "f", *"default_pg broadcast", "enter")
        assert "nothing is left with" in bar(app, "keys")
        await press(app, pilot, "escape")
        assert "only" not in bar(app, "status")


@pytest.mark.parametrize(
    ("typed", "said"), [("@5", ""), ("99", "no rank 99"), ("@99", "has no step 99"), ("#99", "no matched")]
)
async def test_steps_and_ranks_can_be_gone_to(typed: str, said: str) -> None:
    async with opened(traced()) as (app, pilot):
        await press(app, pilot, "colon", *typed, "enter")
        assert said in bar(app, "keys")
        if not said:
            board = traces_of(app)
            starts = board.lanes.traces.steps.filter(rank=board.rank, step=5)["start_ns"]
            assert board.unit == starts[0]


def sketch(job: tuple[Dataset, Analysis]) -> tuple[Dataset, Analysis]:
    """Only the collectives and steps of a job."""
    dataset, _ = job
    known = pl.col("op").is_not_null() | pl.col("name").cast(pl.String).str.starts_with("ProfilerStep")
    part = replace(
        dataset, spans=dataset.spans.filter(known), traces=dataset.traces.with_columns(detail=pl.lit("collectives")),
        parts=dataset.parts._replace(whole_follows=True),
    )  # fmt: skip
    return part, analyse(part)


async def test_the_view_keeps_its_place_when_the_rest_of_the_traces_comes() -> None:
    go = Event()

    def rest(_: Callable[[ProgressLike], None]) -> tuple[Dataset, Analysis]:
        assert go.wait(LONGEST_S)
        return traced()

    app = RankscopeApp(loads(*sketch(traced())), "traces", PLAIN, rest=rest)
    async with app.run_test(size=(80, 30)) as pilot:
        await until(pilot, lambda: app.screen is not app.opening)
        await pilot.press("plus", "plus", "plus")
        board = traces_of(app)
        assert "reading the rest" in bar(app, "keys")
        assert {row.kind for row in board.rows} == {"communication"}
        rank, unit, view = board.rank, board.unit, board.view
        go.set()
        await settle(app, pilot)
        assert traces_of(app) is board
        assert (board.rank, board.unit, board.view) == (rank, unit, view)
        assert "reading the rest" not in bar(app, "keys")
        assert {row.kind for row in board.rows} >= {"host", "compute", "communication"}


async def test_the_rest_takes_the_place_of_a_part() -> None:
    app = RankscopeApp(loads(*sketch(traced())), "traces", PLAIN, rest=loads(*traced()))
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        assert not traces_of(app).lanes.dataset.has_sparse_traces
        assert {"host", "communication"} <= {row.kind for row in traces_of(app).rows}
        board = traces_of(app)
        assert board.lanes.spans.name_of(board.span or 0) == "<built-in function sleep>", "what made the rank late"


async def test_a_rest_that_cannot_be_read_is_told_and_the_part_stays() -> None:
    def broken(_: Callable[[ProgressLike], None]) -> tuple[Dataset, Analysis]:
        raise OSError("the disk is gone")

    app = RankscopeApp(loads(*sketch(traced())), "traces", PLAIN, rest=broken)
    async with app.run_test(size=(80, 24)) as pilot:
        await loaded(app, pilot)
        assert "the disk is gone" in bar(app, "keys")
        assert traces_of(app).lanes.dataset.has_sparse_traces


async def test_the_merged_trace_is_written_where_the_options_say(tmp_path: Path) -> None:
    from rankscope.features.traces.perfetto import export_merged

    options = ViewOptions(ascii_only=True, palette="none", export_traces=export_merged, export_dir=tmp_path)
    async with opened(traced(), options=options) as (app, pilot):
        await act(app, pilot, "export_traces")
        await act(app, pilot, "export_traces")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["merged_trace-2.json.gz", "merged_trace.json.gz"]
        assert "merged_trace-2" in bar(app, "keys")
