"""Lanes of two runs on one axis: equal operations in one column, marks only where the runs differ."""

from __future__ import annotations

import numpy as np

from rankscope.features.comparison.page.aligned_lanes import common_axis, equal_stretches
from rankscope.features.comparison.rules.schedule_comparison import align
from rankscope.tui.letters import SHIFT, Mark
from rankscope.tui.model import Model
from tests.features.comparison.page.views import view_of


def test_a_longer_stretch_of_one_run_moves_the_other() -> None:
    axis = common_axis(np.array([0, 1, 2, 3]), np.array([0, 1, 4, 5]))
    assert axis.place(0, np.arange(5)).tolist() == [0, 1, 4, 5, 6]
    assert axis.place(1, np.arange(7)).tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_windows_that_begin_apart_meet_in_the_same_columns() -> None:
    axis = common_axis(np.array([5, 6, 7]), np.array([0, 1, 2]))
    assert axis.place(0, np.array([0, 5, 7])).tolist() == [0, 5, 7]
    assert axis.place(1, np.array([0, 2])).tolist() == [5, 7]


def test_columns_keep_their_order_where_pairs_cross() -> None:
    axis = common_axis(np.array([0, 1, 1, 2, 2, 3]), np.array([0, 3, 3, 1, 1, 4]))
    for side in (0, 1):
        assert (np.diff(axis.place(side, np.arange(6))) > 0).all()


def test_stretches_are_the_equal_operations() -> None:
    a, b = np.array([1, 2, 3, 4, 5, 6, 7, 8]), np.array([1, 2, 9, 9, 4, 5, 6, 7, 8])
    found = align(a, b)
    pairs = [(i + n, j + n) for i, j, length in equal_stretches(found, len(a), len(b)) for n in range(length)]
    assert pairs and all(a[i] == b[j] for i, j in pairs) and len(pairs) == found.equal


def test_equal_operations_share_a_column_and_only_others_are_marked() -> None:
    lanes = view_of().lanes
    assert lanes is not None
    rows = np.flatnonzero(lanes.partner_in_b >= 0)
    assert np.array_equal(lanes.a.columns[rows], lanes.b.columns[lanes.partner_in_b[rows]])
    ranks = len(lanes.a.ranks)
    # another size in both runs, and one operation that only B has
    assert (_marked(lanes.a), _marked(lanes.b), _marked(lanes.joined)) == (ranks, 2 * ranks, 2 * ranks)
    assert [place.ranks for place in lanes.places] == [tuple(range(ranks))] * 2


def _marked(model: Model) -> int:
    return int(np.isin(model.items.code >> SHIFT, (Mark.MISMATCH, Mark.MISMATCH_PENDING)).sum())


def test_equal_runs_have_no_marks() -> None:
    lanes = view_of(changed=False).lanes
    assert lanes is not None and lanes.places == () and _marked(lanes.joined) == 0
    assert np.array_equal(lanes.a.items.col, lanes.b.items.col)
