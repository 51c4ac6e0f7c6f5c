"""Numbers that lines print, as far as they fit their columns; a torn or forged line can hold any."""

from __future__ import annotations

from typing import Any

from rankscope.parsers.flight_recorder.values import RANK_LIMIT

_LONG = 1 << 62
_INT = 1 << 31


def whole(value: Any) -> int | None:
    """An integer for a column of 64 bits."""
    fits = isinstance(value, int) and not isinstance(value, bool) and -_LONG < value < _LONG
    return value if fits else None


def short(value: Any) -> int | None:
    """An integer for a column of 32 bits."""
    found = whole(value)
    return found if found is not None and -_INT < found < _INT else None


def rank(value: Any) -> int | None:
    """A rank, or the place in a group."""
    found = whole(value)
    return found if found is not None and 0 <= found < RANK_LIMIT else None


def size(value: Any) -> int | None:
    """A number of ranks."""
    found = whole(value)
    return found if found is not None and 0 < found <= RANK_LIMIT else None
