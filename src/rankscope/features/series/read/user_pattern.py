"""Series by a pattern of the user: a regular expression with the groups `step` and one for each value."""

from __future__ import annotations

import io
import re
from typing import IO

import polars as pl

from rankscope.features.series.read import metric_names
from rankscope.features.series.read.json_series import whole_number
from rankscope.features.series.read.printed_numbers import printed_number
from rankscope.features.series.read.scalar_rows import Point, points_frame
from rankscope.parsers.line_blocks import LINE_BYTES, line_blocks
from rankscope.parsers.line_prefixes import COLOUR, strip_prefixes

LONGEST_PATTERN = 1000
_ASIDE = ("step", "rank")


class SeriesPatternError(Exception):
    """A pattern that cannot be used; the message says why."""


def series_pattern(text: str) -> re.Pattern[str]:
    """The pattern of a text. Raises SeriesPatternError."""
    if len(text) > LONGEST_PATTERN:
        raise SeriesPatternError(f"the pattern has {len(text)} characters; {LONGEST_PATTERN} are the most")
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise SeriesPatternError(f"the pattern is no regular expression: {error}") from None
    if "step" not in pattern.groupindex or len(pattern.groupindex) < 2:
        raise SeriesPatternError(r"the pattern needs the groups (?P<step>...) and one for each value, as (?P<loss>...)")
    return pattern


def read_pattern_series(data: bytes | IO[bytes], pattern: re.Pattern[str]) -> pl.DataFrame:
    """The series of the lines of a log that a pattern finds."""
    stream: IO[bytes] = io.BytesIO(data) if isinstance(data, bytes) else data
    points: list[Point] = []
    count = 0
    for block in line_blocks(stream):
        whole = block.text
        for line in COLOUR.sub(b"", whole).split(b"\n"):
            count += 1
            for part in line[:LINE_BYTES].rstrip(b"\r").split(b"\r"):
                points.extend(_points(part.decode("utf-8", "replace"), pattern, count))
        count -= whole.endswith(b"\n")
    return points_frame(points, "log")


def _points(text: str, pattern: re.Pattern[str], line: int) -> list[Point]:
    found = pattern.search(text)
    step = whole_number(found["step"]) if found is not None else None
    if found is None or step is None:
        return []
    front = strip_prefixes(text)
    rank = whole_number(found["rank"]) if "rank" in pattern.groupindex else front.rank
    time = front.stamp.ns if front.stamp is not None and front.stamp.has_year else None
    numbers = {name: printed_number(told) for name, told in found.groupdict().items() if told and name not in _ASIDE}
    return [
        Point(step, metric_names.quantity_of(name), number.value, number.resolution, line, time, rank=rank)
        for name, number in numbers.items()
        if number is not None
    ]
