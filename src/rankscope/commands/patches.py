"""What has changed of a column since it was sent last: of most, nothing, or a few stretches of it."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

Piece = pl.Series | npt.NDArray[Any]
"""A column of a table, or an array."""
Places = npt.NDArray[np.int64]
LEAST = 1 << 8
"""Pieces shorter than this are sent as they are, and so many values between two that differ are left out."""
MOST = 128
"""Of more stretches than this all is sent: to put them together would take longer, where keys have to wait for it."""
_Kind = TypeVar("_Kind", pl.Series, npt.NDArray[Any])


class Patch(NamedTuple):
    """What differs from the piece before it."""

    starts: list[int]
    """Where each stretch begins that is another one, in the piece before; rising."""
    ends: list[int]
    """Where it ended there."""
    sizes: list[int]
    """How long it is now."""
    middle: Piece
    """All of these stretches."""


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
        parts = _parts(before, told.middle, told)
        return pl.concat([part for part in parts if len(part)], rechunk=True) if told.starts else before
    if isinstance(before, np.ndarray) and isinstance(told.middle, np.ndarray):
        return np.concatenate(_parts(before, told.middle, told)) if told.starts else before
    raise ValueError("a patch came without what it is for")


def _parts(before: _Kind, middle: _Kind, told: Patch) -> list[_Kind]:
    """Stretches as they were and as they are, by turns."""
    parts: list[_Kind] = []
    known = at = 0
    for start, end, size in zip(told.starts, told.ends, told.sizes, strict=True):
        parts.append(before[known:start])
        parts.append(middle[at : at + size])
        known, at = end, at + size
    parts.append(before[known:])
    return parts


def _comparable(before: pl.Series, now: pl.Series) -> bool:
    return before.name == now.name and before.dtype == now.dtype and not now.dtype.is_nested()


def _patched(before: _Kind, now: _Kind) -> _Kind | Patch:
    common = min(len(before), len(now))
    if common < LEAST:
        return now
    differ = _differ(before[:common], now[:common])
    if len(before) == len(now):
        starts, ends = _stretches(differ)
        if 2 * int((ends - starts).sum()) > common or len(starts) > MOST:
            return now
        return Patch(starts.tolist(), ends.tolist(), (ends - starts).tolist(), now[_between(starts, ends)])
    head = int(differ[0]) if len(differ) else common
    behind = _differ(before[len(before) - common :], now[len(now) - common :])
    tail = min(common - 1 - int(behind[-1]) if len(behind) else common, common - head)
    end = len(now) - tail
    return Patch([head], [len(before) - tail], [end - head], now[head:end]) if head + tail > common // 2 else now


def _stretches(differ: Places) -> tuple[Places, Places]:
    """Where stretches begin and end that hold all these places; what is between two of them is worth leaving out."""
    far = np.flatnonzero(np.diff(differ) > LEAST)
    starts = np.concatenate([differ[:1], differ[far + 1]])
    return starts, np.concatenate([differ[far], differ[-1:]]) + 1


def _between(starts: Places, ends: Places) -> Places:
    """All places of some stretches."""
    stretches = [np.arange(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return np.concatenate([starts[:0], *stretches])


def _differ(one: Piece, other: Piece) -> Places:
    """Places at which two pieces of one length differ; nulls are equal."""
    if isinstance(one, pl.Series) and isinstance(other, pl.Series):
        one, other = one.to_physical(), other.to_physical()
        if one.null_count() or other.null_count() or not one.dtype.is_numeric():
            found: Places = one.ne_missing(other).arg_true().to_numpy()
            return found
    first, second = np.asarray(one), np.asarray(other)
    # a column that was not touched is often the same memory
    same = first.__array_interface__["data"][0] == second.__array_interface__["data"][0]
    return np.zeros(0, np.int64) if same and first.strides == second.strides else np.flatnonzero(first != second)
