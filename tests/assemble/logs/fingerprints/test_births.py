"""Groups of any size are told by their first lines, and where there are too many ways that is given up in time."""

from __future__ import annotations

from rankscope.assemble.logs.fingerprints.fingerprint_rows import NO_TIME, Fingerprint, PrintedLane
from rankscope.assemble.logs.fingerprints.group_solver import group_choices


def pairs_of_all(ranks: int) -> dict[int, PrintedLane]:
    """All ranks come together in one operation, then neighbours in another."""
    return {
        rank: PrintedLane(rank, prints=[
            Fingerprint(rank, 0, 0, came=1 + rank, left=1 + ranks + rank),
            Fingerprint(rank % 2, 0, 1, came=1 + ranks + rank, left=NO_TIME),
        ])
        for rank in range(ranks)
    }  # fmt: skip


def test_a_group_may_be_larger_than_python_calls_are_deep() -> None:
    ranks = 1010
    (found,) = group_choices(pairs_of_all(ranks))
    assert tuple(range(ranks)) in found and (0, 1) in found and len(found) == 1 + ranks // 2


def test_of_thousands_of_ranks_no_ways_are_tried() -> None:
    assert group_choices(pairs_of_all(5000)) == []
