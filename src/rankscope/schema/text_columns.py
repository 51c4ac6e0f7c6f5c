"""Text columns of the tables, and which of them hold no text of the user's.

A column of text that is not named here may hold names of users, hosts and paths, and a redacted report replaces them.
So a new column is redacted before anybody thinks of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import polars as pl

Holds = Literal["text", "host", "path", "own"]
"""Text of any kind; the name of a host; a path of a file; words of rankscope's own, or numbers."""

_OPS: dict[str, Holds] = {"host": "host", "in_sizes": "own", "out_sizes": "own"}
HOLDS: Mapping[str, Mapping[str, Holds]] = {
    "ops": _OPS,
    "traced": _OPS,
    "stacks": {"file": "path"},
    "files": {"path": "path", "kind": "own", "host": "host"},
    "attempts": {"label": "path"},
    "messages": {"host": "host", "severity": "own", "kind": "own", "role": "own"},
    "settings": {"host": "host", "source": "own"},
    "comms": {"host": "host", "state": "own"},
    "ras": {"host": "host", "source": "own"},
    "threads": {"tool": "own"},
    "traces": {"host": "host"},
    # tables of the analysis of traces
    "kernels": {"kind": "own"},
    "idle": {"kind": "own"},
}
"""By table and column, where it is something else than text of any kind."""


def text_columns(table: str, columns: Mapping[str, pl.DataType | type[pl.DataType]]) -> dict[str, Holds]:
    """By name the columns of a table that may hold text of the user's, and what they hold."""
    known = HOLDS.get(table, {})
    held = {name: known.get(name, "text") for name, dtype in columns.items() if dtype in (pl.String, pl.Categorical)}
    return {name: what for name, what in held.items() if what != "own"}
