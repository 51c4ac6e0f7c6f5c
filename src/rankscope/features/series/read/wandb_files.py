"""Offline files of wandb, `run-*.wandb`: logs of LevelDB with messages of wandb_internal.proto; checksums are not read.

Values are JSON, so doubles are exact.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

import orjson
import polars as pl

from rankscope.features.series.read.json_series import loaded, row_points, whole_number
from rankscope.features.series.read.scalar_rows import MOST_POINTS, Point, points_frame
from rankscope.features.series.read.wire_fields import WireError, signed, wire_fields

HEAD = b":W&B"
_HEAD_BYTES, _BLOCK_BYTES, _RECORD_HEAD = 7, 32768, struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
LARGEST_RECORD = 64 << 20
_HISTORY = 2
"""The field of Record with a print of values: HistoryRecord, its items 1 and its step 2."""
_CONFIG, _RUN, _CONFIG_OF_RUN = 5, 17, 4
"""The fields of Record with options, and that of RunRecord: ConfigRecord, its items 1."""
_MOST_CONFIG_RECORDS = 64


def is_wandb_file(head: bytes) -> bool:
    """Whether bytes begin an offline file of wandb."""
    return head.startswith(HEAD)


def read_wandb_file(data: bytes) -> pl.DataFrame:
    """The values of an offline file, up to the first damage."""
    points: list[Point] = []
    for line, record in enumerate(_records(memoryview(data)), 1):
        try:
            points.extend(_history(record, line))
        except WireError:
            continue
        if len(points) > MOST_POINTS:
            break
    return points_frame([point._replace(resolution=0.0) for point in points], "wandb")


def config_items(data: bytes) -> dict[str, object]:
    """The configuration of the run: the options that the trainer handed over."""
    found: dict[str, object] = {}
    for count, record in enumerate(_records(memoryview(data))):
        if count > _MOST_CONFIG_RECORDS:
            break
        with contextlib.suppress(WireError):
            for part in _parts(record, _CONFIG):
                found |= dict(_item(item) for item in _parts(part, 1))
            for run in _parts(record, _RUN):
                for part in _parts(run, _CONFIG_OF_RUN):
                    found |= dict(_item(item) for item in _parts(part, 1))
    return found


def _parts(record: memoryview, field: int) -> Iterator[memoryview]:
    return (value for number, _, value in wire_fields(record) if number == field and isinstance(value, memoryview))


def _records(data: memoryview) -> Iterator[memoryview]:
    """The records, joined from their parts; one without its beginning or end is left out."""
    at, parts, size = _HEAD_BYTES, list[memoryview](), 0
    while at + _RECORD_HEAD.size <= len(data):
        left = _BLOCK_BYTES - at % _BLOCK_BYTES
        if left < _RECORD_HEAD.size:
            at += left
            continue
        _, length, kind = _RECORD_HEAD.unpack_from(data, at)
        begin = at + _RECORD_HEAD.size
        if (
            kind not in (_FULL, _FIRST, _MIDDLE, _LAST)
            or length > left - _RECORD_HEAD.size
            or begin + length > len(data)
        ):
            # a damaged block: the next one begins anew
            at, parts = at + left, []
            continue
        part, at = data[begin : begin + length], begin + length
        if kind in (_FULL, _FIRST):
            parts, size = [], 0
        elif not parts:
            continue
        parts, size = [*parts, part] if size < LARGEST_RECORD else [], size + length
        if kind in (_FULL, _LAST) and parts:
            yield memoryview(b"".join(parts)) if len(parts) > 1 else parts[0]
            parts = []


def _history(record: memoryview, line: int) -> Iterator[Point]:
    """The values of a print; a step of 0 is left out of its record."""
    for number, _, value in wire_fields(record):
        if number != _HISTORY or not isinstance(value, memoryview):
            continue
        row: dict[str, object] = {}
        step: int | None = 0
        for field, _, part in wire_fields(value):
            if field == 1 and isinstance(part, memoryview):
                key, told = _item(part)
                row[key] = told
            elif field == 2 and isinstance(part, memoryview):
                step = next((signed(n) for f, _, n in wire_fields(part) if f == 1 and isinstance(n, int)), 0)
        step = whole_number(row.pop("_step", step))
        system = [key for key in row if key.startswith("_") and key != "_timestamp"]
        yield from row_points({key: told for key, told in row.items() if key not in system}, line, step)


def _item(part: memoryview) -> tuple[str, object]:
    """Name and value of an item: `key`, or the parts of `nested_key`, and JSON."""
    keys, text = [], b"null"
    for number, _, value in wire_fields(part):
        if number in (1, 2) and isinstance(value, memoryview):
            keys.append(bytes(value[:500]).decode("utf-8", "replace"))
        elif number == 16 and isinstance(value, memoryview):
            text = bytes(value)
    try:
        return "/".join(key for key in keys if key), loaded(text)
    except orjson.JSONDecodeError:
        # NaN and Infinity
        return "/".join(keys), text[:40].decode("utf-8", "replace")
