"""The state of each single tensor: right, off, explained, after a wrong value."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.features.numbers.rules.model import RULES, NumberMarks, RowState
from rankscope.features.numbers.rules.number_findings import judge_numbers
from rankscope.features.numbers.rules.reference import compare_numbers
from rankscope.schema import Dataset
from tests.features.numbers.rules.test_number_rules import drawn
from tests.numbers_writer import NumbersJob
from tests.tui.detail.number_jobs import WRONG_RANK, WRONG_STEP, recorded


def marks_of(dataset: Dataset) -> NumberMarks:
    marks = judge_numbers(dataset).marks
    assert marks is not None and len(marks.state) == dataset.tensors.height
    return marks


def rows(dataset: Dataset, *wanted: pl.Expr) -> list[int]:
    return dataset.tensors.with_row_index("row").filter(*wanted)["row"].to_list()


def test_outputs_of_a_healthy_run_are_within_their_limits() -> None:
    dataset = recorded(flip=False).dataset()
    marks = marks_of(dataset)
    outs = rows(dataset, pl.col("site") == "collective", pl.col("slot") == "out0")
    assert set(marks.state[outs]) == {RowState.RIGHT}
    assert (marks.value[outs] <= marks.limit[outs]).all() and (marks.limit[outs] > 0).all()
    assert {list(RULES)[rule] for rule in set(marks.rule[outs].tolist())} <= {"R1", "R2", "R3", "R3s"}
    assert set(marks.state[rows(dataset, pl.col("site") == "forward")]) == {RowState.NOT_JUDGED}
    assert marks.roots == () and not marks.after.any()


def test_the_wrong_output_is_marked_alone_and_what_comes_after_is_told() -> None:
    dataset = recorded(flip=True).dataset()
    marks = marks_of(dataset)
    wrong = np.flatnonzero(marks.state == RowState.WRONG).tolist()
    assert wrong == list(marks.roots)
    told = dataset.tensors[wrong].row(0, named=True)
    assert (told["rank"], told["step"], told["slot"]) == (WRONG_RANK, WRONG_STEP, "out0")
    assert list(RULES)[marks.rule[wrong[0]]] == "E1"
    # its own group gets it with the next reduction, the other group never
    after = dataset.tensors.filter(pl.Series(marks.after))
    assert set(after["rank"]) == {3, 4, 5} and after["step"].to_list().count(WRONG_STEP) == 0


def test_a_sum_that_is_wrong_on_all_members_is_marked_on_all() -> None:
    job = NumbersJob({"dp": [0, 1, 2]})
    job.all_reduce("dp", drawn(3), spoil=lambda outs, ins: outs.update(dict.fromkeys(outs, ins[0])))
    dataset = job.dataset()
    marks = marks_of(dataset)
    assert np.flatnonzero(marks.state).tolist() == rows(dataset, pl.col("slot") == "out0")
    assert set(marks.state[marks.state > 0]) == {RowState.WRONG}
    assert (marks.value > marks.limit)[marks.state > 0].all()


def test_two_members_leave_no_room() -> None:
    job = NumbersJob({"dp": [0, 1]})
    job.all_reduce("dp", drawn(2))
    marks = marks_of(job.dataset())
    assert {list(RULES)[rule] for rule in marks.rule[marks.state == RowState.RIGHT]} == {"N2"}


def test_a_stale_input_is_odd_in_its_step_only() -> None:
    job = NumbersJob({"dp": [0, 1, 2]})
    for job.step in range(3):
        ins = drawn(3, seed=job.step)
        ins[1] = drawn(3, seed=0)[1] if job.step == 2 else ins[1]
        job.all_reduce("dp", ins)
        job.all_reduce("dp", drawn(3, seed=10 + job.step))
    dataset = job.dataset()
    told = dataset.tensors.filter(pl.Series(marks_of(dataset).state == RowState.SUSPICIOUS))
    assert told.select("rank", "step", pl.col("slot").cast(pl.String)).rows() == [(1, 2, "in0")]


def test_distances_from_a_reference() -> None:
    dataset, other = recorded(flip=True).dataset(), recorded(flip=False).dataset()
    found = compare_numbers(dataset, other).distances
    assert found is not None
    (first,) = np.flatnonzero(found.first).tolist()
    assert dataset.tensors["rank"][first] == WRONG_RANK and found.roots == (first,)
    assert found.equal.sum() == dataset.tensors.height - 1 and np.isnan(found.limit).all()
    # no sample holds the element: only the hash tells
    assert found.off[first] == 0 < found.norm[first] < 100
