"""Arrays: conversions of columns, and statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

RESAMPLINGS = 500
"""Samples of a bootstrap."""


def filled_array(column: pl.Series, value: int) -> NDArray[Any]:
    """A numeric or boolean column as an array, with `value` in place of null."""
    return (column.fill_null(value) if column.null_count() else column).to_numpy()


def true_mask(column: pl.Series) -> Mask:
    """The places where a boolean column is true; null counts as false."""
    return filled_array(column, False)


def expanded_ranges(starts: Ints, ends: Ints) -> Ints:
    """All integers of the ranges [start, end), one range after another."""
    sizes = ends - starts
    skipped = np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
    places: Ints = np.arange(len(skipped)) + skipped
    return places


def median_interval(values: Ints) -> tuple[int, int]:
    """2.5 % and 97.5 % of the bootstrapped median."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(values, size=(RESAMPLINGS, len(values))), axis=1)
    return int(np.quantile(medians, 0.025)), int(np.quantile(medians, 0.975))
