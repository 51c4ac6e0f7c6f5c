"""Moving about in the lanes, without a screen."""

from __future__ import annotations

import pytest

from rankscope.tui.letters import NUMBER, Mark, code, letter_number
from rankscope.tui.model import build_model
from rankscope.tui.selection import Selection
from rankscope.tui.shown_operations import ShownOperations
from rankscope.tui.timeline import MOVES
from rankscope.tui.times import build_times
from tests.builders import JobBuilder
from tests.tui.jobs import hang, healthy, model_of


@pytest.fixture
def board() -> ShownOperations:
    """The end of a hang of 16 ranks over 31 columns."""
    board = ShownOperations(build_model(*hang(16, 10)), width=40, height=5)
    board.go_unit(30)
    return board


def shown(board: ShownOperations) -> list[list[int]]:
    return [board.ranks_of(row) for row in range(len(board.rows))]


def rank(board: ShownOperations) -> int:
    return int(board.model.ranks[board.lane])


def test_ranks_fold_around_the_culprit(board: ShownOperations) -> None:
    assert shown(board) == [[0, 1, 2, 3], [4, 5], [6], [7], list(range(8, 16))]


def test_the_culprit_stands_alone_even_where_all_look_alike(board: ShownOperations) -> None:
    board.go_unit(0)
    assert shown(board) == [[0, 1, 2, 3, 4, 5], [6], list(range(7, 16))]


def test_many_culprits_share_rows_with_each_other_only() -> None:
    board = ShownOperations(build_model(*healthy()), width=40, height=5)
    board.blamed = frozenset(range(4))
    board.refold()
    assert shown(board) == [[0], [1], [2], [3], [4, 5, 6, 7]]
    wide = ShownOperations(model_of(_plain(64)), width=40, height=5)
    wide.blamed = frozenset(range(20))
    wide.refold()
    assert shown(wide) == [list(range(20)), list(range(20, 64))]


def _plain(world: int) -> JobBuilder:
    job = JobBuilder(world)
    job.collective("0")
    return job


def test_unfolding_and_folding_back(board: ShownOperations) -> None:
    board.go_row(0)
    board.toggle_fold()
    assert shown(board)[:5] == [[0], [1], [2], [3], [4, 5]]
    board.go_row(2)
    board.toggle_fold()
    assert shown(board)[0] == [0, 1, 2, 3]
    assert board.row == 0
    board.toggle_fold_all()
    assert len(board.rows) == 16
    board.toggle_fold_all()
    assert len(board.rows) == 5


def test_the_cursor_keeps_its_rank_while_lanes_fold(board: ShownOperations) -> None:
    board.go_rank(10)
    for unit in (0, 30, 5, 28):
        board.go_unit(unit)
        assert rank(board) == 10
        assert board.top <= board.row < board.top + board.height


def test_rows_stop_at_both_ends(board: ShownOperations) -> None:
    board.go_row(-5)
    assert (board.row, board.top) == (0, 0)
    board.go_row(99)
    assert board.row == len(board.rows) - 1


def test_paging_keeps_the_cursor_in_view(board: ShownOperations) -> None:
    board.toggle_fold_all()
    for name in ("top", "page_down", "page_down", "page_up", "bottom", "up"):
        MOVES[name](board)
        assert board.top <= board.row < board.top + board.height
    assert board.row == 14


def test_the_cursor_stays_on_the_run(board: ShownOperations) -> None:
    board.go_cell(-500)
    assert (board.unit, board.view.first) == (0, 0)
    board.go_cell(500)
    assert board.unit == board.model.width - 1
    assert 0 <= board.view.cell_of(board.unit) < board.view.cells(board.width)


def test_neighbours_are_walked_one_by_one(board: ShownOperations) -> None:
    board.go_rank(6)
    board.go_unit(0)
    seen = [board.unit]
    while board.go_neighbour(1):
        seen.append(board.unit)
    assert seen == list(range(32))
    assert board.go_neighbour(-1)
    assert board.unit == 30


def test_neighbours_are_walked_when_zoomed_out(board: ShownOperations) -> None:
    board.go_unit(0)
    board.zoom(-4)
    steps = 0
    while board.go_neighbour(1):
        steps += 1
    assert 0 < steps <= 31
    assert board.unit == 31


def test_what_is_selected(board: ShownOperations) -> None:
    board.blame(0)
    board.go_rank(6)
    found = board.selection
    assert found == Selection(6, None, 2, 11, False, 0, "never issued")
    board.go_rank(5)
    assert board.selection is not None
    assert board.selection.row is not None
    assert board.model.dataset.ops["rank"][board.selection.row] == 5


def test_selecting_where_nothing_is() -> None:
    board = ShownOperations(model_of(JobBuilder(0)))
    assert board.selection is None
    for move in MOVES.values():
        move(board)
    assert board.selection is None


def test_a_lane_without_a_dump_says_why() -> None:
    board = ShownOperations(build_model(*hang(8, 2, no_dump=(6,))), 40, 5)
    board.go_rank(6)
    board.go_unit(1)
    assert board.selection == Selection(6, absence="no dump")


def test_zooming_keeps_the_cursor_in_view(board: ShownOperations) -> None:
    for steps in (1, 1, 1, -1, -5, 3, -9, 12):
        board.zoom(steps)
        assert 0 <= board.view.cell_of(board.unit) < board.view.cells(board.width)


