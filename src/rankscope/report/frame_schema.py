"""The frame as a document for programs: tables, columns, dtypes, units and enums, from `rankscope.schema`.

Its descriptions are the comments and docstrings beside the columns, read from the source of the package.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from importlib.util import find_spec
from typing import Any

import polars as pl

from rankscope import schema
from rankscope.report.json import SCHEMA
from rankscope.schema import Dataset

_SOURCES = ("rankscope.schema.tables", "rankscope.schema.measures")
UNITS = {"_ns": "ns", "_ms": "ms", "_bytes": "bytes"}
"""Units of columns, by the end of their names."""
Json = dict[str, Any]


class NoSourceError(Exception):
    """The package is installed without its source, which holds the descriptions."""


def frame_tables() -> dict[str, dict[str, pl.DataType | type[pl.DataType]]]:
    """Columns and dtypes of every table of a Dataset, by the name of its field."""
    names = [field.name for field in fields(Dataset) if field.type == "pl.DataFrame"]
    return {name: getattr(schema, name.upper()) for name in names}


def frame_schema() -> Json:
    """The document. Raises NoSourceError."""
    return {
        "schema": SCHEMA,
        "title": "the frame of rankscope",
        "description": "Tables of one attempt of one job. Times are integer nanoseconds since the epoch, ranks are "
        "global ranks; any column but those of ids may be null.",
        "tables": {name: _table(name, columns) for name, columns in frame_tables().items()},
    }


def _table(name: str, columns: dict[str, pl.DataType | type[pl.DataType]]) -> Json:
    told, notes = _descriptions()
    constant = name.upper()
    # the rows of `traced` are those of `ops`, with a column more
    comments = {**(notes["OPS"] if name == "traced" else {}), **notes[constant]}
    return {
        "description": told.get(constant, ""),
        "columns": [_column(column, dtype, comments.get(column, "")) for column, dtype in columns.items()],
    }


def _column(name: str, dtype: pl.DataType | type[pl.DataType], description: str) -> Json:
    ends = next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), "")
    unit = "bytes" if description.startswith("bytes") else ends
    enum = {"enum": dtype.categories.to_list()} if isinstance(dtype, pl.Enum) else {}
    return {
        "name": name,
        "dtype": _dtype_name(dtype),
        **({"unit": unit} if unit else {}),
        **enum,
        **({"description": description} if description else {}),
    }


def _dtype_name(dtype: Any) -> str:
    """The name in polars: "Int64", "Enum", "List(Int32)"."""
    if isinstance(dtype, pl.List):
        return f"List({_dtype_name(dtype.inner)})"
    return str(dtype.base_type())


@cache
def _descriptions() -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """By constant its docstring, and the comments of its columns. Raises NoSourceError."""
    told: dict[str, str] = {}
    notes: dict[str, dict[str, str]] = {}
    for name in _SOURCES:
        source = _source_of(name)
        comments = _comments(source)
        body = ast.parse(source).body
        for node, after in zip(body, [*body[1:], None], strict=True):
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and isinstance(node.value, ast.Dict)
            ):
                notes[node.target.id] = dict(_column_comments(node.value, comments))
                told[node.target.id] = _docstring(after)
    return told, notes


def _source_of(name: str) -> str:
    spec = find_spec(name)
    source = spec.loader.get_source(name) if spec is not None and spec.loader is not None else None  # type: ignore[attr-defined]
    if source is None:
        raise NoSourceError(f"{name}: installed without its source, which describes the columns")
    return str(source)


def _comments(source: str) -> dict[int, str]:
    """Comments by line, without their sign."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}


def _column_comments(table: ast.Dict, comments: dict[int, str]) -> Iterator[tuple[str, str]]:
    """Columns of a table with the comment behind each.

    A comment above a column is about all that follow with the same dtype. One after a comment that ends with a
    semicolon goes on with it.
    """
    above, dtype, last = "", "", table.lineno
    for key, value in zip(table.keys, table.values, strict=True):
        if not isinstance(key, ast.Constant):
            continue
        lines = [comments[line] for line in range(last + 1, key.lineno) if line in comments]
        if lines or ast.unparse(value) != dtype:
            above, dtype = " ".join(lines), ast.unparse(value)
        last = value.end_lineno or value.lineno
        own = comments.get(last, "")
        while own.endswith(";"):
            last += 1
            own = f"{own} {comments[last]}"
        yield str(key.value), "; ".join(filter(None, (above, own)))


def _docstring(node: ast.stmt | None) -> str:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return " ".join(str(node.value.value).split()) if is_text else ""  # type: ignore[union-attr]
