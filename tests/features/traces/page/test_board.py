"""The board of traces: where its cursor is, what is under it, lining up."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from rankscope.features.traces.page.lanes import TraceLanes
from rankscope.features.traces.page.span_facts import heading, look
from rankscope.features.traces.page.trace_board import TraceBoard
from rankscope.schema.tables import SPAN_VALUES
from rankscope.tui.model import Model, build_model
from tests.features.traces.page.jobs import traced


def board_of(world: int = 4, steps: int = 4, slow: int | None = 2, size: tuple[int, int] = (64, 12)) -> TraceBoard:
    model: Model = build_model(*traced(world, steps, slow))
    assert isinstance(model.timed, TraceLanes)
    board = TraceBoard(model.timed, model, *size)
    board.place()
    return board


def name(board: TraceBoard) -> str:
    assert board.span is not None
    return str(board.lanes.dataset.spans["name"][board.span])


def on_collective(board: TraceBoard, rank: int) -> None:
    """Puts the cursor on the first collective of a rank."""
    board.go_rank(rank)
    board.go_row(board.row + 2)
    assert board.rows[board.row].kind == "communication"
    board.go_unit(board.low)
    assert board.go_neighbour(1)


def test_all_parts_are_shown_where_there_is_room() -> None:
    board = board_of(size=(64, 12))
    assert [row.kind for row in board.rows] == ["host", "compute", "communication"] * 4
    low = board_of(size=(64, 9))
    assert len(low.rows) <= 9
    assert {row.lanes[0] for row in low.rows if row.kind} >= {2}, "the rank to blame comes first"


def test_the_whole_run_fills_the_width() -> None:
    board = board_of()
    assert board.view.unit_of(board.width) >= board.high
    assert board.view.unit_of(board.width * 9 // 10) < board.high


def test_spans_are_walked_in_their_row() -> None:
    board = board_of()
    on_collective(board, 0)
    first = board.unit
    assert "AllReduce" in name(board)
    board.zoom(8)
    assert board.go_neighbour(1)
    assert board.unit > first
    assert board.go_neighbour(-1)
    assert board.unit == first
    assert not board.go_neighbour(-1)


def test_zooming_in_keeps_the_span_under_the_cursor() -> None:
    board = board_of()
    board.go_rank(1)
    board.go_row(board.row + 1)
    board.go_unit(board.low)
    wanted = board.span
    assert wanted is not None
    start, end = board.lanes.spans.times(wanted)
    assert not start <= board.unit < end, "at first the cell holds it, but not under its left edge"
    for _ in range(12):
        board.zoom(1)
    assert board.span == wanted


def test_a_collective_is_lined_up_on_all_ranks() -> None:
    board = board_of()
    on_collective(board, 0)
    board.zoom(4)
    before = board.view
    assert board.line_up()
    assert board.lined is not None
    assert [row.lanes[0] for row in board.rows if row.first] == [0, 1, 2, 3]
    assert {row.kind for row in board.rows} == {"host", "compute", "communication"}
    assert board.lined.last == 2
    assert board.lined.late(2) > 25_000_000
    column = board.view.cell_of(board.unit)
    for rank in (1, 2, 3):
        assert board.line_up(1)
        assert board.rank == rank
        assert board.view.cell_of(board.unit) == column
        assert board.span == board.lined.spans[rank]
        assert board.moment == board.lined.arrived[rank]
    assert board.line_up(-1)
    assert board.rank == 2
    assert board.end_line_up()
    assert not board.end_line_up()
    assert board.view.per == before.per
    assert board.rank == 2
    assert board.rows[board.row].kind == "communication"


def test_from_elsewhere_the_next_collective_of_the_rank_is_lined_up() -> None:
    board = board_of()
    board.go_rank(3)
    board.go_unit(board.low)
    board.zoom(6)
    assert board.line_up()
    assert board.rank == 3


def test_a_rank_alone_has_nothing_to_line_up() -> None:
    assert not board_of(world=1, slow=None).line_up()


def test_what_a_kernel_is_told_of() -> None:
    board = board_of()
    on_collective(board, 0)
    sight = look(board)
    assert sight is not None
    assert sight.op is not None
    assert sight.op["op"] == "all_reduce"
    matched = board.lanes.traces.matched.filter(pl.col("row") == board.lanes.spans.op[board.span or 0])
    assert sight.op["seq"] == matched["seq"][0], "the number by which `:` goes there"
    assert [member.rank for member in sight.members][-1] == 2
    assert sight.stack[0] == "cudaLaunchKernel"
    assert sight.stack[-1].startswith("ProfilerStep#")
    assert sight.launched_ns is not None
    assert 0 < sight.launched_ns < 10_000_000
    assert sight.step is not None
    assert sight.step["step"] == 3


def test_what_python_was_doing_is_told_of_the_host() -> None:
    board = board_of()
    board.go_rank(2)
    board.go_unit(board.low + 15_000_000)
    sight = look(board)
    assert sight is not None
    assert sight.name == "built-in function sleep"
    assert sight.stack[:2] == ("load data.py:12", "step train.py:20")


def test_idle_is_idle() -> None:
    board = board_of()
    board.go_rank(2)
    board.go_row(board.row + 1)
    board.go_unit(board.low + 15_000_000)
    board.zoom(6)
    sight = look(board)
    assert sight is not None
    assert sight.span is None
    assert sight.stack[0] == "built-in function sleep"


def test_a_span_of_the_host_is_of_the_step_of_its_host_though_the_device_is_behind() -> None:
    board = board_of()
    board.go_rank(0)
    assert board.rows[board.row].kind == "host"
    board.go_unit(board.low)
    assert board.go_neighbour(1)
    sight = look(board)
    assert sight is not None and sight.step is not None
    steps = board.lanes.traces.steps
    later = steps.with_columns(pl.col("start_ns", "end_ns") + (pl.col("end_ns") - pl.col("start_ns")).max())
    board.lanes = replace(board.lanes, traces=replace(board.lanes.traces, steps=later))
    behind = look(board)
    assert behind is not None and behind.step is not None
    assert behind.step["step"] == sight.step["step"]


def test_unfolding_goes_by_steps_and_the_cursor_stays_on_its_span() -> None:
    board = board_of()
    board.levels = {}
    board.refold()
    board.toggle_fold_all()
    on_collective(board, 1)
    wanted = board.span
    board.toggle_fold()
    assert board.rows[board.row].strand >= 0
    assert board.span == wanted
    board.toggle_fold()
    assert board.rows[board.row].kind == ""
    board.toggle_fold()
    assert board.rows[board.row].kind == "communication"


def test_ranks_that_are_alike_share_a_row_until_asked_for() -> None:
    board = board_of(world=16, size=(64, 10))
    folded = [row for row in board.rows if len(row.lanes) > 1]
    assert folded
    board.go_row(board.rows.index(folded[0]))
    count = len(folded[0].lanes)
    before = len(board.rows)
    board.toggle_fold()
    assert len(board.rows) == before + count - 1


@pytest.mark.parametrize("rank", [0, 3])
def test_the_selection_is_that_of_the_sequence(rank: int) -> None:
    board = board_of()
    on_collective(board, rank)
    selection = board.selection
    assert selection is not None
    assert (selection.rank, selection.group, selection.seq) == (rank, 0, 0)
    assert selection.row is not None
    assert board.model.dataset.ops["rank"][selection.row] == rank


def test_more_of_the_same_traces_keeps_the_place() -> None:
    board = board_of()
    on_collective(board, 1)
    board.zoom(5)
    view, unit, span = board.view, board.unit, board.span
    board.replace_model(build_model(*traced(4, 4, 2)))
    assert (board.view, board.unit, board.rank, board.span) == (view, unit, 1, span)


def test_between_collectives_the_selection_is_the_one_that_is_held_up() -> None:
    board = board_of()
    board.go_rank(2)
    board.go_unit(board.low + 15_000_000)
    assert board.span is not None and board.lanes.spans.op[board.span] < 0, "it sleeps"
    assert board.selection is not None and (board.selection.group, board.selection.seq) == (0, 0)


def test_a_copy_tells_what_it_moves_and_how_fast() -> None:
    board = board_of()
    board.go_rank(2)
    board.go_unit(board.low + 15_000_000)
    assert board.span is not None
    rows = [(board.span, "bytes", 3 << 20), (board.span, "memory bandwidth (GB/s)", 12.5)]
    values = pl.DataFrame(rows, schema=SPAN_VALUES, orient="row")
    board.lanes = replace(board.lanes, dataset=replace(board.lanes.dataset, span_values=values))
    sight = look(board)
    assert sight is not None and sight.copied == "3 MiB at 12.5 GB/s"
    assert "3 MiB at 12.5 GB/s" in heading(sight).plain
