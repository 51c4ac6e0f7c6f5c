"""What must agree between members is found for many rows at once, however many combinations there might be."""

from __future__ import annotations

import random

import pytest

from rankscope.analysis import signatures
from rankscope.analysis.signatures import with_signatures
from tests.builders import JobBuilder

OPS = ("all_reduce", "broadcast", "_all_gather_base", "all_to_all", "barrier", "scatter", "coalesced")


def job(seed: int) -> JobBuilder:
    """Operations of all kinds, some without sizes or types."""
    chance, builder = random.Random(seed), JobBuilder(2)
    for _ in range(60):
        more = {
            "in_dtypes": chance.choice([None, '["Float"]', '["Half"]']),
            "out_sizes": chance.choice([None, "[[3]]"]),
        }
        builder.collective(op=chance.choice(OPS), sizes=f"[[{chance.randrange(4)}]]", **more)  # type: ignore[arg-type]
    return builder


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("combinations", "numbers"), [(1, 1), (1, 1 << 62), (1 << 40, 1 << 62)])
def test_all_ways_to_tell_rows_apart_say_the_same(
    seed: int, combinations: int, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = job(seed).build().ops
    expected = with_signatures(rows)
    by_one = [with_signatures(rows[at]) for at in range(rows.height)]
    told = ["key", "rooted", "elements", "dtype"]
    assert expected.select(told).rows() == [one.select(told).row(0) for one in by_one]
    monkeypatch.setattr(signatures, "MOST_COMBINATIONS", combinations)
    monkeypatch.setattr(signatures, "MOST_NUMBERS", numbers)
    assert with_signatures(rows).equals(expected)
