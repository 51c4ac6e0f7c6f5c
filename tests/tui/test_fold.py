"""Ranks that look alike share a row."""

from __future__ import annotations

import numpy as np

from rankscope.tui.order import Rows, cell_looks, fold, running_looks, window_looks


def rows_of(rows: Rows) -> list[list[int]]:
    return [rows.lanes(i).tolist() for i in range(len(rows))]


def test_neighbours_that_look_alike_share_a_row() -> None:
    looks = np.array([1, 1, 2, 1, 1], np.uint64)
    rows = fold(np.arange(5), looks, np.zeros(5, np.bool_))
    assert rows_of(rows) == [[0, 1], [2], [3, 4]]
    assert [rows.row_of(lane) for lane in range(5)] == [0, 0, 1, 2, 2]
    assert rows.leads(1, 9).tolist() == [2, 3]


def test_a_lane_that_stands_alone_is_never_folded() -> None:
    looks = np.ones(5, np.uint64)
    alone = np.array([False, False, True, False, False])
    assert rows_of(fold(np.arange(5), looks, alone)) == [[0, 1], [2], [3, 4]]


def test_no_lanes_make_no_rows() -> None:
    rows = fold(np.zeros(0, np.int64), np.zeros(0, np.uint64), np.zeros(0, np.bool_))
    assert len(rows) == 0
    assert rows.row_of(3) == 0


def test_looks_of_a_window_are_those_of_what_is_in_it() -> None:
    columns = np.array([0, 1, 2, 0, 1, 2, 0, 1, 3], np.int32)
    codes = np.array([9, 8, 7, 5, 8, 7, 9, 8, 7], np.uint8)
    bounds = np.array([0, 3, 6, 9])
    until = np.zeros(3, np.int64)
    sums = running_looks(codes, columns)

    def looks(first: int, last: int) -> list[int]:
        found = window_looks(sums, columns, bounds, until, (first, last))
        return [int(np.flatnonzero(found == look)[0]) for look in found]

    assert looks(0, 3) == [0, 1, 2]
    assert looks(1, 3) == [0, 0, 2]
    assert looks(1, 2) == [0, 0, 0]
    assert looks(0, 2) == [0, 1, 0]
    assert looks(5, 9) == [0, 0, 0]


def test_a_gap_is_part_of_the_look_only_where_it_is_in_view() -> None:
    columns, bounds = np.zeros(0, np.int32), np.zeros(3, np.int64)
    sums = running_looks(np.zeros(0, np.uint8), columns)
    until = np.array([5, 7])
    near = window_looks(sums, columns, bounds, until, (4, 9))
    far = window_looks(sums, columns, bounds, until, (7, 9))
    assert near[0] != near[1]
    assert far[0] == far[1]


def test_cells_look_alike_only_if_they_are_equal() -> None:
    cells = np.array([[1, 2, 0], [2, 1, 0], [1, 2, 0]], np.uint8)
    looks = cell_looks(cells)
    assert looks[0] == looks[2] != looks[1]
