"""Columns of integers as few bytes: each as the difference to its smallest value, in the narrowest type that holds it.

Most columns of a log's operations are one value, or small, or grow with the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_TYPES = ("u1", "u2", "u4")
Spec = list[Any]
"""Type and smallest value of a column; of one value alone the type is ""."""


def pack(columns: npt.NDArray[Any]) -> tuple[list[Spec], list[memoryview]]:
    """A table of shape (columns, rows) with at least one row, as what is needed to read it, and bytes."""
    specs: list[Spec] = []
    body: list[memoryview] = []
    for column in columns:
        low, high = int(column.min()), int(column.max())
        kind = "" if low == high else next((t for t in _TYPES if high - low <= np.iinfo(t).max), "i8")
        specs.append([kind, 0 if kind == "i8" else low])
        if kind:
            narrow = column if kind == "i8" else column - low
            body.append(np.ascontiguousarray(narrow, kind).data.cast("B"))
    return specs, body


def unpack(specs: Sequence[Spec], body: memoryview, rows: int, into: type[np.integer[Any]]) -> tuple[Any, memoryview]:
    """The table that was packed, and the rest of the bytes."""
    table = np.empty((len(specs), rows), into)
    for column, (kind, low) in zip(table, specs, strict=True):
        if not kind:
            column[:] = low
            continue
        size = np.dtype(kind).itemsize * rows
        np.add(np.frombuffer(body[:size], kind), into(low), out=column, casting="unsafe")
        body = body[size:]
    return table, body
