"""What has changed of a column since it was sent last: of most, nothing, or one stretch of it."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

Piece = pl.Series | npt.NDArray[Any]
"""A column of a table, or an array."""
LEAST = 1 << 8
"""Pieces shorter than this are sent as they are."""
_Kind = TypeVar("_Kind", pl.Series, npt.NDArray[Any])


class Patch(NamedTuple):
    """A piece that begins and ends as the one before it did."""

    head: int
    """So many values from its beginning."""
    middle: Piece
    tail: int
    """And so many up to its end."""


def patch(before: Piece | None, now: Piece) -> Piece | Patch:
    """What has to be sent of a piece to one who has the one before it: all of it where that is not much more."""
    if isinstance(before, pl.Series) and isinstance(now, pl.Series):
        return _patched(before, now) if _comparable(before, now) else now
    if isinstance(before, np.ndarray) and isinstance(now, np.ndarray):
        alike = before.dtype == now.dtype and before.ndim == now.ndim == 1
        return _patched(before, now) if alike else now
    return now


def patched(before: Piece | None, told: Piece | Patch) -> Piece:
    """The piece that `patch` was made of. Raises ValueError without the one before it."""
    if not isinstance(told, Patch):
        return told
    if isinstance(before, pl.Series) and isinstance(told.middle, pl.Series):
        if told.head == len(before) and not len(told.middle):
            return before
        ends = before.head(told.head), told.middle, before.tail(told.tail)
        return pl.concat([part for part in ends if len(part)], rechunk=True)
    if isinstance(before, np.ndarray) and isinstance(told.middle, np.ndarray):
        if told.head == len(before) and not len(told.middle):
            return before
        return np.concatenate([before[: told.head], told.middle, before[len(before) - told.tail :]])
    raise ValueError("a patch came without what it is for")


def _comparable(before: pl.Series, now: pl.Series) -> bool:
    return before.name == now.name and before.dtype == now.dtype and not now.dtype.is_nested()


def _patched(before: _Kind, now: _Kind) -> _Kind | Patch:
    common = min(len(before), len(now))
    if common < LEAST:
        return now
    differ = _differ(before[:common], now[:common])
    if not len(differ) and len(before) == len(now):
        return Patch(common, now[:0], 0)
    head = int(differ[0]) if len(differ) else common
    if len(before) == len(now):
        tail = common - 1 - int(differ[-1])
    else:
        differ = _differ(before[len(before) - common :], now[len(now) - common :])
        tail = min(common - 1 - int(differ[-1]) if len(differ) else common, common - head)
    return Patch(head, now[head : len(now) - tail], tail) if head + tail > common // 2 else now


def _differ(one: Piece, other: Piece) -> npt.NDArray[np.int64]:
    """Places at which two pieces of one length differ; nulls are equal."""
    if isinstance(one, pl.Series) and isinstance(other, pl.Series):
        one, other = one.to_physical(), other.to_physical()
        if one.null_count() or other.null_count() or not one.dtype.is_numeric():
            found: npt.NDArray[np.int64] = one.ne_missing(other).arg_true().to_numpy()
            return found
    return np.flatnonzero(np.asarray(one) != np.asarray(other))
