"""Ranks whose only dump is older than the wait: told of where nothing else explains it, and never accused."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from rankscope.schema import Dataset
from tests.analysis.test_counter_evidence import SECOND, written
from tests.builders import START_NS
from tests.parsers import dumps
from tests.parsers.dumps import Groups, dataset_of, job, named

FIRST = (dumps.START_NS - START_NS) / SECOND


def waiting(library: str = "nccl") -> Dataset:
    """Three of four ranks wait, a second after the last one did anything."""
    made = job(4, library=library)
    for recorder in made:
        for _ in range(5):
            recorder.collective(state="scheduled" if library == "gloo" else "completed", retired=True)
        recorder.clock += SECOND
        if recorder.rank != 1:
            recorder.collective(state="scheduled", retired=False)
    return dataset_of(named(made))


@pytest.mark.parametrize("library", ["nccl", "gloo"])
def test_a_rank_that_dumped_for_the_last_time_before_the_wait_is_a_candidate(library: str) -> None:
    found = analyse(written(waiting(library), {1: FIRST + 0.5}, rest=FIRST + 30)).findings[0]
    assert (found.kind, found.severity, found.culprit_ranks, found.candidates) == ("missing-rank", "critical", (), (1,))
    assert found.title == "rank 1 left no dump since all_reduce #6 of default_pg waits for it"
    assert "The last dump of rank 1 is older than that wait, and 30 s older than the newest dump" in found.explanation


def test_it_is_one_too_where_its_dump_misses_what_it_finished_since() -> None:
    made = job(4)
    for recorder in made:
        for _ in range(5 if recorder.rank == 1 else 9):
            recorder.collective()
        recorder.clock += SECOND
        if recorder.rank != 1:
            recorder.collective(state="scheduled", retired=False)
    found = analyse(written(dataset_of(named(made)), {1: FIRST + 0.5}, rest=FIRST + 30))
    assert (found.culprits, found.findings[0].candidates) == ((), (1,))


def test_a_dump_that_is_a_little_older_makes_no_candidate() -> None:
    dataset = written(waiting(), {1: FIRST + 0.9}, rest=FIRST + 9)
    assert not analyse(dataset).is_critical


def test_a_rank_that_dumped_later_is_accused() -> None:
    assert analyse(written(waiting(), {}, rest=FIRST + 30)).culprits == (1,)


@pytest.mark.parametrize("absent", [2, 3])
def test_a_rank_without_a_dump_may_wait_where_another_root_holds_up_its_group(absent: int) -> None:
    """Ranks 0 and 1 wait for 2 and 3 together; rank 4 waits for the one without a dump in a group of both."""
    groups: Groups = {"1": ("dp", [0, 1, 2, 3]), "2": ("mp", [absent, 4])}
    made = job(5, groups)
    for recorder in made:
        for group in recorder.groups:
            recorder.collective(group)
        waits = {0: "1", 1: "1", 4: "2"}.get(recorder.rank)
        if waits is not None:
            recorder.collective(waits, state="scheduled", retired=False)
    found = analyse(dataset_of(named([recorder for recorder in made if recorder.rank != absent])))
    assert found.culprits == (5 - absent,), found.verdict
