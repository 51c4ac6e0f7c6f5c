"""Times of lines as nanoseconds since the epoch, where they can be told.

A time without a zone is local; it is taken for UTC, so that times of one zone keep their distances.
"""

from __future__ import annotations

import calendar
import time
from functools import lru_cache

from rankscope.parsers.logs.record import Stamp

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
