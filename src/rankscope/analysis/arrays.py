"""Conversions of columns to arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray


def filled_array(column: pl.Series, value: int) -> NDArray[Any]:
    """A numeric or boolean column as an array, with `value` in place of null."""
    return (column.fill_null(value) if column.null_count() else column).to_numpy()


def true_mask(column: pl.Series) -> NDArray[np.bool_]:
    """The places where a boolean column is true; null counts as false."""
    return filled_array(column, False)


def expanded_ranges(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """All integers of the ranges [start, end), one range after another."""
    sizes = ends - starts
    skipped = np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
    places: NDArray[np.int64] = np.arange(len(skipped)) + skipped
    return places
