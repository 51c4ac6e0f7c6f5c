"""Databases of trackio, `PROJECT.db`: SQLite with a row of JSON for each print; trackio/sqlite_storage.py.

The file is read from memory, so nothing is written beside it. A run that goes on keeps its newest rows in the file
`PROJECT.db-wal`, which is not read.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import orjson
import polars as pl

from rankscope.features.series.read.json_series import loaded, row_points, whole_number
from rankscope.features.series.read.scalar_rows import MOST_POINTS, Point, points_frame

HEAD = b"SQLite format 3\0"
_MOST_ROWS = 2_000_000
_LONGEST_ROW = 1 << 20
_MOST_STEPS = 100_000_000
"""Most instructions of SQLite's machine for one file: a damaged index may lead it in a circle."""
_STEPS_BETWEEN = 1_000_000
_METRICS = (
    "SELECT run_name, step, timestamp, metrics FROM metrics WHERE length(metrics) <= ? ORDER BY run_name, id LIMIT ?"
)
_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
_CONFIGS = "SELECT config FROM configs WHERE length(config) <= ? ORDER BY id LIMIT 64"


def is_database(head: bytes) -> bool:
    """Whether bytes begin an SQLite database."""
    return head.startswith(HEAD)


def read_trackio_file(data: bytes) -> pl.DataFrame:
    """The series of the newest run in a database, exact; no rows for databases of other programs and damaged ones."""
    runs: dict[str, list[Point]] = {}
    newest = ""
    for line, (name, step, time, metrics) in enumerate(_rows(data, _METRICS, _LONGEST_ROW, _MOST_ROWS), 1):
        row = _document(metrics)
        if row:
            newest = max(newest, f"{time}\0{name}")
            points = row_points({**row, "timestamp": time}, line, whole_number(step))
            runs.setdefault(str(name), []).extend(one._replace(resolution=0.0) for one in points)
        if sum(map(len, runs.values())) > MOST_POINTS:
            break
    return points_frame(runs.get(newest.partition("\0")[2], []), "trackio")


def trackio_config(data: bytes) -> dict[str, object]:
    """The configuration of the newest run in a database."""
    found: dict[str, object] = {}
    for (config,) in _rows(data, _CONFIGS, _LONGEST_ROW):
        found = {name: value for name, value in _document(config).items() if not name.startswith("_")}
    return found


def _document(text: object) -> dict[str, Any]:
    with contextlib.suppress(orjson.JSONDecodeError):
        row = loaded(text) if isinstance(text, str | bytes) else None
        return row if isinstance(row, dict) else {}
    return {}


def _rows(data: bytes, query: str, *values: int) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, up to the first damage; none where a table is missing."""
    base = sqlite3.connect(":memory:")
    left = [_MOST_STEPS // _STEPS_BETWEEN]

    def is_over() -> bool:
        left[0] -= 1
        return left[0] < 0

    with contextlib.closing(base), contextlib.suppress(sqlite3.DatabaseError, MemoryError):
        # the write-ahead log is another file: this one is read as it was at the last checkpoint
        base.deserialize(_without_log(data))
        base.set_progress_handler(is_over, _STEPS_BETWEEN)
        base.execute("PRAGMA trusted_schema = OFF")
        base.execute("PRAGMA query_only = ON")
        # a view of that name may compute forever
        if {("metrics",), ("configs",)} <= {*base.execute(_TABLES)}:
            yield from base.execute(query, values)


def _without_log(data: bytes) -> bytes:
    """The database in the mode without a write-ahead log: a database in memory has none (fileformat2, 1.3.3)."""
    return data[:18] + b"\x01\x01" + data[20:]
