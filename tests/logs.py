"""Tables of log lines and settings, written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from rankscope.schema import Dataset
from rankscope.schema.tables import FILES, MESSAGES, SETTINGS
from tests.builders import START_NS

SECOND = 1_000_000_000
LOG_FILES = 5_000
"""Row of `files` of the log of rank 0."""


def line(rank: int | None, text: str, role: str = "context", at_s: float | None = 0.0, **more: Any) -> dict[str, Any]:
    """A row of `messages`: written `at_s` seconds after the start of the job, None without a time."""
    time_ns = None if at_s is None else START_NS + round(at_s * SECOND)
    row = {
        "time_ns": time_ns, "resolution_ns": None if at_s is None else 1_000_000, "rank": rank, "host": "node00",
        "pid": 4000 + (rank or 0), "file": LOG_FILES + (rank or 0), "severity": "error", "kind": "known-error",
        "role": role, "pattern": "", "text": text, "values": "{}", "torn": False,
    }  # fmt: skip
    return {**row, **more}


def setting(rank: int | None, name: str, value: str, **more: Any) -> dict[str, Any]:
    """A row of `settings`."""
    row = {"rank": rank, "host": "node00", "pid": 4000 + (rank or 0), "name": name, "value": value, "source": "nccl"}
    return {**row, "file": LOG_FILES + (rank or 0), **more}


def with_logs(
    dataset: Dataset, lines: Iterable[Mapping[str, Any]] = (), settings: Iterable[Mapping[str, Any]] = ()
) -> Dataset:
    """The dataset with these lines, each at its place in the log of its rank, and with these settings."""
    rows, told = list(lines), list(settings)
    placed = [{"line": at + 1, "offset": at * 100, **row} for at, row in enumerate(rows)]
    logs = sorted({row["file"] for row in (*rows, *told)})
    files = pl.DataFrame(
        [{"file": n, "path": f"logs/rank{n - LOG_FILES}.err", "kind": "log", "attempt": 0, "used": True} for n in logs],
        schema=FILES,
    )
    return replace(
        dataset,
        messages=pl.DataFrame(placed, schema=MESSAGES).sort("file", "offset"),
        settings=pl.DataFrame(told, schema=SETTINGS),
        files=pl.concat([dataset.files, files]),
    )
