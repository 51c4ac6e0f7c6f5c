"""Watchdog lines of torch 2.3 and older, which name no process group."""

from __future__ import annotations

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Finding
from tests.features.logs.rows.job import job, source
from tests.features.logs.rows.test_reports import status, timeout


def found(*lines: str) -> Finding:
    return analyse(job(source("train.log", lines))).findings[0]


def waits(rank: int, seq: int = 95, op: str | None = None, place: int | None = None) -> str:
    """Rank 2 waits in another operation than the others; `place`: the rank in a group that a line tells."""
    line = timeout(rank, seq, op or ("BROADCAST" if rank == 2 else "ALLREDUCE"))
    return line if place is None else line.replace(f"[Rank {rank}]", f"[Rank {place}]")


def test_the_mismatch_is_said_and_that_it_rests_on_one_group() -> None:
    first = found(*(waits(rank) for rank in range(4)))
    assert (first.kind, first.culprit_ranks, first.seq, first.confidence) == ("collective-mismatch", (2,), 95, "low")
    assert first.title == "rank 2 issued broadcast and the others all_reduce at #95"
    assert any("do not name the group" in reason for reason in first.confidence_reasons)


def test_nobody_is_accused_where_lines_are_of_several_groups() -> None:
    two_works = [line for rank in range(4) for line in (waits(rank), waits(rank, 12, "ALLGATHER"))]
    other_places = [waits(rank, place=rank % 2) for rank in range(4)]
    for lines in (two_works, other_places):
        first = found(*lines)
        assert (first.kind, first.culprit_ranks, first.confidence) == ("collective-mismatch", (), "low")
        assert first.candidates == (0, 1, 2, 3)
        assert any("there are several" in reason for reason in first.confidence_reasons)


@pytest.mark.parametrize(("places", "told"), [(range(4), True), ((0, 1, 0, 1), False)])
def test_who_is_behind_is_told_by_numbers_of_one_group_only(places: tuple[int, ...], told: bool) -> None:
    lines = [waits(rank, 90 if rank == 2 else 95, "ALLREDUCE", place) for rank, place in enumerate(places)]
    assert ("furthest behind" in found(*lines).explanation) == told


def test_of_several_places_the_title_tells_who_is_furthest_behind() -> None:
    first = found(*(waits(rank, seq, "ALLREDUCE", rank) for rank, seq in ((0, 95), (1, 97), (2, 90), (3, 99))))
    assert "and others elsewhere, [Rank 2] of its group is furthest behind, at #90" in first.title
    assert "others wait in #99" in first.explanation and first.culprit_ranks == ()


def named(rank: int, seq: int, group: str = "0 PG GUID 0(default_pg)") -> str:
    """The counters that name the group of a rank's work."""
    return status(rank, seq, seq, seq - 1, group)


def suspects(*files: tuple[str, ...]) -> tuple[set[int], set[int]]:
    """The ranks that any finding of these logs accuses, and those that any suspects."""
    analysis = analyse(job(*(source(f"{i}.log", lines) for i, lines in enumerate(files))))
    culprits = {rank for f in analysis.findings for rank in f.culprit_ranks}
    return culprits, {rank for f in analysis.findings for rank in f.candidates}


@pytest.mark.parametrize("apart", [False, True], ids=["one log", "a log of each rank"])
@pytest.mark.parametrize("who", [(2,), (0,), (2, 3)])
def test_a_line_that_names_a_group_takes_no_answer_away(who: tuple[int, ...], apart: bool) -> None:
    """Others name none; the group is that of the work with their number, although one is in another operation."""
    lines = [(waits(rank, 8412), *((named(rank, 8412),) if rank in who else ())) for rank in range(4)]
    files = lines if apart else [tuple(line for own in lines for line in own)]
    assert suspects(*files) == ({2}, set())


def test_a_member_that_says_nothing_makes_the_odd_one_a_suspect_only() -> None:
    lines = [waits(1, 8412), waits(2, 8412), waits(3, 8412), named(2, 8412)]
    assert suspects(tuple(lines)) == (set(), {2})


def test_two_alike_sides_accuse_nobody() -> None:
    both = [timeout(rank, 8412, "BROADCAST" if rank > 1 else "ALLREDUCE") for rank in range(4)]
    assert suspects((*both, named(3, 8412))) == (set(), {0, 1, 2, 3})


def test_works_of_several_groups_with_one_low_number_are_not_put_together() -> None:
    tp = "3 PG GUID 7(tp)"
    lines = [waits(rank, 5) for rank in range(4)]
    assert suspects((*lines, named(2, 5), named(3, 9, tp))) == (set(), set())
    assert suspects((*lines, named(2, 5), named(2, 5, tp))) == (set(), set())


def test_who_failed_elsewhere_in_the_group_is_not_put_there() -> None:
    lines = [waits(rank, 8412) for rank in (0, 1, 2, 3)]
    culprits, _ = suspects((*lines, named(0, 8412), named(2, 8300)))
    assert 2 not in culprits
