"""Kernels that communicate without a call of a process group: a table of the package, and a user's own of that form.

torch's profiler describes collectives of process groups only. One-shot all-reduces, expert parallelism and symmetric
memory wait for other ranks as well: a rank that spins in one of their kernels does not compute.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import polars as pl
from platformdirs import user_config_path

from rankscope.text.wording import byte_count

CATEGORY = "collective_comm"
"""Category of such kernels, as Kineto has it for devices that tell them apart."""
COLUMNS = ("id", "library", "pattern", "source")
_REQUIRED = ("id", "pattern")
USER_TABLE = "RANKSCOPE_KERNELS"
"""Environment variable with the path of a user's own table."""
FILE_NAME = "communication_kernels.tsv"
PATTERN_LIMIT = 500
ENTRY_LIMIT = 1000
SIZE_LIMIT = 1 << 20


class KernelTableError(Exception):
    """A table that cannot be read; the message names file and line."""


class KernelPattern(NamedTuple):
    """Kernels of one library."""

    id: str
    library: str
    pattern: str
    """A regular expression of Rust's regex crate, which takes linear time for any pattern; searched in names."""
    source: str


@cache
def packaged_table() -> tuple[KernelPattern, ...]:
    """The table that comes with rankscope."""
    text = (resources.files("rankscope.parsers.torch_profiler") / FILE_NAME).read_text("utf-8")
    return _read(text, FILE_NAME)


@cache
def _table_at(named: str | None) -> tuple[tuple[KernelPattern, ...], str | None]:
    path = Path(named) if named else user_config_path("rankscope") / FILE_NAME
    if not named and not path.is_file():
        return packaged_table(), None
    try:
        users = {row.id: row for row in read_table(path)}
    except KernelTableError as error:
        return packaged_table(), str(error)
    return (*users.values(), *(row for row in packaged_table() if row.id not in users)), None


def current_table() -> tuple[tuple[KernelPattern, ...], str | None]:
    """The table of rankscope with the user's own, and why that cannot be read.

    The user's table is the one in `USER_TABLE`, else `communication_kernels.tsv` in the user's configuration, if it
    exists. An id of the user's replaces the one of the package.
    """
    return _table_at(os.environ.get(USER_TABLE))


def read_table(path: Path) -> tuple[KernelPattern, ...]:
    """A user's own table: tab-separated below a line that names columns: `id`, `pattern`. Raises KernelTableError."""
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise KernelTableError(f"{path}: larger than {byte_count(SIZE_LIMIT)}: no table of kernels")
        text = path.read_text("utf-8-sig")
    except OSError as e:
        raise KernelTableError(f"{path}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise KernelTableError(f"{path}: not UTF-8 text") from e
    return _read(text, str(path))


def communicating_names(names: Sequence[str]) -> set[int]:
    """The places of names of kernels that communicate."""
    table, _ = current_table()
    pattern = "|".join(f"(?:{row.pattern})" for row in table)
    column = pl.Series(names, dtype=pl.String)
    return set(column.str.contains(pattern).fill_null(False).arg_true().to_list())


def _read(text: str, name: str) -> tuple[KernelPattern, ...]:
    lines = enumerate(text.split("\n"), 1)
    rows = [(at, line.rstrip("\r").split("\t")) for at, line in lines if line.strip() and not line.startswith("#")]
    columns = [cell.strip() for cell in rows[0][1]] if rows else []
    missing = [column for column in _REQUIRED if column not in columns]
    if missing or not set(columns) <= set(COLUMNS):
        raise KernelTableError(f"{name}: the first line names columns with tabs between them: {', '.join(COLUMNS)}")
    if len(rows) > ENTRY_LIMIT + 1:
        raise KernelTableError(f"{name}: more than {ENTRY_LIMIT} entries")
    return tuple(_entry(columns, cells, f"{name}:{at}") for at, cells in rows[1:])


def _entry(columns: list[str], cells: list[str], place: str) -> KernelPattern:
    if len(cells) > len(columns):
        raise KernelTableError(f"{place}: {len(cells)} cells for {len(columns)} columns")
    row = KernelPattern(**{**dict.fromkeys(COLUMNS, ""), **dict(zip(columns, cells, strict=False))})
    if not row.id.strip() or not row.pattern.strip():
        raise KernelTableError(f"{place}: no {'pattern' if row.id.strip() else 'id'}")
    if len(row.pattern) > PATTERN_LIMIT:
        raise KernelTableError(f"{place}: pattern longer than {PATTERN_LIMIT} characters")
    try:
        matches_nothing = not pl.Series([""]).str.contains(row.pattern).item()
    except (ValueError, pl.exceptions.PolarsError) as e:
        said = [line.strip() for line in str(e).splitlines() if line.strip()]
        raise KernelTableError(f"{place}: pattern: {said[-1] if said else 'not valid'}") from e
    if not matches_nothing:
        raise KernelTableError(f"{place}: pattern: it fits every name")
    return row
