"""Ranks of which there is a file that could not be read: that is said, and accuses nobody."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from rankscope.parsers.assemble.dataset import assemble
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.flight_recorder.decode import decode
from rankscope.report.text import render_text
from rankscope.schema import Dataset
from tests.parsers.dumps import job, named


def waiting(broken: Source | None, without: tuple[int, ...] = (1,)) -> Dataset:
    """Of four ranks those that left a dump wait in #6."""
    made = job(4)
    for recorder in made:
        for _ in range(5):
            recorder.collective()
        recorder.collective(state="scheduled", retired=False)
    files = [(path, data) for rank, (path, data) in enumerate(named(made).items()) if rank not in without]
    sources = [Source(path, "flight-recorder", len(data), None, None, decode(data)) for path, data in files]
    sources += [broken] if broken is not None else []
    return assemble(sorted(sources, key=lambda source: source.shown), "dumps", None, 4, None)


NAME = "nccl_trace_rank_1"


@pytest.mark.parametrize(("kind", "problem"), [("empty", "empty file"), ("unknown", "not a kind that is known")])
def test_the_reason_stands_in_the_place_of_the_dump(kind: str, problem: str) -> None:
    dataset = waiting(Source(NAME, kind, 0, None, problem))
    assert dataset.unread_dumps == {1: (NAME, problem)}
    first = analyse(dataset).findings[0]
    assert (first.kind, first.culprit_ranks, first.candidates, first.confidence) == ("missing-rank", (), (1,), "low")
    assert first.title.startswith("the dump of rank 1 could not be read, and all_reduce #6")
    assert f"that of rank 1 could not ({problem})." in first.explanation
    assert "no dump that can be read of rank 1" in render_text(dataset, analyse(dataset))


def test_a_rank_that_left_nothing_is_accused_as_before() -> None:
    first = analyse(waiting(None)).findings[0]
    assert (first.culprit_ranks, first.title.split(",")[0]) == ((1,), "rank 1 left no dump")


def test_both_kinds_are_told_apart() -> None:
    dataset = waiting(Source(NAME, "empty", 0, None, "empty file"), without=(1, 2))
    first = analyse(dataset).findings[0]
    assert (first.culprit_ranks, first.candidates) == ((), (1, 2))
    assert "that of rank 1 could not (empty file); rank 2 left none" in first.explanation


def test_an_empty_file_of_a_rank_whose_other_dump_was_read_is_no_matter() -> None:
    dataset = waiting(Source(f"old/{NAME}", "empty", 0, None, "empty file"), without=())
    assert dataset.unread_dumps == {}
