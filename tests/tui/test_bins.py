"""What falls into which cell."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from rankscope.tui.letters import Mark, code, crowded, edges_in, fill_gaps, fill_running, find, worst

VALUES = np.array([0, 2, 4, 1, 1, 9], np.int32)
BOUNDS = np.array([0, 3, 3, 6], np.int64)
CODES = np.array([1, 5, 2, 3, 4, 7], np.uint8)


def test_find_agrees_with_numpy_in_every_lane() -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate([np.sort(rng.integers(0, 50, 40)) for _ in range(10)])
    bounds = np.arange(11, dtype=np.int64) * 40
    for wanted in range(-1, 52):
        found = find(values, bounds[:-1], bounds[1:], np.full(10, wanted))
        expected = [a + np.searchsorted(values[a:b], wanted) for a, b in pairwise(bounds)]
        assert found.tolist() == expected


def test_find_in_nothing() -> None:
    assert find(np.zeros(0, np.int32), np.zeros(2, np.int64), np.zeros(2, np.int64), np.array([1, 2])).tolist() == [
        0,
        0,
    ]


def test_cells_show_the_worst_that_falls_into_them() -> None:
    lanes = np.array([0, 1, 2])
    positions = edges_in(VALUES, BOUNDS, lanes, np.array([0, 2, 4, 6, 10]))
    assert worst(CODES, positions).tolist() == [[1, 5, 2, 0], [0, 0, 0, 0], [4, 0, 0, 7]]
    assert crowded(positions).tolist() == [[False] * 4, [False] * 4, [True, False, False, False]]


def test_lanes_in_any_order_and_windows_beside_everything() -> None:
    positions = edges_in(VALUES, BOUNDS, np.array([2, 0]), np.array([100, 101, 102]))
    assert worst(CODES, positions).tolist() == [[0, 0], [0, 0]]
    positions = edges_in(VALUES, BOUNDS, np.array([2, 0]), np.array([-5, 1, 3]))
    assert worst(CODES, positions).tolist() == [[0, 4], [1, 5]]


def test_worst_agrees_with_a_loop() -> None:
    rng = np.random.default_rng(3)
    values = np.concatenate([np.sort(rng.integers(0, 30, 25)) for _ in range(6)])
    codes = rng.integers(1, 255, len(values)).astype(np.uint8)
    bounds = np.arange(7, dtype=np.int64) * 25
    edges = np.arange(0, 33, 3)
    cells = worst(codes, edges_in(values, bounds, np.arange(6), edges))
    for lane in range(6):
        for cell in range(len(edges) - 1):
            mine = slice(25 * lane, 25 * lane + 25)
            inside = (values[mine] >= edges[cell]) & (values[mine] < edges[cell + 1])
            assert cells[lane, cell] == max(codes[mine][inside].tolist(), default=0)


def test_gaps_are_marked_up_to_where_rows_begin_but_hide_nothing_worse() -> None:
    cells = np.array([[0, 0, code(Mark.DONE)], [0, code(Mark.ABSENT), 0]], np.uint8)
    filled = fill_gaps(cells, np.array([2, 9]), np.array([0, 1, 2, 3]))
    gone = code(Mark.GONE)
    assert filled.tolist() == [[gone, gone, code(Mark.DONE)], [gone, code(Mark.ABSENT), gone]]


def test_what_runs_on_is_shown_where_nothing_starts() -> None:
    assert fill_running(np.array([[0, 9]], np.uint8), np.array([[7, 7]], np.uint8)).tolist() == [[7, 9]]
