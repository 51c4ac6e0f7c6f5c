"""Counts of parameters that ranks of DDP compare: who differs, and who did not tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load

Count = tuple[int, int, int, int]
"""What rank a with n parameters says of rank b with m: (a, n, b, m)."""


def told(path: Path, *counts: Count, printed_by: int = 0) -> Analysis:
    text = "[rank{0}]: RuntimeError: DDP expects same model across all ranks, but Rank {1} has {2} params, while rank "
    text += "{3} has inconsistent {4} params.\n"
    (path / "job.log").write_text("".join(text.format(one[0] + printed_by, *one) for one in counts))
    return analyse(load([path]))


@pytest.mark.parametrize(
    ("counts", "odd"),
    [
        ([(0, 3, 1, 4), (1, 4, 0, 3), (2, 3, 1, 4)], 1),
        ([(3, 5, 2, 4)], 2),  # it met ranks 0 and 1 before, and they had its own count
        ([(2, 5, 0, 4), (1, 5, 0, 4)], 0),
    ],
)
def test_the_rank_that_differs_from_most(tmp_path: Path, counts: list[Count], odd: int) -> None:
    found = told(tmp_path, *counts)
    assert (found.culprits, found.status) == ((odd,), "mismatch")
    assert found.verdict.startswith(f"DDP wraps different models: rank {odd} with 4 parameters and ranks")


def test_of_two_both_are_named_with_their_counts(tmp_path: Path) -> None:
    found = told(tmp_path, (0, 3, 1, 4), (1, 4, 0, 3))
    assert (found.culprits, found.findings[0].candidates) == ((), (0, 1))
    assert "rank 0 with 3 parameters and rank 1 with 4 parameters" in found.verdict


def test_ranks_of_several_groups_accuse_nobody(tmp_path: Path) -> None:
    assert told(tmp_path, (3, 5, 2, 4), printed_by=8).culprits == ()
    assert told(tmp_path, (3, 5, 2, 4), (3, 7, 2, 6)).culprits == ()


@pytest.mark.parametrize(
    ("counts", "silent"),
    [
        ([(0, 3, 1, 0)], (1,)),
        ([(1, 3, 0, 0), (2, 3, 0, 0)], (0,)),
        ([(0, 3, 1, 0), (1, 3, 0, 0)], ()),  # both came, and neither got the count of the other
        ([(1, 3, 0, 0)], ()),  # the first of an empty memory
        ([(1, 3, 1, 0)], ()),  # not even its own
    ],
)
def test_a_count_of_zero_was_never_received(tmp_path: Path, counts: list[Count], silent: tuple[int, ...]) -> None:
    found = told(tmp_path, *counts)
    assert (found.culprits, found.findings[0].candidates, found.status) == ((), silent, "failed")
