"""Tables of a Dataset as Parquet files of a directory, and back. Each file is checked before it is read."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from rankscope.schema import Dataset, empty
from rankscope.schema.dataset import TABLES

MOST_RANKS = 1 << 20
"""Most ranks of a job; no file may name a higher one."""
SUFFIX = ".parquet"
_CELL_BYTES = 8
_MOST_REASON = 200
_REFERENCES = {"file": "files", "group": "groups", "track": "tracks", "span": "spans"}
"""Columns that hold rows of another table."""


class SessionError(Exception):
    """A session cannot be written or read; the message is for the user."""


def write_tables(dataset: Dataset, directory: Path) -> dict[str, int]:
    """Writes each table that has rows; returns the number of rows of each. Raises OSError."""
    rows = {}
    for name in TABLES:
        frame: pl.DataFrame = getattr(dataset, name)
        if frame.height:
            # through memory, for polars tells no reason where a disk is full
            content = io.BytesIO()
            frame.write_parquet(content, compression="zstd", compression_level=1)
            with (directory / f"{name}{SUFFIX}").open("xb") as stream:
                stream.write(content.getbuffer())
                stream.flush()
                os.fsync(stream.fileno())
            rows[name] = frame.height
    return rows


def read_tables(directory: Path, rows: Mapping[str, int]) -> dict[str, pl.DataFrame]:
    """The tables with these numbers of rows; all others are empty. Raises SessionError."""
    unknown = sorted(set(rows) - set(TABLES))
    if unknown:
        raise SessionError(f"its table {unknown[0]!r} is of a newer rankscope: update rankscope, or ingest again")
    needed = sum(count * row_bytes(name) for name, count in rows.items())
    if needed > (limit := memory_bytes()):
        raise SessionError(f"its tables need {needed >> 20:,} MiB of memory, this machine has {limit >> 20:,} MiB")
    tables = {name: _table(directory / f"{name}{SUFFIX}", name, rows.get(name, 0)) for name in TABLES}
    for problem in _broken_references(tables):
        raise SessionError(problem)
    return tables


def row_bytes(name: str) -> int:
    """The usual bytes of one row of a table in memory, without the content of its texts and lists."""
    return _CELL_BYTES * len(TABLES[name])


def memory_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _table(path: Path, name: str, rows: int) -> pl.DataFrame:
    """One table. Columns that its rankscope did not know yet are null. Raises SessionError."""
    columns = TABLES[name]
    if not rows:
        return empty(columns)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise SessionError(f"{path.name} is no regular file")
        there = pl.read_parquet_schema(path)
        _check_form(path.name, there, columns)
        scan = pl.scan_parquet(path, glob=False)
        if (counted := scan.select(pl.len()).collect().item()) != rows:
            raise SessionError(f"{path.name} has {counted:,} rows, not {rows:,}: its writing was cut short")
        found = scan.select([pl.col(n) if n in there else pl.lit(None, t).alias(n) for n, t in columns.items()])
        return found.collect()
    except OSError as error:
        raise SessionError(f"{path.name}: {error.strerror or error}") from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise SessionError(f"{path.name} is no table of Parquet, or damaged: {str(error)[:_MOST_REASON]}") from error


def _check_form(file: str, there: Mapping[str, pl.DataType], columns: Mapping[str, object]) -> None:
    """Raises SessionError if a column has another type, or is not known here."""
    for column, dtype in there.items():
        if column not in columns:
            raise SessionError(
                f"{file} has a column {column!r} of a newer rankscope: ingest the files again, or update"
            )
        if dtype != columns[column]:
            raise SessionError(f"column {column!r} of {file} is {dtype}, not {columns[column]}: ingest the files again")


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
