"""Numbers that lines print, as far as they fit their columns; a torn or forged line can hold any."""

from __future__ import annotations

import calendar
import time
from functools import lru_cache
from typing import Any

from rankscope.parsers.flight_recorder.values import RANK_LIMIT
from rankscope.parsers.logs.record import Stamp

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


# Times of lines as nanoseconds since the epoch, where they can be told.

_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND


def moment(stamp: Stamp | None, written_ns: int | None) -> int | None:
    """When a line was printed; a year that is missing is the last in which that day was before the file was written."""
    if stamp is None or not stamp.has_date:
        return None
    if stamp.has_year:
        return stamp.ns
    if written_ns is None:
        return None
    for midnight_ns in _midnights(stamp.ns // _DAY, written_ns // _DAY):
        there = midnight_ns + stamp.ns % _DAY
        if there <= written_ns + _DAY:
            return there
    return None


@lru_cache(maxsize=1024)
def _midnights(day: int, written: int) -> tuple[int, ...]:
    """When a day of any year began in the year of another day, and in the year before that."""
    parts = time.gmtime(day * _DAY // _SECOND)
    year = time.gmtime(written * _DAY // _SECOND).tm_year
    dates = [(candidate, parts.tm_mon, parts.tm_mday, 0, 0, 0) for candidate in (year, year - 1)]
    return tuple(calendar.timegm(date) * _SECOND for date in dates)
