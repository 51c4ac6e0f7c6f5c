"""Windows on both axes, and zooming."""

from __future__ import annotations

import pytest

from rankscope.tui.axis import View, centre, clamp, fit, reveal, zoom


def test_edges_follow_each_other() -> None:
    view = View("sequence", 10, 4, 1)
    assert view.edges(5).tolist() == [10, 14, 18, 22, 26, 30]
    assert view.cell_of(13) == 0
    assert view.cell_of(14) == 1
    assert view.unit_of(2) == 18


def test_wide_cells_take_room() -> None:
    view = View("sequence", 0, 1, 8)
    assert view.cells(63) == 7
    assert view.span(63) == 7


@pytest.mark.parametrize("kind", ["sequence", "time"])
def test_zooming_out_and_in_again_ends_where_it_began(kind: str) -> None:
    view = View("sequence", 100, 1, 2) if kind == "sequence" else View("time", 10_000, 1000, 1)
    far = zoom(view, -5, 110)
    assert far.per > view.per
    near = zoom(far, 5, 110)
    assert (near.per, near.chars) == (view.per, view.chars)


def test_the_anchor_keeps_its_place() -> None:
    view = View("sequence", 100, 1, 2)
    for steps in (-3, -1, 1, 2):
        changed = zoom(view, steps, 120)
        assert abs(changed.cell_of(120) * changed.chars - 40) <= changed.chars + 1


def test_time_zooms_in_steps_of_1_2_5() -> None:
    seen = []
    view = View("time", 0, 1, 1)
    for _ in range(7):
        seen.append(view.per)
        view = zoom(view, -1, 0)
    assert seen == [1, 2, 5, 10, 20, 50, 100]
    assert zoom(View("time", 0, 1, 1), 3, 0).per == 1


def test_the_nearest_cell_is_sixteen_wide() -> None:
    assert zoom(View("sequence", 0), 20, 5).chars == 16


@pytest.mark.parametrize("high", [1, 30, 31, 63, 64, 2000, 1_000_000])
def test_fit_shows_everything_and_no_more_than_it_must(high: int) -> None:
    view = fit("sequence", 0, high, 63)
    assert view.unit_of(view.cells(63)) >= high
    if view.per > 1:
        half = View("sequence", 0, view.per // 2, 1)
        assert half.unit_of(half.cells(63)) < high


def test_clamp_keeps_the_window_on_the_run() -> None:
    view = View("sequence", -50, 1, 2)
    assert clamp(view, 0, 100, 60).first == 0
    assert clamp(View("sequence", 500), 0, 100, 60).first == 70
    assert clamp(View("sequence", 500), 0, 100, 60, beyond=6).first == 76
    assert clamp(View("sequence", 5), 0, 10, 60).first == 0


def test_clamp_never_cuts_off_the_last_column() -> None:
    for per in (1, 2, 4, 8):
        view = clamp(View("sequence", 10_000, per, 1), 0, 1001, 60)
        assert view.cell_of(1000) < view.cells(60)


def test_reveal_moves_no_further_than_it_must() -> None:
    view = View("sequence", 100, 1, 1)
    assert reveal(view, 130, 60) == view
    assert reveal(view, 99, 60).first == 97
    assert reveal(view, 160, 60).first == 103


def test_centre_puts_the_unit_at_its_share() -> None:
    assert centre(View("sequence", 0, 1, 1), 100, 60, 0.5).first == 70
