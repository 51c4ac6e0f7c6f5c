"""Tables of a Dataset as Parquet files of a directory, and back. Each file is checked before it is read."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import polars as pl

from rankscope.assemble.held_sources import ENTRY_BYTES, MORE_MEMORY, SMALL_BYTES
from rankscope.assemble.machine_memory import SHARE, MemorySizeError, memory_limits
from rankscope.parsers.file_access import NotAFileError, OutsideError, open_regular
from rankscope.schema import Dataset
from rankscope.schema.table import Dtype, harmless, site_table
from rankscope.schema.tables import TABLES
from rankscope.sessions.table_rings import NARROW_BYTES, ROW, TableRings, cut_rings, with_cut_rings
from rankscope.text.wording import byte_count

MOST_RANKS = 1 << 20
"""Most ranks of a job; no file may name a higher one."""
SUFFIX = ".parquet"
SITE = "site."
"""Beginning of the names of tables of installed packages."""
_CELL_BYTES = 8
_SITE_BYTES = 64
"""Usual bytes of a row of a table of a package."""
_MOST_REASON = 200
_REFERENCES = {"file": "files", "group": "groups", "track": "tracks", "span": "spans"}
"""Columns that hold rows of another table."""


class SessionError(Exception):
    """A session cannot be written or read; the message is for the user."""


@contextmanager
def session_file(path: Path, within: str) -> Iterator[IO[bytes]]:
    """A regular file of a session, to read; `within` is that of `open_regular`. Raises SessionError."""
    try:
        with open_regular(str(path), within) as stream:
            yield stream
    except OutsideError as error:
        raise SessionError(f"{path.name} is {error}; --follow-links reads it") from error
    except NotAFileError as error:
        raise SessionError(f"{path.name} is no regular file") from error
    except OSError as error:
        raise SessionError(f"{path.name}: {error.strerror or error}") from error


def write_tables(dataset: Dataset, directory: Path) -> dict[str, int]:
    """Writes each table that has rows; returns the number of rows of each. Raises OSError."""
    rows = {}
    for table, frame in dataset.all_tables:
        if frame.height:
            name = table.name if table.name in TABLES else f"{SITE}{table.name}"
            # through memory, for polars tells no reason where a disk is full
            content = io.BytesIO()
            frame.write_parquet(content, compression="zstd", compression_level=1)
            with (directory / f"{name}{SUFFIX}").open("xb") as stream:
                stream.write(content.getbuffer())
                stream.flush()
                os.fsync(stream.fileno())
            rows[name] = frame.height
    return rows


@dataclass(frozen=True)
class StoredTables:
    """The tables of a session."""

    tables: dict[str, pl.DataFrame]
    """By their names; those of packages are last."""
    last: int | None = None
    """Number of the last operations of each dump that were read; None if all were."""


def read_tables(directory: Path, rows: Mapping[str, int], memory: int | None = None, within: str = "") -> StoredTables:
    """The tables with these numbers of rows; all others are empty. `within` is that of `session_file`. Raises
    SessionError.

    Operations that need more than `memory` bytes, by default a share of what the machine lends, are read in part.
    """
    theirs = {f"{SITE}{key}": key for key in (name.removeprefix(SITE) for name in rows) if key not in TABLES}
    unknown = sorted(name for name in rows if name not in TABLES and not theirs.get(name, "").isidentifier())
    if unknown:
        raise SessionError(f"its table {unknown[0]!r} is of a newer rankscope: update rankscope, or ingest again")
    for name in rows:
        with session_file(directory / f"{name}{SUFFIX}", within):
            pass  # polars opens files itself
    rest = sum(count * row_bytes(name) for name, count in rows.items() if name != "ops")
    if rest > (limit := lent_bytes() if memory is None else memory):
        raise SessionError(f"its tables need {byte_count(rest)} of memory, and there is {byte_count(limit)}")
    room = max(SMALL_BYTES, int(SHARE * limit) - rest) if memory is None else memory - rest
    short = rows.get("ops", 0) * ENTRY_BYTES > room
    tables = {name: _table(directory, name, 0 if name == "ops" and short else rows.get(name, 0)) for name in TABLES}
    rings = _cut_operations(directory, rows["ops"], room) if short else None
    tables = tables if rings is None else with_cut_rings(tables, rings)
    for problem in _broken_references(tables):
        raise SessionError(problem)
    tables |= {key: _site_table(directory / f"{name}{SUFFIX}", key, rows[name]) for name, key in theirs.items()}
    return StoredTables(tables, None if rings is None else rings.last)


def _site_table(path: Path, name: str, rows: int) -> pl.DataFrame:
    """A table of a package, whose file says what columns it has. Raises SessionError."""
    with _parquet_errors(path.name):
        try:
            columns = site_table(name, pl.read_parquet_schema(path))
        except ValueError as error:
            raise SessionError(f"{path.name}: {error}: not a session of rankscope") from error
        return harmless(_scanned(path, rows, columns).drop(ROW).collect())


def lent_bytes() -> int:
    """The memory that this process may still take. Raises SessionError if the user's limit is no size."""
    try:
        return memory_limits().least
    except MemorySizeError as error:
        raise SessionError(str(error)) from error


