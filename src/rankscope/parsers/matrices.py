"""Operations of one file as two matrices: numbers of their own, and codes that point into tables of what repeats."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

NULL = int(np.iinfo(np.int64).min)
"""Stands for what is not there, or not known, in the number columns."""


class ColumnMatrix:
    """Gives the columns of both matrices by their names."""

    number_names: ClassVar[tuple[str, ...]]
    code_names: ClassVar[tuple[str, ...]]
    numbers: Numbers
    codes: Codes

    def column(self, name: str) -> Numbers:
        """A number column."""
        column: Numbers = self.numbers[self.number_names.index(name)]
        return column

    def code(self, name: str) -> Codes:
        """A code column."""
        column: Codes = self.codes[self.code_names.index(name)]
        return column
