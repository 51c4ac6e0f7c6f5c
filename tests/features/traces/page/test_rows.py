"""Rows: folding of ranks that look alike, and unfolding into parts and threads."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.features.traces.page.lanes import TraceLanes
from rankscope.features.traces.page.trace_rows import FOLDED, PARTS, SINGLE, STRANDS, Row, alike, build_rows
from rankscope.tui.model import build_model
from tests.features.traces.page.jobs import traced


def lanes_of(world: int = 4) -> TraceLanes:
    lanes = build_model(*traced(world)).timed
    assert isinstance(lanes, TraceLanes)
    return lanes


CODES = np.array([[1] * 100, [1] * 92 + [2] * 8, [1] * 91 + [2] * 9, [1] * 100], np.uint8)


def test_neighbours_that_look_nearly_alike_share_a_row() -> None:
    rows = build_rows(lanes_of(), range(4), {}, CODES, frozenset())
    assert [row.lanes for row in rows] == [(0, 1), (2, 3)] or [row.lanes for row in rows] == [(0, 1), (2,), (3,)]
    assert alike(CODES[0], CODES[1])
    assert not alike(CODES[0], CODES[2])


def test_those_to_blame_share_a_row_with_nobody() -> None:
    same = np.ones((4, 10), np.uint8)
    assert [row.lanes for row in build_rows(lanes_of(), range(4), {}, same, frozenset())] == [(0, 1, 2, 3)]
    assert [row.lanes for row in build_rows(lanes_of(), range(4), {}, same, frozenset({1}))] == [(0,), (1,), (2, 3)]


def test_levels_decide_how_many_rows_a_rank_has() -> None:
    lanes, same = lanes_of(), np.ones((4, 10), np.uint8)
    rows = build_rows(lanes, range(4), {1: SINGLE, 2: PARTS, 3: STRANDS}, same, frozenset())
    assert [(row.lanes, row.kind) for row in rows[:2]] == [((0,), ""), ((1,), "")]
    assert [row.kind for row in rows if row.lanes == (2,)] == ["host", "compute", "communication"]
    names = [lanes.strands[row.strand].name for row in rows if row.strand >= 0]
    assert names == ["thread 100 (python)", "stream 7", "stream 20"]


@pytest.mark.parametrize("level", [FOLDED, PARTS, STRANDS])
def test_every_rank_has_a_first_row(level: int) -> None:
    lanes = lanes_of()
    rows = build_rows(lanes, range(4), dict.fromkeys(range(4), level), None, frozenset())
    assert [row.lanes[0] for row in rows if row.first] == [0, 1, 2, 3]


def test_the_order_is_kept() -> None:
    rows = build_rows(lanes_of(), [3, 0], {}, None, frozenset())
    assert rows == [Row((3,)), Row((0,))]
