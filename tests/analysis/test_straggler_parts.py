"""Medians and most frequent values of many parts at once, against those of each part by itself."""

from __future__ import annotations

import numpy as np
import pytest

from rankscope.analysis.straggler import _medians, _most_frequent


@pytest.mark.parametrize("seed", range(20))
def test_parts_at_once_are_parts_one_by_one(seed: int) -> None:
    chance = np.random.default_rng(seed)
    sizes = chance.integers(0, 9, 12)
    part = np.repeat(np.arange(12), sizes)
    values = chance.integers(0, 5, len(part)).astype(np.int32)
    medians = _medians(values.astype(np.int64), part, 12)
    frequent, times = _most_frequent(values, part, 12)
    for number, size in enumerate(sizes.tolist()):
        own = values[part == number]
        assert medians[number] == (np.median(own) if size else 0)
        assert times[number] == max((np.count_nonzero(own == one) for one in own), default=0)
        assert np.count_nonzero(own == frequent[number]) == times[number]
