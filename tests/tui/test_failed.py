"""Ranks whose logs tell of a cause are marked in the lanes, those to blame as before."""

from __future__ import annotations

from rankscope.tui.board import Board
from rankscope.tui.help_screen import help_lines, sections
from rankscope.tui.lane_paint import compose, gutter_for
from rankscope.tui.model import build_model
from tests.logs import line, with_logs
from tests.tui.jobs import hang


def test_a_row_with_a_cause_in_a_log_has_its_letter_unless_it_is_to_blame() -> None:
    dataset, analysis = hang(16, 10, culprit=6)
    said = [line(6, "x", "root"), line(9, "x", "root"), line(2, "x", "victim"), line(None, "x", "root")]
    board = Board(build_model(with_logs(dataset, said), analysis), 40, 16)
    board.toggle_fold_all()
    heads = [row.head[1:].split()[0] for row in compose(board, gutter_for(60, 16))[0]]
    assert heads == [{6: "!6", 9: "E9"}.get(rank, str(rank)) for rank in range(16)]


def test_without_logs_no_row_is_marked() -> None:
    board = Board(build_model(*hang(16, 10)), 40, 16)
    assert not any("E" in row.head for row in compose(board, gutter_for(60, 16))[0])


def test_the_help_says_what_the_letter_means() -> None:
    lines = [line.plain.strip() for line in help_lines(sections(), 76)]
    assert "E   not to blame, but a log of one of them names a root cause" in lines
