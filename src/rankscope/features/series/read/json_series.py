"""Series in documents: lines of JSON, trainer_state.json, golden files of Megatron and torchtitan, CSV."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
import polars as pl

from rankscope.features.series.read import metric_names
from rankscope.features.series.read.metric_names import EPOCH, Quantity
from rankscope.features.series.read.printed_numbers import LARGEST_STEP, PrintedNumber, printed_number
from rankscope.features.series.read.scalar_rows import MOST_POINTS, POINTS, Point, points_frame
from rankscope.parsers.line_prefixes import read_stamp

MOST_KEYS = 2000
DEEPEST = 3
_TIMES = ("timestamp", "_timestamp", "time", "@timestamp", "wall_time", "date", "Wall time")
_NOT_FINITE = re.compile(r"(?<=[:\[,\s])(-?)(NaN|Infinity|nan|inf)(?=\s*[,}\]])")
"""What Python writes and JSON lacks."""
_PAIR = re.compile(rb"\s*(\d{1,12})[ \t,]+([-+]?(?:\d[\d.eE+\-]*|nan|inf))\s*")
_COLUMN = re.compile(r"[A-Za-z_][\w ./@()%\-]*|")
_RANKS = ("rank", "global_rank")


def loaded(text: str | bytes) -> Any:
    """A document, with NaN and Infinity as texts. Raises orjson.JSONDecodeError."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        told = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return orjson.loads(_NOT_FINITE.sub(r'"\1\2"', told))


def json_line(text: str, line: int) -> list[Point] | None:
    """The values of a line of JSON; None if it is none, or has no values of training."""
    try:
        row = loaded(text)
    except orjson.JSONDecodeError:
        return None
    return [*row_points(row, line)] if isinstance(row, dict) else None


def row_points(row: Mapping[str, Any], line: int, step: int | None = None) -> Iterator[Point]:
    """The values of one print, by names."""
    flat = {key.strip(): value for key, value in _flat(row, "", 0)}
    if metric_names.SUMMARY in flat:
        return
    steps = sorted((place, key) for key in flat if (place := metric_names.step_place(key)) is not None)
    if step is None and steps and all(metric_names.is_length(key) for _, key in steps):
        # a configuration has its number of steps, too
        steps = steps if any(map(metric_names.is_measured, flat)) else []
        if not steps:
            return
    for _, key in steps:
        step = whole_number(flat[key]) if step is None else step
    if step is None and not steps and not isinstance(flat.get(EPOCH), float):
        # who prints once an epoch counts epochs; HF Trainer prints fractions of them
        step = whole_number(flat.get(EPOCH))
    found = [(key, number) for key, value in flat.items() if (number := _number(value, key)) is not None]
    found = [(key, number) for key, number in found if not metric_names.SKIPPED.match(key) and key not in _TIMES[:4]]
    own = {key for _, key in steps}
    found = [(key, number) for key, number in found if key not in own and key not in _RANKS]
    if not any(metric_names.is_known(key) or metric_names.WORTH.search(key.lower()) for key, _ in found):
        return
    rank = next((whole_number(flat[key]) for key in _RANKS if key in flat), None)
    names = metric_names.distinct([metric_names.quantity_of(key) for key, _ in found])
    for quantity, (_, number) in zip(names, found, strict=True):
        yield Point(step, quantity, number.value, number.resolution, line, _time(flat), rank=rank)


def _flat(row: Mapping[str, Any], above: str, depth: int) -> Iterator[tuple[str, Any]]:
    for key, value in list(row.items())[:MOST_KEYS]:
        if isinstance(value, dict) and depth < DEEPEST:
            yield from _flat(value, f"{above}{key}/", depth + 1)
        else:
            yield f"{above}{key}", value


def whole_number(value: Any) -> int | None:
    """A step or a rank: 3, 3.0, "3" or "3/100"; None for anything else."""
    if isinstance(value, str):
        number = printed_number(value.partition("/")[0])
        value = number.value if number is not None else None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return int(value) if value == int(value) and 0 <= value <= LARGEST_STEP else None


