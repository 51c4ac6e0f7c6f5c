"""By how many columns lanes that are made anew have moved."""

from __future__ import annotations

from rankscope.tui.live.anchor import shift
from rankscope.tui.model import Model
from tests.builders import JobBuilder
from tests.tui.jobs import model_of


def lanes(groups: dict[str, list[int]], done: list[tuple[str, int]]) -> Model:
    """A job with these groups that issued collectives, each with its sequence number, one after another."""
    job = JobBuilder(4, groups)
    for name, seq in done:
        job.collective(name, seq=seq)
    return model_of(job)


def test_what_a_ring_has_let_go_moves_the_rest() -> None:
    before = lanes({"a": [0, 1]}, [("a", seq) for seq in range(1, 9)])
    after = lanes({"a": [0, 1]}, [("a", seq) for seq in range(4, 12)])
    assert [shift(before, after, column) for column in (0, 3, 7)] == [-3, -3, -3]


def test_groups_are_known_by_name_and_members_whatever_their_numbers() -> None:
    before = lanes({"a": [0, 1], "b": [2, 3]}, [("a", 1), ("a", 2), ("b", 1), ("b", 2)])
    after = lanes({"b": [2, 3], "a": [0, 1]}, [("a", 2), ("b", 2), ("b", 3)])
    assert shift(before, after, 1) == -1
    same_name = lanes({"b": [1, 3]}, [("b", seq) for seq in range(1, 7)])
    assert shift(before, same_name, 1) == same_name.width - before.width


def test_groups_that_are_gone_are_not_taken_for_each_other() -> None:
    before = lanes({"a": [0, 1], "b": [2, 3]}, [("a", 1), ("b", 1), ("a", 2), ("b", 2)])
    after = lanes({"c": [0, 1, 2], "z": [3]}, [("c", seq) for seq in range(1, 20)] + [("z", 1), ("z", 2)])
    assert shift(before, after, 0) == after.width - before.width


def test_the_collective_under_the_cursor_stays_where_others_of_its_column_have_moved() -> None:
    groups = {"a": [0, 1], "b": [2, 3]}
    before = lanes(groups, [("a", 1), ("a", 2), ("b", 1), ("b", 2)])
    after = lanes(groups, [("a", 2), ("b", 1), ("b", 2)])
    assert shift(before, after, 1, reference=(1, 2)) == -1
    assert shift(before, after, 1, reference=(2, 2)) == 0
    assert shift(before, after, 1, reference=(1, 99)) in (-1, 0)


def test_where_nothing_is_left_the_newest_stays_the_newest() -> None:
    before = lanes({"a": [0, 1]}, [("a", seq) for seq in range(1, 5)])
    after = lanes({"a": [0, 1]}, [("a", seq) for seq in range(100, 107)])
    assert shift(before, after, 3) == 3
