"""The declaration of a table: what a row is, and of each column its type, its meaning and whose words it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import polars as pl

from rankscope.text.escaping import plain

Dtype = pl.DataType | type[pl.DataType]
Holds = Literal["text", "host", "path", "json", "setting", "ours"]
"""What a column of text holds, which says how it is redacted: text of any kind; the name of a host; a path of a file;
JSON with such text; the value of the setting that the column `name` names; or "ours": words of rankscope's own and
numbers, nothing that a file words: names stay in it, and no secret is looked for."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. One of text says what it holds, and no other does."""

    dtype: Dtype
    about: str = ""
    """Its meaning, for the published schema and the docs; "" where name, unit and enum say all."""
    holds: Holds | None = None
    unit: str = ""
    """Of a number, where the end of its name does not say it: "bytes"."""


class Table(Mapping[str, Dtype]):
    """A table, declared once: an empty frame, the field of a Dataset, redaction, Parquet, the published schema and docs
    follow from it.

    It maps its columns to their types, so that polars takes it for a schema. Raises ValueError for a column of text
    that does not say what it holds, and for one whose texts lie inside of lists or records, where none is redacted.
    """

    def __init__(self, name: str, about: str, /, **columns: Column | Dtype) -> None:
        self.name = name
        self.about = about
        """What a row is, and the order of rows."""
        self.columns = {key: row if isinstance(row, Column) else Column(row) for key, row in columns.items()}
        for key, column in self.columns.items():
            inner: Any = column.dtype
            while isinstance(inner, pl.List | pl.Array):
                inner = inner.inner
            if inner in (pl.Struct, pl.Object, pl.List, pl.Array) or (_is_text(inner) and inner is not column.dtype):
                raise ValueError(f"column {key!r} of {name}: text inside of {column.dtype} cannot be redacted")
            if _is_text(inner) != (column.holds is not None):
                raise ValueError(f"column {key!r} of {name}: a column of text, and no other, says what it holds")

    def __getitem__(self, column: str) -> Dtype:
        return self.columns[column].dtype

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def empty(self) -> pl.DataFrame:
        """The table without rows."""
        return self._empty.clone()

    @cached_property
    def _empty(self) -> pl.DataFrame:
        # a Dataset has dozens of empty tables; to make one of its schema takes a hundred times as long as a clone
        return pl.DataFrame(schema=self)

    def field(self) -> Any:
        """The field of a data class that holds the table, empty by default."""
        return field(default_factory=self.empty, metadata={"table": self})

    def texts(self, frame: pl.DataFrame) -> dict[str, Holds]:
        """The columns of text in such a frame that may hold words from files, and which; those that are not declared
        hold any."""
        held = {
            name: (self.columns[name].holds if name in self.columns else None) or "text"
            for name, dtype in frame.schema.items()
            if _is_text(dtype)
        }
        return {name: holds for name, holds in held.items() if holds != "ours"}


def site_table(name: str, columns: Mapping[str, pl.DataType]) -> Table:
    """The declaration of a table that an installed package adds; names of columns of text say what these hold.

    Raises ValueError for a column that is neither number nor text: what text lies inside of it would not be redacted.
    """
    declared: dict[str, Column] = {}
    for column, dtype in columns.items():
        if not (column.isidentifier() and (dtype.is_numeric() or dtype in (pl.Boolean, pl.String))):
            raise ValueError(f"column {column!a} is neither number nor text")
        holds: Holds = "host" if column.endswith("host") else "path" if column == "path" else "text"
        declared[column] = Column(dtype, holds=holds if dtype == pl.String else None)
    return Table(name, "", **declared)


def harmless(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame of a table of a package with its texts made fit for any screen."""
    texts = [column for column, dtype in frame.schema.items() if dtype == pl.String]
    shown = {column: {text: plain(text) for text in frame[column].drop_nulls().unique()} for column in texts}
    return frame.with_columns(pl.col(column).replace(changes) for column, changes in shown.items())


def _is_text(dtype: Any) -> bool:
    return dtype in (pl.String, pl.Categorical)
