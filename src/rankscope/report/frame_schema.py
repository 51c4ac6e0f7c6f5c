"""The frame as a document for programs: its tables as `rankscope.schema.tables` declares them."""

from __future__ import annotations

from typing import Any

import polars as pl

from rankscope.report.json import SCHEMA
from rankscope.schema.table import Column, Table
from rankscope.schema.tables import TABLES

UNITS = {"_ns": "ns", "_ms": "ms", "_bytes": "bytes"}
"""Units of columns, by the end of their names."""
Json = dict[str, Any]


def frame_schema() -> Json:
    """The document."""
    return {
        "schema": SCHEMA,
        "title": "the frame of rankscope",
        "description": "Tables of one attempt of one job. Times are integer nanoseconds since the epoch, ranks are "
        "global ranks; any column but those of ids may be null.",
        "tables": {name: _table(table) for name, table in TABLES.items()},
    }


def _table(table: Table) -> Json:
    return {
        "description": table.about,
        "columns": [_column(name, column) for name, column in table.columns.items()],
    }


def _column(name: str, column: Column) -> Json:
    unit = column.unit or next((unit for end, unit in UNITS.items() if name.endswith(end)), "")
    enum = {"enum": column.dtype.categories.to_list()} if isinstance(column.dtype, pl.Enum) else {}
    return {
        "name": name,
        "dtype": _dtype_name(column.dtype),
        **({"unit": unit} if unit else {}),
        **enum,
        **({"description": column.about} if column.about else {}),
    }


def _dtype_name(dtype: Any) -> str:
    """The name in polars: "Int64", "Enum", "List(Int32)"."""
    if isinstance(dtype, pl.List):
        return f"List({_dtype_name(dtype.inner)})"
    return str(dtype.base_type())
