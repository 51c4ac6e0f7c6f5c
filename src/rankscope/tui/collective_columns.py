"""The collectives of a job for the lanes: the column, the members with a row, and the rows of each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.arrays import filled_array, true_mask
from rankscope.analysis.collective_calls import IS_PENDING
from rankscope.analysis.disagreements import collectives_of
from rankscope.schema import Dataset

DENSE = 32
"""A table counts the pairs of instance and rank if there are at most this many pairs for each row."""
SMALL = 1 << 25
"""A table also counts the pairs if there are at most this many in all."""


class Collectives(NamedTuple):
    """The collectives of a job, and their rows of ops."""

    table: pl.DataFrame
    """One row for each, sorted: group, seq, col (its column), members that have a row, pending."""
    places: NDArray[np.int64]
    """The number of each row of the table."""
    rows: NDArray[np.int64]
    """Rows of ops."""
    code: NDArray[np.int64]
    """The number of the collective of each of these rows."""


def collectives(dataset: Dataset, columns: NDArray[np.int64]) -> Collectives:
    """All collectives, with the columns of the rows of ops."""
    mine = collectives_of(dataset.ops)
    known = mine.instances
    code, count = known.code, len(known.group)
    at, col = mine.of(columns), np.full(count, -1, np.int64)
    col[code] = at
    # members have different columns only if they wait for each other in a circle
    apart = np.flatnonzero(at > col[code])
    np.maximum.at(col, code[apart], at[apart])
    pending = np.zeros(count, np.bool_)
    pending[code[np.flatnonzero(mine.of(true_mask(dataset.ops.select(IS_PENDING).to_series())))]] = True
    present = _members(code, mine.of(filled_array(dataset.ops["rank"], -1)), count)
    places = np.flatnonzero(col >= 0)
    table = pl.DataFrame(
        {"group": known.group, "seq": known.seq, "col": col, "present": present, "pending": pending},
        schema_overrides={"group": pl.UInt32, "present": pl.UInt32},
    )
    return Collectives(table[places], places, mine.of(np.arange(dataset.ops.height)), code)


def _members(code: NDArray[np.int64], rank: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """The number of ranks for each code."""
    ranks = int(rank.max(initial=0)) + 2
    pairs = code * ranks + rank + 1
    if count * ranks <= max(SMALL, DENSE * len(code)):
        there = np.zeros(count * ranks, np.bool_)
        there[pairs] = True
        if np.count_nonzero(there) == len(pairs):
            return np.bincount(code, minlength=count)
        counts: NDArray[np.int64] = np.count_nonzero(there.reshape(count, ranks), axis=1)
        return counts
    pairs.sort(kind="stable")
    return np.bincount(pairs[np.flatnonzero(np.diff(pairs, prepend=-1))] // ranks, minlength=count)
