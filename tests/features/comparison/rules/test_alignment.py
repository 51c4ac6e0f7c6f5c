"""Alignment of sequences of codes."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.features.comparison.rules.schedule_comparison import MOST_PARTINGS, Alignment, Parting, align

LOOP = [1, 2, 3, 4, 5, 6, 7]


def aligned(a: list[int], b: list[int], first_a: int | None = 0, first_b: int | None = 0) -> Alignment:
    numbers = [None if first is None else np.arange(first, first + len(x)) for x, first in ((a, first_a), (b, first_b))]
    return align(np.array(a, np.int64), np.array(b, np.int64), *numbers)


@pytest.mark.parametrize(
    ("b", "parting"),
    [
        ([1, 2, 9, *LOOP[2:], *LOOP], Parting(2, 2, 0, 1, True)),
        ([1, 2, *LOOP[3:], *LOOP], Parting(2, 2, 1, 0, True)),
        ([1, 2, 9, *LOOP[3:], *LOOP], Parting(2, 2, 1, 1, True)),
        ([1, 3, 2, *LOOP[3:], *LOOP], Parting(1, 1, 2, 2, True)),
        ([1, 2, 9, 8, 9, 8], Parting(2, 2, 12, 4, False)),
    ],
    ids=["more", "fewer", "other", "order", "nothing fits"],
)
def test_one_parting(b: list[int], parting: Parting) -> None:
    assert aligned(LOOP * 2, b).partings == (parting,)


def test_a_loop_that_turned_more_often_goes_on() -> None:
    found = aligned(LOOP * 3, LOOP * 5)
    assert (found.partings, found.equal, found.left_a, found.left_b) == ((), 21, 0, 14)


def test_each_turn_with_a_change_is_counted_up_to_a_limit() -> None:
    other = [1, 2, 9, *LOOP[3:]]
    assert len(aligned(LOOP * 5, other * 5).partings) == 5
    assert len(aligned(LOOP * 90, other * 90).partings) == MOST_PARTINGS


def test_windows_are_laid_on_each_other_by_number() -> None:
    found = aligned(LOOP * 4, (LOOP * 4)[10:20], 0, 10)
    assert (found.placed, found.start, found.equal, found.left_a) == ("number", (10, 0), 10, 8)


def test_windows_without_a_common_number_are_laid_on_each_other_by_content() -> None:
    found = aligned(LOOP * 4, LOOP * 4, 0, 3 + 28)
    assert (found.placed, found.partings, found.shift) == ("content", (), 0)


def test_operations_before_the_windows_shift_the_numbers() -> None:
    rare = [*range(10, 40)]
    found = aligned(rare, rare[2:], 100, 105)
    assert (found.placed, found.shift, found.partings) == ("content", 3, ())


def test_sequences_without_a_common_operation_are_not_placed() -> None:
    assert aligned([1, 2, 3], [4, 5, 6], 10, 20).placed == "none"
    assert aligned([], [1], None, None).placed == "none"
