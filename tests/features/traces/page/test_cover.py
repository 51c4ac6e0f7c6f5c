"""Coverage of cells, against counting nanosecond by nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.features.traces.page.busy_time import Cover, cover_of, merged

KEYS = 3
INTERVALS = st.lists(st.tuples(st.integers(0, KEYS - 1), st.integers(0, 40), st.integers(0, 15)), max_size=25)


def made(rows: list[tuple[int, int, int]]) -> Cover:
    key, start, length = (np.array([row[at] for row in rows], np.int64) for at in range(3))
    return cover_of(merged(key, start, start + length), KEYS)


def counted(rows: list[tuple[int, int, int]], key: int, first: int, last: int) -> int:
    return sum(any(k == key and start <= at < start + length for k, start, length in rows) for at in range(first, last))


@settings(deadline=None)
@given(INTERVALS, st.integers(0, 30), st.integers(1, 9))
def test_a_cell_is_covered_as_much_as_counting_says(rows: list[tuple[int, int, int]], first: int, per: int) -> None:
    edges = np.arange(6) * per + first
    keys = np.arange(KEYS)
    found = made(rows).within(keys, np.broadcast_to(edges, (KEYS, 6)))
    wanted = [[counted(rows, k, a, a + per) for a in edges[:-1].tolist()] for k in range(KEYS)]
    assert found.tolist() == wanted


@settings(deadline=None)
@given(INTERVALS)
def test_merged_intervals_stand_apart(rows: list[tuple[int, int, int]]) -> None:
    cover = made(rows)
    for key in range(KEYS):
        own = slice(cover.bounds[key], cover.bounds[key + 1])
        assert (cover.start[own][1:] > cover.end[own][:-1]).all()


def test_nothing_covers_nothing() -> None:
    assert made([]).within(np.array([0]), np.array([[0, 5, 10]])).tolist() == [[0, 0]]


def test_each_row_has_its_own_edges() -> None:
    cover = made([(0, 10, 10), (1, 20, 10)])
    edges = np.array([[10, 15, 20], [20, 25, 40]])
    assert cover.within(np.array([0, 1]), edges).tolist() == [[5, 5], [5, 5]]
