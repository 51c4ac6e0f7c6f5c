"""Collector of the rows of another tool's record, and the words that its values share."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from math import prod
from typing import Any

from rankscope.features.numbers.read.decode import MOST_ROWS, NONE, LineColumns, NumbersLine
from rankscope.features.numbers.read.model import NumbersContent, NumbersGroup, NumbersHeader
from rankscope.parsers.contents import StackFrame
from rankscope.text.wording import plural

BATCH_ROWS = 4096
"""Rows that are turned into columns at once."""
MOST_DIMENSIONS = 16
LARGEST = 1 << 62
"""Bound of a number of elements, of a step and of a size."""
DTYPES = {
    "float64": "f64", "double": "f64", "float32": "f32", "float": "f32", "float16": "f16", "half": "f16",
    "bfloat16": "bf16", "int64": "i64", "long": "i64", "int32": "i32", "int": "i32", "int16": "i16", "int8": "i8",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "bool", "complex64": "c64",
    "complex128": "c128", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}  # fmt: skip
"""Short names of element types, by the name that torch and MindSpore print."""
UNSET = re.compile(r"(?:^|[.:])_?(?:new_)?empty(?:_|\b|$)|resize_")
"""Operations that give memory which nothing has written yet: its values mean nothing."""


class RecordRows:
    """Rows of one file of another tool, in their order, which is the program order."""

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.lost: Counter[str] = Counter()
        """Lines or entries that are left out, by the reason."""
        self.ends: list[str] = []
        """Reasons why the rest of the file is not read."""
        self._columns = LineColumns()
        self._columns.headers.append(NumbersHeader(None, tool, None, "", None, None))
        self._rows: list[NumbersLine] = []
        self._lines: list[int] = []
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether the file has as many rows as are read."""
        return self._count >= MOST_ROWS

    def add(self, line: int, **values: Any) -> None:
        """Adds a row with the columns of `NumbersLine`, up to the limit."""
        if self.is_full:
            self.ends = [f"more than {plural(MOST_ROWS, 'tensor')}: the rest is not read"]
            return
        self._rows.append(NumbersLine(order=self._count, **values))
        self._lines.append(line)
        self._count += 1
        if len(self._rows) >= BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        self._columns.add(self._rows, self._lines, [NONE] * len(self._rows))
        self._rows, self._lines = [], []

    def content(
        self,
        groups: Iterable[NumbersGroup] = (),
        calls: Iterable[str] = (),
        stacks: dict[int, StackFrame] | None = None,
    ) -> NumbersContent:
        """The content of the file, with a message about what is left out."""
        self._flush()
        losses = [f"{what}: {count:,}" for what, count in self.lost.items() if count] + self.ends
        numbers = self._columns.content("; ".join(losses) or None)
        numbers.tool, numbers.calls = self.tool, list(calls)
        numbers.groups = list(groups)
        numbers.stacks = {number: [frame] for number, frame in (stacks or {}).items()}
        return numbers


def short_dtype(name: object) -> str | None:
    """The short name of an element type: "torch.float32" and "Float32" are "f32"."""
    if not isinstance(name, str):
        return None
    word = name.rpartition(".")[2].lower()
    return DTYPES.get(word, word[:32])


def sizes_of(value: object) -> tuple[int, ...] | None:
    """A shape; None for anything that is none."""
    if not isinstance(value, list | tuple) or len(value) > MOST_DIMENSIONS:
        return None
    fit = all(type(one) is int and 0 <= one < LARGEST for one in value)
    return tuple(value) if fit else None


def count_of(shape: tuple[int, ...] | None) -> int | None:
    """The number of elements of a shape."""
    count = None if shape is None else prod(shape)
    return count if count is None or count < LARGEST else None


def real(value: object) -> float | None:
    """A number, also one that is printed as text ("nan"); None for anything else."""
    if isinstance(value, bool | int | float):
        return float(value) if abs(value) < 1e300 or not isinstance(value, int) else None
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        return float(value)
    except ValueError:
        return None


def statistics(
    low: float | None, high: float | None, mean: float | None, norm: float | None, count: int | None
) -> dict[str, Any]:
    """Columns of printed statistics. The sum is the mean times the number of elements; where that is unknown it only
    says whether all values are finite.

    A tensor whose largest and smallest element are finite is finite: the tool's own sum or square may overflow.
    """
    bad = [one for one in (low, high) if one is not None and not math.isfinite(one)]
    total = None if mean is None or count is None or not math.isfinite(mean) else mean * count
    if bad:
        total = next((one for one in bad if math.isnan(one)), bad[0])
    elif mean is not None and not math.isfinite(mean) and low is None and high is None:
        total = mean
    elif norm is not None and math.isnan(norm) and low is None and high is None:
        total = norm
    return {"min": low, "max": high, "l2": norm, "sum": total}
