"""Names of logs that were rotated: which files follow each other, as far as their names tell.

`job.log.1` was `job.log` before it, and `job.log-20240131` and `0.log.20240131-235959.gz` too; a program may put the
number in front of the ending (`job.1.log`). Higher numbers are older, later dates newer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

_PACKED = re.compile(r"\.(?:gz|bz2|xz|zst)$", re.IGNORECASE)
_TURNED = re.compile(
    r"(?P<stem>.+?)(?:\.(?P<number>\d{1,3})|[._\-](?P<date>\d{4}-\d\d-\d\d(?:[T_.\-][\d.:\-]{1,20})?"
    r"|\d{8}(?:[T_.\-]?\d{2,9})?|\d{10}))(?P<ending>\.(?:log|out|err|txt))?"
)


class Series(NamedTuple):
    """Files that were one after the other under one name."""

    members: tuple[int, ...]
    """Their places, the oldest first."""
    behind_gaps: frozenset[int]
    """Those in front of which another file is missing."""


class _Name(NamedTuple):
    base: tuple[str, str]
    """Directory, and the name under which it was written."""
    number: int | None
    date: str


def series_of(paths: Sequence[str]) -> list[Series]:
    """The series among some paths that have at least two members."""
    own = [_parts(path) for path in paths]
    turned = [_turned(*parts) for parts in own]
    bases = {name.base for name in turned if name is not None}
    members: dict[tuple[str, str], dict[int, _Name | None]] = defaultdict(dict)
    for place, (parts, name) in enumerate(zip(own, turned, strict=True)):
        if parts in bases:
            members[parts][place] = None
        elif name is not None:
            members[name.base][place] = name
    found = (_in_order(names) for names in members.values() if len(names) > 1)
    return [series for series in found if series is not None]


def _parts(path: str) -> tuple[str, str]:
    pure = PurePosixPath(path.replace("!", "/"))
    return str(pure.parent), _PACKED.sub("", pure.name)


def _turned(directory: str, name: str) -> _Name | None:
    match = _TURNED.fullmatch(name)
    if match is None:
        return None
    number = None if match["number"] is None else int(match["number"])
    base = directory, match["stem"] + (match["ending"] or "")
    return _Name(base, number, re.sub(r"\D", "", match["date"] or ""))


def _in_order(names: dict[int, _Name | None]) -> Series | None:
    """Files of one base, of which the one without number or date is the newest; None if both count them."""
    newest = [place for place, name in names.items() if name is None]
    dated = sorted((name.date, place) for place, name in names.items() if name is not None and name.number is None)
    counted = sorted(
        ((name.number, place) for place, name in names.items() if name is not None and name.number is not None),
        reverse=True,
    )
    if (dated and counted) or len(newest) > 1:
        return None
    numbers = [number for number, _ in counted]
    gaps = {place for (number, place), before in zip(counted[1:], numbers, strict=False) if before != number + 1}
    if newest and numbers and numbers[-1] > 1:
        gaps.add(newest[0])
    return Series((*(place for _, place in [*counted, *dated]), *newest), frozenset(gaps))
