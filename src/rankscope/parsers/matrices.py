"""Operations of one file as two matrices: separate numbers, and indices into tables of repeated values."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

NULL = int(np.iinfo(np.int64).min)
"""The value for absent or unknown numbers in number columns."""
_WIDEST, _MOST_KEYS = 1 << 31, 1 << 62
"""Widest range of a column, and most possible rows, for which a key of 64 bits needs no sorting: more is made dense, to
fewer values than there are rows."""


class ColumnMatrix:
    """Access to the columns of both matrices by name."""

    number_names: ClassVar[tuple[str, ...]]
    code_names: ClassVar[tuple[str, ...]]
    numbers: Numbers
    codes: Codes

    def column(self, name: str) -> Numbers:
        """The number column of this name."""
        column: Numbers = self.numbers[self.number_names.index(name)]
        return column

    def code(self, name: str) -> Codes:
        """The code column of this name."""
        column: Codes = self.codes[self.code_names.index(name)]
        return column


def row_keys(*columns: Numbers) -> Numbers:
    """One number for each row of these columns, equal for equal rows only: it is sorted and joined in a fraction of the
    time."""
    key, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if high - low >= _WIDEST:
            column, low, high = _dense(column)  # noqa: PLW2901 - the same column in small numbers
        if size * (high - low + 1) > _MOST_KEYS:
            key, _, highest = _dense(key)
            size = highest + 1
        key, size = key * (high - low + 1) + (column - low), size * (high - low + 1)
    return key


def _dense(values: Numbers) -> tuple[Numbers, int, int]:
    """The place of each value among the distinct ones, the lowest and the highest."""
    distinct, places = np.unique(values, return_inverse=True)
    return places, 0, len(distinct) - 1
