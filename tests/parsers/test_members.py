"""Members are tuples, kept once, and come across as they were."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankscope.parsers.members import NO_MEMBERS, Members, shared_members, unpack_members


@given(st.lists(st.integers(0, 1 << 18), unique=True))
def test_they_cross_as_they_were(ranks: list[int]) -> None:
    made = shared_members(ranks)
    assert unpack_members(orjson.loads(orjson.dumps(made.packed))) == made == tuple(ranks)
    assert hash(made) == hash(tuple(ranks)) and made.as_set == set(ranks)
    assert made.highest == max(ranks, default=-1)


@pytest.mark.parametrize(
    ("ranks", "packed"),
    [
        (range(16384), "0:1:16384"), (range(3, 64, 8), "3:8:8"), ([5], "5:1:1"),
        ([1, 0], [1, 0]), ([0, 1, 3], [0, 1, 3]), ([], []),
    ],
)  # fmt: skip
def test_equal_steps_are_told_in_three_numbers(ranks: list[int], packed: str | list[int]) -> None:
    assert shared_members(ranks).packed == packed


def test_one_list_is_kept_once() -> None:
    assert shared_members(range(1000)) is shared_members(list(range(1000))) is unpack_members("0:1:1000")
    assert shared_members([]) == NO_MEMBERS != shared_members([0])
    assert Members((1, 2)) != [1, 2] and {Members((1, 2)), (1, 2)} == {(1, 2)}
