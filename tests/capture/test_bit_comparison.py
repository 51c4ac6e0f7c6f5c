"""Answers on repetitions, from hashes with planted differences."""

from __future__ import annotations

from typing import Any

import pytest

from rankscope.capture.bit_comparison import (
    LATE,
    MOVED,
    OTHER_INPUTS,
    RECORDED,
    Answer,
    closing,
    code_of,
    is_played,
    judged,
    lines_of,
    variants,
)
from rankscope.capture.determinism import places, size

REDUCTIONS = [("all_reduce", "Float", 64, [0, 1], "dp", 3), ("reduce_scatter", "BFloat16", 64, [0, 1], "dp", 3)]


def told(number: int = 0, turns: int = 3, **planted: Any) -> list[dict[str, Any]]:
    """The files of two ranks with equal results; `planted` changes the one of a `turn`, `rank` and `operation`."""
    files = []
    for turn in range(turns):
        for rank in range(2):
            found = []
            for operation in range(2):
                place = (turn, rank, operation) == (planted.get("turn"), planted.get("rank"), planted.get("operation"))
                parts = ["a", "b"] if operation == 0 else [f"c{rank}", "d"]
                own = {"operation": operation, "place": rank, "owner": rank, "inputs": f"{operation} {rank}",
                       "elements": 64, "parts": parts, "sum": 1.0, "scale": 4.0}  # fmt: skip
                found.append({**own, **(planted["change"] if place else {})})
            files.append({"variant": number, "turn": turn, "rank": rank, "outcomes": found, "error": ""})
    return files


def answer(files: list[dict[str, Any]], number: int = 0, problem: str = "") -> Answer:
    return judged(number, RECORDED if number == 0 else "NCCL_ALGO=Tree", files, REDUCTIONS, problem)


def test_equal_bits_repeat() -> None:
    base = answer(told())
    assert (base.repetitions, base.repeats, base.ranks_equal, base.as_recorded) == (3, True, True, None)
    assert code_of([base]) == 0
    other = answer([*told(), *told(1)], 1)
    assert (other.repeats, other.as_recorded, other.differs) == (True, True, [])


def test_a_planted_difference_is_found_where_it_is() -> None:
    change = {"parts": ["c1", "x"], "sum": 3.0}
    found = answer(told(turn=2, rank=1, operation=1, change=change))
    assert (found.repeats, found.ranks_equal, code_of([found])) == (False, True, 1)
    (first,) = found.differs
    assert first == {"operation": 1, "repetition": 2, "place": 1, "parts": [1], "of": 2, "change": 0.5}
    text = "\n".join(lines_of(found, REDUCTIONS))
    assert "first in operation 2, reduce_scatter, place 1 of the group, repetition 3:" in text
    assert "1 of 2 parts differ from repetition 1; the sum by 5e-01 of its size" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_ranks_with_other_bits_are_told_though_each_repeats() -> None:
    files = told()
    for file in files:
        file["outcomes"][0]["parts"] = ["a", f"b{file['rank']}"]
    found = answer(files)
    assert (found.repeats, found.ranks_equal, code_of([found])) == (True, False, 1)
    assert list(closing([found])) == ["the recorded settings repeat here, but ranks have different bits"]


def test_another_setting_with_other_bits_does_not_change_the_exit_code() -> None:
    files = told(1)
    for file in files:
        file["outcomes"][1]["parts"][1] = "other"
    every = [*told(), *files]
    answers = [answer(every), answer(every, 1)]
    assert (answers[1].repeats, answers[1].as_recorded, code_of(answers)) == (True, False, 0)
    assert "other bits with NCCL_ALGO=Tree" in closing(answers)


def test_settings_that_repeat_are_named_where_the_recorded_ones_do_not() -> None:
    every = [*told(turn=1, rank=0, operation=0, change={"parts": ["x", "b"]}), *told(1)]
    answers = [answer(every), answer(every, 1)]
    assert list(closing(answers)) == [
        "the recorded settings do not repeat bit for bit here", "the same bits each time with NCCL_ALGO=Tree",
    ]  # fmt: skip


def test_other_inputs_are_no_answer() -> None:
    found = answer(told(turn=1, rank=0, operation=0, change={"inputs": "other", "parts": ["x", "y"]}))
    assert (found.repeats, found.error, code_of([found])) == (None, OTHER_INPUTS, 2)


def test_one_repetition_is_no_answer_and_the_reason_is_shown() -> None:
    found = answer(told(turns=1), problem="rank 1 ended with -9")
    assert (found.repeats, code_of([found])) == (None, 2)
    assert "    rank 1 ended with -9" in list(lines_of(found, REDUCTIONS))


def test_operations_that_a_variant_cannot_run_are_told() -> None:
    files = told(1)
    for file in files:
        del file["outcomes"][1]
    found = answer([*told(), *files], 1)
    assert (found.repeats, found.as_recorded, found.left_out) == (True, True, [1])
    assert "    not run: operation 2" in list(lines_of(found, REDUCTIONS))


def test_variants_change_one_setting_each_and_leave_out_what_is_set() -> None:
    names = [one.name for one in variants("nccl", [], {"NCCL_ALGO": "Ring"})]
    assert names[0] == RECORDED and names[-1] == MOVED
    assert "NCCL_ALGO=Ring" not in names and "NCCL_ALGO=Tree" in names
    assert [one.name for one in variants("gloo", [], {})] == [RECORDED, LATE, MOVED]
    (_, own) = variants("nccl", ["NCCL_ALGO=Ring,NCCL_PROTO=LL"], {})
    assert own.changes == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}
    assert is_played("Tree", "all_reduce") and is_played("", "reduce") and not is_played("Tree", "reduce_scatter")


@pytest.mark.parametrize(
    ("elements", "count", "kind", "expected"),
    [(1000, 4, "float32", 1000), (1001, 4, "float32", 1000), (10**12, 3, "bfloat16", 510), (1, 4, "float64", 4)],
)
def test_sizes_are_cut_to_the_limit_and_divisible(elements: int, count: int, kind: str, expected: int) -> None:
    assert size(elements, count, kind, 1 << 10 if elements > 2000 else 1 << 20) == expected


def test_a_group_beyond_the_ranks_here_is_played_by_the_first_ones() -> None:
    assert places([1, 3], 4) == [1, 3]
    assert places([8, 9, 10], 4) == [0, 1, 2]
    assert places([8, 9, 10], 2) == [0, 1]
