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
_MOST_ROWS = 1 << 62
"""Most possible rows that a number of 64 bits tells apart."""


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
    """One number for each row of these columns, equal for equal rows: it is sorted and joined in a fraction of the
    time."""
    number, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if size * (high - low + 1) >= _MOST_ROWS:
            column = np.unique(column, return_inverse=True)[1]  # noqa: PLW2901 - the same column in small numbers
            low, high = 0, int(column.max())
        number, size = number * (high - low + 1) + (column - low), size * (high - low + 1)
    return number
