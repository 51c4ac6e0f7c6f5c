"""Traces that are empty, torn, out of all proportion or nobody's; and keys pressed at random."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.analysis.model import Analysis
from rankscope.features.traces.page.lanes import TraceLanes
from rankscope.features.traces.page.shown_traces import ShownTraces, strip_of
from rankscope.features.traces.page.span_facts import look, sight_lines
from rankscope.features.traces.page.trace_paint import compose, gutter_for
from rankscope.features.traces.page.trace_ruler import step_line, time_line
from rankscope.schema import Dataset
from rankscope.tui.filters import Filter
from rankscope.tui.footer import lane_words
from rankscope.tui.model import build_model
from rankscope.tui.timeline import MOVES
from tests.features.traces.page.jobs import traced

UNKNOWN = Analysis("nothing is known", "unknown")


def drawn(board: ShownTraces) -> list[str]:
    """All that the screen shows of a board, lines of one width each."""
    gutter = gutter_for(80, board.lane_count)
    lines = [line.text.decode("ascii") for line in compose(board, gutter)[0]]
    assert all(len(line) == board.width for line in lines)
    assert all(len(line) == board.width for line in (step_line(board, board.width), time_line(board, board.width)))
    for height in (3, 30):
        sight_lines(look(board), 60, height)
    assert all(lane_words(board, Filter(), None))
    return lines


def board_of(dataset: Dataset, analysis: Analysis = UNKNOWN) -> ShownTraces:
    model = build_model(dataset, analysis)
    assert isinstance(model.timed, TraceLanes)
    board = ShownTraces(model.timed, model, 64, 12)
    board.place()
    assert len(strip_of(model.timed, 70).text) == 70
    return board


def test_traces_without_a_span() -> None:
    dataset, _ = traced()
    board = board_of(replace(dataset, spans=dataset.spans.clear(), tracks=dataset.tracks.clear()))
    assert board.span is None
    assert all(not line.strip(" .|") for line in drawn(board))
    assert not board.go_neighbour(1)
    assert not board.line_up()


def test_traces_of_nobody() -> None:
    dataset, _ = traced()
    nobody = pl.lit(None, pl.Int32).alias("rank")
    board = board_of(
        replace(dataset, traces=dataset.traces.with_columns(nobody), tracks=dataset.tracks.with_columns(nobody))
    )
    assert board.rows == []
    assert drawn(board) == []
    assert board.selection is None
    for move in MOVES.values():
        move(board)


@pytest.mark.parametrize("length", [0, -5, 2**62])
def test_lengths_out_of_all_proportion(length: int) -> None:
    dataset, analysis = traced()
    drawn(board_of(replace(dataset, spans=dataset.spans.with_columns(duration_ns=pl.lit(length, pl.Int64))), analysis))


@pytest.mark.parametrize("start", [-(2**62), 0, 2**63 - 1])
def test_times_out_of_all_proportion(start: int) -> None:
    dataset, analysis = traced()
    odd = pl.when(pl.int_range(pl.len()) % 7 == 3).then(pl.lit(start, pl.Int64)).otherwise("start_ns")
    board = board_of(replace(dataset, spans=dataset.spans.with_columns(start_ns=odd)), analysis)
    drawn(board)
    board.zoom(6)
    drawn(board)


def test_a_depth_that_is_a_lie_ends_the_search() -> None:
    dataset, analysis = traced()
    board = board_of(replace(dataset, spans=dataset.spans.with_columns(depth=pl.lit(60_000, pl.UInt16))), analysis)
    drawn(board)


def test_control_characters_in_names_reach_no_line() -> None:
    dataset, analysis = traced()
    evil = pl.lit("\x1b]0;x\x07[red]\u202e", pl.Categorical)
    board = board_of(replace(dataset, spans=dataset.spans.with_columns(name=evil)), analysis)
    board.zoom(8)
    assert all(line.isprintable() for line in drawn(board))
    for parts in sight_lines(look(board), 80, 30):
        assert parts.plain.isprintable()


KEYS = st.lists(
    st.sampled_from([*MOVES, "line_up", "line_up_back", "end_line_up", "smaller", "larger"]), min_size=5, max_size=40
)


@settings(max_examples=25, deadline=None)
@given(KEYS)
def test_any_keys_leave_a_screen(keys: list[str]) -> None:
    board = board_of(*traced(6, 3, 2))
    sizes = {"smaller": (3, 1), "larger": (150, 40)}
    others = {
        "line_up": lambda: board.line_up(1),
        "line_up_back": lambda: board.line_up(-1),
        "end_line_up": board.end_line_up,
    }
    for key in keys:
        if key in sizes:
            board.resize(*sizes[key])
        elif key in others:
            others[key]()
        else:
            MOVES[key](board)
        drawn(board)
        assert 0 <= board.row < len(board.rows)
        assert board.lane in board.rows[board.row].lanes
        assert board.top <= board.row < board.top + board.height
        assert board.low <= board.unit < board.high
        assert board.view.per >= 1
