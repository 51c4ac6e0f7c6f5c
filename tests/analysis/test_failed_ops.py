"""Operations of gloo that are retired because they failed make no culprits of those that stopped there."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.schema import Dataset
from tests.analysis.test_counter_evidence import SECOND, written
from tests.builders import START_NS
from tests.parsers import dumps
from tests.parsers.dumps import Groups, dataset_of, job, named

HALVES: Groups = {"0": ("default_pg", [0, 1, 2, 3]), "1": ("half", [0, 1]), "2": ("half", [2, 3])}


def halves(size_of_1: int = 8, came: Collection[int] = (0,), left: Collection[int] = (0, 1, 2, 3)) -> Dataset:
    """After some good steps, of the first half only `came` enter its last operation, which fails on them; the second
    half goes on to the next step, in which nobody of the first comes."""
    made = job(4, HALVES, library="gloo")
    for recorder in made:
        own = "1" if recorder.rank < 2 else "2"
        for _ in range(5):
            recorder.collective("0", state="scheduled", retired=True)
            recorder.collective(own, state="scheduled", retired=True)
        if recorder.rank > 1 or recorder.rank in came:
            size = [[size_of_1 if recorder.rank == 1 else 8]]
            recorder.collective(own, state="scheduled", retired=True, input_sizes=size, output_sizes=size)
        if recorder.rank > 1:
            recorder.collective("0", state="scheduled", retired=False)
    return dataset_of(named([recorder for recorder in made if recorder.rank in left]))


def stopped(dataset: Dataset) -> Analysis:
    """The analysis, with dumps that were written long after."""
    return analyse(written(dataset, {}, rest=(dumps.START_NS - START_NS) / SECOND + 30))


@pytest.mark.parametrize("judge", [stopped, analyse])
def test_who_stopped_because_a_peer_never_came_is_no_culprit(judge: Callable[[Dataset], Analysis]) -> None:
    found = judge(halves())
    assert found.culprits == (1,)
    assert found.verdict == "rank 1 never issued all_reduce #6 of default_pg; 2 ranks wait"


def test_who_stopped_because_a_peer_died_is_no_culprit() -> None:
    found = stopped(halves(left=(0, 2, 3))).findings[0]
    assert (found.kind, found.culprit_ranks, found.confidence) == ("missing-rank", (1,), "medium")


def test_what_others_went_on_from_has_not_failed() -> None:
    made = job(4, library="gloo")
    for recorder in made:
        for _ in range(5):
            recorder.collective("0", state="scheduled", retired=True)
        if recorder.rank != 1:
            recorder.collective("0", state="scheduled", retired=False)
    assert stopped(dataset_of(named(made[:3]))).culprits == (1,)


def test_who_stopped_because_sizes_differ_is_no_culprit_of_what_follows() -> None:
    (cause, *rest) = stopped(halves(size_of_1=9, came=(0, 1))).findings
    assert (cause.kind, cause.waiting_ranks) == ("size-mismatch", (2, 3))
    assert [f for f in rest if f.root_cause] == []


@pytest.mark.parametrize(("after", "status"), [(30, "unknown"), (0, "progressing")])
def test_what_ended_and_a_member_never_issued_is_not_called_finished_by_all(after: float, status: str) -> None:
    made = job(4, library="gloo")
    for recorder in made:
        for _ in range(5 if recorder.rank == 3 else 6):
            recorder.collective(state="scheduled", retired=True)
    dataset = written(dataset_of(named(made)), {}, rest=(dumps.START_NS - START_NS) / SECOND + after)
    found = analyse(dataset)
    assert (found.status, found.findings) == (status, ())
    assert found.verdict == (
        "rank 3 has not issued #6 of default_pg, which others finished: it failed, or its dump is older"
    )
