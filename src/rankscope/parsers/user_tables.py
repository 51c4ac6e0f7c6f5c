"""Tables of patterns that come with rankscope, and a user's own of the same form, which adds to them.

A table is a text: the first line names the columns, with tabs between them; empty lines and those with `#` are left
out. `id` and `pattern` are always columns. A user's row with the id of a row of rankscope replaces it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import polars as pl
from platformdirs import user_config_path

from rankscope.text.wording import byte_count

PATTERN_LIMIT = 500
ENTRY_LIMIT = 1000
SIZE_LIMIT = 1 << 20


class TableError(Exception):
    """A table that cannot be read; the message names file and line."""


class _Row(Protocol):
    @property
    def id(self) -> str: ...


_R = TypeVar("_R", bound=_Row)


class TableForm(NamedTuple):
    """The form of a table."""

    package: str
    """The package that holds the table of rankscope."""
    file_name: str
    """Its name there, and that of the user's in the configuration of rankscope."""
    variable: str
    """Environment variable with the path of a user's own table; worker processes read it."""
    noun: str
    """The rows in a message: "errors"."""
    columns: tuple[str, ...]
    required: tuple[str, ...]

    def packaged_text(self) -> str:
        """The table that comes with rankscope."""
        return (resources.files(self.package) / self.file_name).read_text("utf-8")

    def users_path(self, named: str | None = None) -> Path | None:
        """The user's table: the one of that name, or in `variable`, else in the configuration, if it is there."""
        named = named or os.environ.get(self.variable)
        path = Path(named) if named else user_config_path("rankscope") / self.file_name
        return path if named or path.is_file() else None

    def text_of(self, path: Path) -> str:
        """The text of a user's table. Raises TableError."""
        try:
            if path.stat().st_size > SIZE_LIMIT:
                raise TableError(f"{path}: larger than {byte_count(SIZE_LIMIT)}: no table of {self.noun}")
            return path.read_text("utf-8-sig")
        except OSError as e:
            raise TableError(f"{path}: {e.strerror}") from e
        except UnicodeDecodeError as e:
            raise TableError(f"{path}: not UTF-8 text") from e

    def rows(self, text: str, name: str) -> Iterator[tuple[str, dict[str, str]]]:
        """(place, cells by column) of each row; only patterns keep the blanks at their ends. Raises TableError."""
        lines = enumerate(text.split("\n"), 1)
        rows = [(at, line.rstrip("\r").split("\t")) for at, line in lines if line.strip() and not line.startswith("#")]
        columns = self._columns(rows[0][1], f"{name}:{rows[0][0]}") if rows else []
        if not rows:
            raise TableError(f"{name}: empty: the first line names the columns {', '.join(self.columns)}")
        if len(rows) > ENTRY_LIMIT + 1:
            raise TableError(f"{name}: more than {ENTRY_LIMIT} entries")
        for at, cells in rows[1:]:
            yield f"{name}:{at}", self._cells(columns, cells, f"{name}:{at}")

    def _columns(self, cells: Sequence[str], place: str) -> list[str]:
        columns = [cell.strip() for cell in cells]
        missing = [name for name in self.required if name not in columns]
        if missing:
            names = "the first line names the columns, with tabs between them"
            raise TableError(f"{place}: no column '{missing[0]}': {names}")
        unknown = [name for name in columns if name not in self.columns]
        if unknown:
            raise TableError(f"{place}: unknown column '{unknown[0]}': there are {', '.join(self.columns)}")
        return columns

    def _cells(self, columns: Sequence[str], cells: Sequence[str], place: str) -> dict[str, str]:
        if len(cells) > len(columns):
            raise TableError(f"{place}: {len(cells)} cells for {len(columns)} columns")
        told = dict(zip(columns, cells, strict=False))
        values = dict.fromkeys(self.columns, "") | {name: text.strip() for name, text in told.items()}
        if not values["id"] or not values["pattern"]:
            raise TableError(f"{place}: no {'pattern' if values['id'] else 'id'}")
        return values | {"pattern": told["pattern"]}


def checked_pattern(pattern: str, place: str) -> bool:
    """Whether a pattern, a regular expression of Rust's regex crate, fits the empty text. Raises TableError."""
    if len(pattern) > PATTERN_LIMIT:
        raise TableError(f"{place}: pattern longer than {PATTERN_LIMIT} characters")
    try:
        return bool(pl.Series([""]).str.contains(pattern).item())
    except (ValueError, pl.exceptions.PolarsError) as e:
        raise bad_pattern(e, place) from e


def bad_pattern(error: Exception, place: str) -> TableError:
    """The last line of an error about a pattern, with its place."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    return TableError(f"{place}: pattern: {said[-1] if said else 'not valid'}")


def merge_tables(own: Iterable[_R], users: Iterable[_R]) -> tuple[_R, ...]:
    """Both tables, the user's first; an id of the user's replaces the one of the package."""
    first = {row.id: row for row in users}
    return (*first.values(), *(row for row in own if row.id not in first))


def with_users_rows(
    own: tuple[_R, ...], read: Callable[[Path], Iterable[_R]], path: Path | None
) -> tuple[tuple[_R, ...], str | None]:
    """The table of the package with the user's at `path`, if there is one, and why that cannot be read."""
    if path is None:
        return own, None
    try:
        return merge_tables(own, read(path)), None
    except TableError as error:
        return own, str(error)
