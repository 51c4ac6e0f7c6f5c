"""Columns as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray


def filled(column: pl.Series, value: int) -> NDArray[Any]:
    """A column of numbers, or of what is true, with something else for null."""
    return (column.fill_null(value) if column.null_count() else column).to_numpy()


def true_of(column: pl.Series) -> NDArray[np.bool_]:
    """Where a column is true, and not null."""
    return filled(column, False)


def places_of(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """All places of some stretches, one after another."""
    sizes = ends - starts
    skipped = np.repeat(starts - np.cumsum(sizes) + sizes, sizes)
    places: NDArray[np.int64] = np.arange(len(skipped)) + skipped
    return places
