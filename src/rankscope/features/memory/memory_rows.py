"""Rows of `memory` from samples of the capture, and from messages of allocators that failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from rankscope.assemble.gathering import RunChoice
from rankscope.assemble.memory_table import memory_rows, with_memory
from rankscope.assemble.rank_files import FileOwner, RankFile, newest_files, rank_files
from rankscope.assemble.sources import SourceFile
from rankscope.features.memory.memory_messages import MARKS, read_out_of_memory
from rankscope.features.memory.memory_samples import SAMPLE_NUMBERS, MemorySamples
from rankscope.schema.tables import MEMORY

MESSAGE_PATTERNS = ("cuda-out-of-memory", "host-allocation")
"""Known errors whose messages have sizes."""
MOST_MESSAGES = 1 << 12
"""Most messages that are read: a job that goes on after each failed request may print many."""


def add_samples(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], run: RunChoice) -> int:
    """Adds the samples of the newest process of each rank; returns the number of ranks, 0 for none."""
    chosen, pattern = run.attempt, run.pattern
    files = rank_files(sources, MemorySamples, chosen, pattern, lambda _, one: FileOwner(one.rank, one.host, one.pid))
    newest = newest_files(files, lambda file: file.content.started_ns or 0)
    if newest:
        tables["memory"] = with_memory(tables.get("memory"), [_sample_rows(file) for file in newest])
    return max((max(_rank(file) + 1, file.content.world_size or 0) for file in newest), default=0)


def _rank(file: RankFile[MemorySamples]) -> int:
    return file.content.rank if file.source.rank is None else file.source.rank


def _sample_rows(file: RankFile[MemorySamples]) -> pl.DataFrame:
    place, source, content = file
    source.used = True
    columns: dict[str, Any] = dict(zip(SAMPLE_NUMBERS, content.numbers, strict=True))
    devices = np.array([*content.devices, ""], object)[columns.pop("device")].tolist()
    return memory_rows({**columns, "device": devices}, _rank(file), content.host or None, place, "capture")


def add_message_rows(tables: dict[str, pl.DataFrame]) -> None:
    """Adds the sizes in messages of allocators that failed. A message that a log has twice counts once."""
    texts = tables["messages"]
    if not texts["pattern"].is_in(MESSAGE_PATTERNS).any():
        return
    told = texts.filter(pl.col("text").str.contains_any(list(MARKS)) & pl.col("rank").is_not_null())
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    # of an exception and its last line, the line
    for row in told.sort("pattern", descending=True, maintain_order=True).head(MOST_MESSAGES).iter_rows(named=True):
        found = read_out_of_memory(row["text"])
        if found is not None:
            place = {name: row[name] for name in ("rank", "host", "time_ns", "file", "line")}
            sizes = {name: value for name, value in found._asdict().items() if name in MEMORY}
            rows.setdefault((row["rank"], row["file"], found), {**place, **sizes, "source": "log"})
    if rows:
        logged = pl.DataFrame(list(rows.values()), schema=dict(MEMORY))
        tables["memory"] = with_memory(tables.get("memory"), [logged])
