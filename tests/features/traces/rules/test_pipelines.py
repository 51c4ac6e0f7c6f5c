"""Which groups are across the stages of a pipeline."""

from __future__ import annotations

import polars as pl
import pytest

from rankscope.features.traces.rules.trace_story import pipeline_groups
from rankscope.schema import Group

GROUPS = (
    Group(0, "0", "default_pg", (0, 1, 2, 3), "config", True),
    Group(1, "1", "DP", (0, 4), "config", False),
    Group(2, "2", "TP", (2, 3), "config", False),
)


def groups(*sends: tuple[int, int]) -> frozenset[int]:
    rows = [{"rank": a, "peer": b, "op": "send", "is_p2p": True} for a, b in sends]
    return pipeline_groups(pl.DataFrame(rows, schema={"rank": int, "peer": int, "op": str, "is_p2p": bool}), GROUPS)


@pytest.mark.parametrize(
    ("sends", "staged"),
    [
        ([(0, 1), (1, 0), (1, 2), (2, 1)], {0}),  # activations and gradients
        ([(0, 1), (1, 2), (2, 3)], {0, 2}),  # inference: one way
        ([(0, 1), (1, 2), (2, 3), (3, 0)], set()),  # a ring
        ([(0, 1), (1, 2), (2, 0), (2, 3)], {0, 2}),  # a ring that hands on
        ([], set()),
    ],
)
def test_stages_are_told_by_who_sends_to_whom(sends: list[tuple[int, int]], staged: set[int]) -> None:
    assert groups(*sends) == staged