def row_bytes(name: str) -> int:
    """The usual bytes of one row of a table in memory, without the content of its texts and lists."""
    return _CELL_BYTES * len(TABLES.get(name, ())) or _SITE_BYTES


def _cut_operations(directory: Path, rows: int, room: int) -> TableRings:
    """The last operations of each dump. Raises SessionError if there is no room for even one of each."""
    with _parquet_errors(f"ops{SUFFIX}"):
        scan = _scanned(directory / f"ops{SUFFIX}", rows, TABLES["ops"])
        rings = cut_rings(scan, room) if rows * NARROW_BYTES <= max(room, SMALL_BYTES) else None
    if rings is None:
        raise SessionError(f"there is no memory for its {rows:,} operations, nor for the last ones: {MORE_MEMORY}")
    return rings


def _table(directory: Path, name: str, rows: int) -> pl.DataFrame:
    """One table. Columns that its rankscope did not know yet are null. Raises SessionError."""
    if not rows:
        return TABLES[name].empty()
    with _parquet_errors(f"{name}{SUFFIX}"):
        return _scanned(directory / f"{name}{SUFFIX}", rows, TABLES[name]).drop(ROW).collect()


def _scanned(path: Path, rows: int, columns: Mapping[str, Dtype]) -> pl.LazyFrame:
    """One table, not read yet, with the numbers of its rows as ROW. Raises SessionError if it has another form."""
    there = pl.read_parquet_schema(path)
    for column, dtype in there.items():
        if column not in columns:
            raise SessionError(
                f"{path.name} has a column {column!r} of a newer rankscope: ingest the files again, or update"
            )
        if dtype != columns[column]:
            raise SessionError(
                f"column {column!r} of {path.name} is {dtype}, not {columns[column]}: ingest the files again"
            )
    # numbers of the scan itself: a filter by them is made while the file is read
    scan = pl.scan_parquet(path, glob=False, row_index_name=ROW)
    if (counted := scan.select(pl.len()).collect().item()) != rows:
        raise SessionError(f"{path.name} has {counted:,} rows, not {rows:,}: its writing was cut short")
    return scan.select(
        [pl.col(ROW), *(pl.col(n) if n in there else pl.lit(None, t).alias(n) for n, t in columns.items())]
    )


@contextmanager
def _parquet_errors(file: str) -> Iterator[None]:
    """Raises SessionError for a file that cannot be read, or is no table."""
    try:
        yield
    except OSError as error:
        raise SessionError(f"{file}: {error.strerror or error}") from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise SessionError(f"{file} is no table of Parquet, or damaged: {str(error)[:_MOST_REASON]}") from error


def _broken_references(tables: Mapping[str, pl.DataFrame]) -> Iterator[str]:
    """Columns that hold rows beyond their table, or ranks beyond any job."""
    heights = {column: tables[table].height for column, table in _REFERENCES.items()}
    ranks = dict.fromkeys(("rank", "ranks"), MOST_RANKS)
    for name, frame in tables.items():
        for column, limit in {**heights, **ranks}.items():
            values = frame[column] if column in frame.columns else pl.Series(dtype=pl.Int64)
            flat = values.explode() if values.dtype.is_nested() else values
            if flat.dtype.is_integer() and not _within(flat, limit):
                yield f"column {column!r} of {name}{SUFFIX} holds numbers beyond {limit:,}: not a session of rankscope"
    for column, table in (("file", "files"), ("group", "groups")):
        if not tables[table][column].equals(pl.Series(column, range(tables[table].height), pl.UInt32)):
            yield f"the rows of {table}{SUFFIX} are not in order: not a session of rankscope"


def _within(values: pl.Series, limit: int) -> bool:
    """Whether all values that are not null are in 0..limit-1."""
    lowest, highest = values.min(), values.max()
    return lowest is None or (int(lowest) >= 0 and int(highest) < limit)  # type: ignore[arg-type]