def _number(value: Any, key: str) -> PrintedNumber | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    exact = isinstance(value, int) or metric_names.quantity_of(key).is_count
    return printed_number(value if isinstance(value, str) else repr(value), exact)


def _time(row: Mapping[str, Any]) -> int | None:
    """The time of a print: a text with its date, or seconds since the epoch."""
    for key in _TIMES:
        value = row.get(key)
        if isinstance(value, str) and (stamp := read_stamp(value)) is not None and stamp.has_year:
            return stamp.ns
        if isinstance(value, int | float) and 1e9 < value < 1e10:
            return int(value * 1e9)
    return None


def read_json_series(data: bytes) -> pl.DataFrame | None:
    """The series of one document: trainer_state.json, a list of prints, or golden values; None for others."""
    try:
        document = loaded(data)
    except orjson.JSONDecodeError:
        return None
    points: list[Point] = []
    if isinstance(document, dict) and isinstance(document.get("log_history"), list):
        document = document["log_history"]
    if isinstance(document, list):
        rows = [row for row in document if isinstance(row, dict)]
        points = [point for i, row in enumerate(rows) for point in row_points(row, i + 1)]
    elif isinstance(document, dict):
        points = [*_golden(document)]
    return points_frame(points[:MOST_POINTS], "json") if points else None


def _golden(document: Mapping[str, Any]) -> Iterator[Point]:
    """`{"lm loss": {"start_step": 1, "step_interval": 1, "values": {"1": 10.8}}}`, or a list of values."""
    for name, told in document.items():
        values = told.get("values") if isinstance(told, dict) else None
        if isinstance(values, list):
            first, every = (whole_number(told.get(key)) for key in ("start_step", "step_interval"))
            values = {(first or 0) + i * (every or 1): value for i, value in enumerate(values)}
        if not isinstance(values, dict):
            continue
        quantity = metric_names.quantity_of(str(name))
        for key, value in values.items():
            number, step = _number(value, str(name)), whole_number(key)
            if number is not None and step is not None:
                yield Point(step, quantity, number.value, number.resolution, 1)


def is_pair(line: bytes) -> bool:
    """Whether a line is one of a golden file of torchtitan."""
    return _PAIR.fullmatch(line) is not None


def read_pairs(data: bytes) -> pl.DataFrame | None:
    """A golden file of torchtitan: a step and a loss in each line; None for any other text."""
    loss = Quantity("loss", "loss")
    points = []
    for line, text in enumerate(data.splitlines(), 1):
        found = _PAIR.fullmatch(text)
        number = printed_number(found[2].decode()) if found else None
        if found is None or number is None:
            return None
        points.append(Point(int(found[1]), loss, number.value, number.resolution, line))
    return points_frame(points, "csv") if points else None


def read_csv_series(data: bytes) -> pl.DataFrame | None:
    """The series of a table with names in its first line and a step column; None for any other text."""
    text = data.decode("utf-8-sig", "replace")
    mark, columns = table_names(text.partition("\n")[0])
    if not mark:
        return None
    points: list[Point] = []
    csv.field_size_limit(1 << 20)
    # the rows before a damaged one count
    with contextlib.suppress(csv.Error):
        for line, row in enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=mark), 1):
            if line > 1 and len(points) < MOST_POINTS:
                points.extend(row_points(dict(zip(columns, row, strict=False)), line))
    return points_frame(points, "csv") if points else pl.DataFrame(schema=POINTS)


def table_names(line: str) -> tuple[str, Sequence[str]]:
    """The mark between the columns of a table, and their names, by its first line; "" if it begins no table."""
    mark = max(",;\t", key=line.count)
    names = [name.strip().strip('"') for name in line.strip().split(mark)][:MOST_KEYS]
    steps = any(metric_names.step_place(name) is not None or name.lower() == EPOCH for name in names)
    return (mark, names) if steps and len(names) > 1 and all(map(_COLUMN.fullmatch, names)) else ("", ())
