"""Kernels that communicate without a call of a process group: a table of the package, and a user's own of that form.

torch's profiler describes collectives of process groups only. One-shot all-reduces, expert parallelism and symmetric
memory wait for other ranks as well: a rank that spins in one of their kernels does not compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import polars as pl

from rankscope.parsers.user_tables import TableError, TableForm, checked_pattern, merge_tables

CATEGORY = "collective_comm"
"""Category of such kernels, as Kineto has it for devices that tell them apart."""
FORM = TableForm(
    "rankscope.parsers.torch_profiler", "communication_kernels.tsv", "RANKSCOPE_KERNELS", "kernels",
    ("id", "library", "pattern", "source"), ("id", "pattern"),
)  # fmt: skip


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
    return _read(FORM.packaged_text(), FORM.file_name)


@cache
def _table_with(path: Path | None) -> tuple[tuple[KernelPattern, ...], str | None]:
    if path is None:
        return packaged_table(), None
    try:
        return merge_tables(packaged_table(), read_table(path)), None
    except TableError as error:
        return packaged_table(), str(error)


def current_table() -> tuple[tuple[KernelPattern, ...], str | None]:
    """The table of rankscope with the user's own, and why that cannot be read."""
    return _table_with(FORM.users_path())


def read_table(path: Path) -> tuple[KernelPattern, ...]:
    """A user's own table with the columns `id` and `pattern` at least. Raises TableError."""
    return _read(FORM.text_of(path), str(path))


def communicating_names(names: Sequence[str]) -> set[int]:
    """The places of names of kernels that communicate."""
    table, _ = current_table()
    pattern = "|".join(f"(?:{row.pattern})" for row in table)
    column = pl.Series(names, dtype=pl.String)
    return set(column.str.contains(pattern).fill_null(False).arg_true().to_list())


def _read(text: str, name: str) -> tuple[KernelPattern, ...]:
    found = []
    for place, values in FORM.rows(text, name):
        if checked_pattern(values["pattern"], place):
            raise TableError(f"{place}: pattern: it fits every name")
        found.append(KernelPattern(**values))
    return tuple(found)
