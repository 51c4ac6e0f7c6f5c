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
