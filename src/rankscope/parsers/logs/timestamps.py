"""Printed times, in the forms of NCCL, glog, Python's logging, syslog, and collectors."""

from __future__ import annotations

import calendar
import re
from functools import lru_cache

from rankscope.parsers.logs.log_record import Stamp

FULL = r"\d{4}[-/]\d\d[-/]\d\d[ T_-]\d\d:\d\d:\d\d(?:[.,:]\d{1,9})?(?:Z|[+-]\d\d:?\d\d(?!\d))?"
"""A date with its year, and a time of day."""
GLOG = r"[VDIWEF]\d{3,4} \d\d:\d\d:\d\d\.\d{1,9}"
"""Month and day, in torch without a leading zero of the month: E111 is 11 January."""
SYSLOG = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?: \d{4})?"
CLOCK = r"\d\d:\d\d:\d\d[.,]\d{1,9}"

_FULL = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[ T_-](\d\d):(\d\d):(\d\d)(?:[.,:](\d{1,9}))?(Z|[+-]\d\d:?\d\d(?!\d))?")
_GLOG = re.compile(r"[VDIWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})")
_SYSLOG = re.compile(r"(?:[A-Z][a-z]{2} )?([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d)(?: (\d{4}))?")
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)[.,](\d{1,9})")
_MONTHS = {name: i for i, name in enumerate(calendar.month_abbr) if name}
_SECOND = 1_000_000_000


def read_stamp(text: str) -> Stamp | None:
    """The time at the beginning of `text`; None without a valid one."""
    if found := _FULL.match(text):
        year, month, day = int(found[1]), int(found[2]), int(found[3])
        made = _stamp_of((year, month, day), (found[4], found[5], found[6]), found[7], True)
        return _in_zone(made, found[8]) if made else None
    if found := _GLOG.match(text):
        return _stamp_of((1970, int(found[1]), int(found[2])), (found[3], found[4], found[5]), found[6], False)
    if found := _CLOCK.match(text):
        made = _stamp_of((1970, 1, 1), (found[1], found[2], found[3]), found[4], False)
        return made._replace(has_date=False) if made else None
    if (found := _SYSLOG.match(text)) and found[1] in _MONTHS:
        date = int(found[6] or 1970), _MONTHS[found[1]], int(found[2])
        return _stamp_of(date, (found[3], found[4], found[5]), None, found[6] is not None)
    return None


def _stamp_of(
    date: tuple[int, int, int], clock: tuple[str, str, str], fraction: str | None, has_year: bool
) -> Stamp | None:
    hour, minute, second = map(int, clock)
    if not (1 <= date[1] <= 12 and 1 <= date[2] <= 31 and 1970 <= date[0] < 2200 and hour < 24 and minute < 60):
        return None
    digits = fraction or ""
    ns = (_midnight(*date) + 3600 * hour + 60 * minute + second) * _SECOND + int(digits.ljust(9, "0"))
    return Stamp(ns, 10 ** (9 - len(digits)), True, has_year, False)


@lru_cache(maxsize=4096)
def _midnight(year: int, month: int, day: int) -> int:
    return calendar.timegm((year, month, day, 0, 0, 0))


def _in_zone(made: Stamp, zone: str | None) -> Stamp:
    if zone is None:
        return made
    offset = 0 if zone == "Z" else int(zone[0] + "1") * (3600 * int(zone[1:3]) + 60 * int(zone[-2:]))
    return made._replace(ns=made.ns - offset * _SECOND, is_utc=True)