def test_zooming_out_ends_with_the_whole_run(board: ShownOperations) -> None:
    board.zoom(-30)
    whole = board.view
    board.zoom_fit()
    assert board.view == whole
    assert (whole.first, whole.chars) == (0, 1)


def test_zoom_is_undone_step_by_step(board: ShownOperations) -> None:
    first = board.view
    board.zoom(2)
    second = board.view
    board.zoom_fit()
    assert board.undo_zoom()
    assert board.view == second
    assert board.undo_zoom()
    assert board.view == first
    assert not board.undo_zoom()


def test_zooming_to_the_marker(board: ShownOperations) -> None:
    board.go_unit(10)
    MOVES["marker"](board)
    board.go_unit(20)
    MOVES["zoom_selection"](board)
    assert board.view.first <= 10
    assert board.view.first + board.view.span(board.width) > 20
    assert board.view.chars >= 2
    board.go_unit(10)
    MOVES["marker"](board)
    assert board.marker is None


def test_time_and_back_keeps_the_operation(board: ShownOperations) -> None:
    board.go_rank(5)
    board.go_unit(12)
    before = board.selection
    board.show_time(build_times(board.model))
    assert board.selection == before
    board.zoom(5)
    assert board.selection == before
    board.show_sequence()
    assert board.selection == before


def test_time_zooms_to_the_collective_under_the_cursor(board: ShownOperations) -> None:
    board.go_unit(12)
    board.show_time(build_times(board.model))
    span = board.span_of_instance()
    assert span is not None
    board.zoom_to(*span)
    assert board.view.span(board.width) < 20 * (span[1] - span[0])
    assert 0 <= board.view.cell_of(board.unit) < board.view.cells(board.width)


def test_members_of_the_collective_under_the_cursor(board: ShownOperations) -> None:
    board.go_rank(5)
    lanes = board.rows.leads(0, 16)
    members = dict(zip([board.ranks_of(i)[0] for i in range(len(lanes))], board.members_at_cursor(lanes), strict=True))
    assert members == {0: False, 4: True, 6: True, 7: True, 8: False}


@pytest.mark.parametrize(
    ("ordering", "first"),
    [("rank", 0), ("distance", 6), ("group", 0), ("host", 0), ("alike", 6)],
)
def test_orders(board: ShownOperations, ordering: str, first: int) -> None:
    board.set_order(ordering)  # type: ignore[arg-type]
    assert board.ranks_of(0)[0] == first
    assert sorted(rank for row in shown(board) for rank in row) == list(range(16))


def test_lanes_that_look_alike_are_brought_together(board: ShownOperations) -> None:
    board.set_order("alike")
    assert shown(board) == [[6], [0, 1, 2, 3, *range(8, 16)], [4, 5, 7]]


def test_members_of_the_group_in_question_come_before_the_rest(board: ShownOperations) -> None:
    board.blame(0)
    board.set_order("alike")
    assert shown(board) == [[6], [4, 5, 7], [0, 1, 2, 3, *range(8, 16)]]


def test_rows_that_do_not_fit_are_ordered_by_look_and_those_that_fit_by_rank(board: ShownOperations) -> None:
    board.blame(0)
    assert board.settle(5)
    assert (board.ordering, board.top) == ("rank", 0)
    board.blame(0)
    assert board.settle(4)
    assert (board.ordering, shown(board)[0]) == ("alike", [6])
    assert not board.settle(4), "nothing has changed"


def test_no_move_changes_the_order(board: ShownOperations) -> None:
    board.blame(0)
    board.settle(3)
    before = board.rows.order.tolist()
    for move in (-30, 5, 30):
        board.go_cell(move)
        assert not board.settle(3)
        assert board.rows.order.tolist() == before


def test_an_order_that_the_user_has_chosen_stays(board: ShownOperations) -> None:
    board.set_order("host")
    board.blame(0)
    board.settle(1)
    assert board.ordering == "host"


def test_ordering_by_group_follows_the_group_under_the_cursor() -> None:
    job = JobBuilder(4, {"tp0": [0, 1], "tp1": [2, 3], "dp0": [0, 2], "dp1": [1, 3]})
    for group in ("tp0", "tp1", "dp0", "dp1"):
        job.descriptions[group] = group[:2] + "_" + group[2:]
        job.collective(group)
    board = ShownOperations(model_of(job), 40, 5)
    board.toggle_fold_all()
    board.go_unit(1)
    board.set_order("group")
    assert [row[0] for row in shown(board)] == [0, 2, 1, 3]


def test_resizing_keeps_cursor_and_row_in_view(board: ShownOperations) -> None:
    board.toggle_fold_all()
    board.go_row(12)
    for size in ((8, 2), (200, 50), (1, 1), (40, 5)):
        board.resize(*size)
        assert board.top <= board.row < board.top + board.height


def test_resizing_keeps_the_cursor_at_its_share(board: ShownOperations) -> None:
    board.go_unit(15)
    board.resize(20, 5)
    board.centre(0.5)
    for width in (40, 10, 20):
        board.resize(width, 5)
        assert abs(board.view.cell_of(15) / board.view.cells(width) - 0.5) <= 0.2


def test_codes_of_the_row_are_those_of_its_ranks(board: ShownOperations) -> None:
    item = board.item
    assert item is not None
    assert int(board.model.items.code[item]) & NUMBER == letter_number("all_reduce") or int(
        board.model.items.code[item]
    ) == code(Mark.ABSENT)
