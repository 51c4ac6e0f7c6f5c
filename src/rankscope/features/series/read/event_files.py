"""Event files of TensorBoard: values of float32, exact; tensorflow/core/util/event.proto, without the checksums.

A record is its length of 8 bytes, 4 bytes of checksum, the message, 4 bytes of checksum.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator

import polars as pl

from rankscope.features.series.read import metric_names
from rankscope.features.series.read.scalar_rows import MOST_POINTS, Point, points_frame
from rankscope.features.series.read.wire_fields import FIXED32, FIXED64, VARINT, WireError, floats, signed, wire_fields

_LENGTH, _CHECKSUM = struct.Struct("<Q"), 4
LARGEST_RECORD = 64 << 20
_FLOAT, _DOUBLE = 1, 2
_NUMBERS = {_FLOAT: (5, "f"), _DOUBLE: (6, "d")}
"""Types of tensors: the field of their values, and its form."""


def is_event_file(head: bytes) -> bool:
    """Whether bytes begin an event file: its first record tells the version."""
    return len(head) >= 24 and head[4:8] == b"\0\0\0\0" and b"brain.Event:" in head[12:64]


def read_event_file(data: bytes) -> pl.DataFrame:
    """The scalars of an event file, up to the first damage."""
    points: list[Point] = []
    # a job that ends in the middle of a record leaves the records before it whole
    with contextlib.suppress(WireError):
        for line, record in enumerate(_records(memoryview(data)), 1):
            points.extend(_event(record, line))
            if len(points) > MOST_POINTS:
                break
    return points_frame(points, "tensorboard")


def _records(data: memoryview) -> Iterator[memoryview]:
    at = 0
    while at + _LENGTH.size + _CHECKSUM <= len(data):
        size = _LENGTH.unpack_from(data, at)[0]
        begin = at + _LENGTH.size + _CHECKSUM
        if size > LARGEST_RECORD or begin + size > len(data):
            return
        yield data[begin : begin + size]
        at = begin + size + _CHECKSUM


def _event(record: memoryview, line: int) -> Iterator[Point]:
    """The scalars of an event. A step of 0 is left out of its record."""
    step, time, values = 0, None, []
    for number, kind, value in wire_fields(record):
        if number == 1 and kind == FIXED64 and isinstance(value, memoryview):
            time = floats(value, "d")
        elif number == 2 and kind == VARINT and isinstance(value, int):
            step = signed(value)
        elif number == 5 and isinstance(value, memoryview):
            values = [part for field, _, part in wire_fields(value) if field == 1 and isinstance(part, memoryview)]
    time_ns = int(time * 1e9) if time is not None and 0 < time < 1e10 else None
    for part in values:
        tag, scalar = _value(part)
        if tag and scalar is not None and not metric_names.SKIPPED.match(tag):
            yield Point(step, metric_names.quantity_of(tag), scalar, 0.0, line, time_ns)


def _value(part: memoryview) -> tuple[str, float | None]:
    """Tag and scalar of a value; None for pictures, histograms and texts. A scalar of 0 may be left out."""
    tag, scalar, is_other = "", None, False
    for number, kind, value in wire_fields(part):
        if number == 1 and isinstance(value, memoryview):
            tag = bytes(value[:500]).decode("utf-8", "replace")
        elif number == 2 and kind == FIXED32 and isinstance(value, memoryview):
            scalar = floats(value, "f")
        elif number == 8 and isinstance(value, memoryview):
            scalar, is_other = _tensor(value), True
        elif number in (3, 4, 5, 6):
            is_other = True
    return tag, 0.0 if scalar is None and not is_other else scalar


def _tensor(part: memoryview) -> float | None:
    """The number of a tensor with one element of float or double; None for any other."""
    kind, content = 0, None
    for number, _, value in wire_fields(part):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2 and isinstance(value, memoryview) and _elements(value) != 1:
            return None
        elif kind in _NUMBERS and number in (4, _NUMBERS[kind][0]) and isinstance(value, memoryview):
            content = value
    if kind not in _NUMBERS:
        return None
    return floats(content, _NUMBERS[kind][1]) if content is not None else 0.0


def _elements(shape: memoryview) -> int:
    count = 1
    for number, _, value in wire_fields(shape):
        if number == 2 and isinstance(value, memoryview):
            size = next((told for field, _, told in wire_fields(value) if field == 1 and isinstance(told, int)), 0)
            count *= signed(size)
    return count
