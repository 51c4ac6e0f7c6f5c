"""Rows of `memory` from samples of the capture, and from messages of allocators that failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import polars as pl

from rankscope.assemble.gathering import RunChoice
from rankscope.assemble.memory_table import memory_rows, with_memory
from rankscope.assemble.rank_files import FileOwner, RankFile, newest_files, rank_files
from rankscope.assemble.sources import SourceFile
from rankscope.features.memory.memory_messages import MARKS, read_host_kill, read_out_of_memory
from rankscope.features.memory.memory_samples import SAMPLE_NUMBERS, MemorySamples
from rankscope.schema.tables import HOST, MEMORY

MESSAGE_PATTERNS = ("cuda-out-of-memory", "host-allocation")
"""Known errors whose messages have sizes."""
SUMMARY = "memory-summary"
"""Kind of the event of a table of `torch.cuda.memory_summary()`."""
KILL = "oom-kill"
"""Kind of the event of a process that the kernel killed for want of memory."""
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
    """Adds the sizes in messages of allocators that failed, in summaries of a device, and in the kernel's lines on what
    it killed; the rank may be unknown.

    A message that a log has twice counts once.
    """
    texts = tables["messages"]
    if not texts["pattern"].is_in(MESSAGE_PATTERNS).any() and not texts["kind"].is_in((SUMMARY, KILL)).any():
        return
    told = texts.filter(pl.col("kind").is_in((SUMMARY, KILL)) | pl.col("text").str.contains_any(list(MARKS)))
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    # of an exception and its last line, the line
    for row in told.sort("pattern", descending=True, maintain_order=True).head(MOST_MESSAGES).iter_rows(named=True):
        place = {name: row[name] for name in ("rank", "host", "time_ns", "file", "line")}
        if row["kind"] == SUMMARY:
            rows[row["file"], row["line"]] = {**place, **_summary_sizes(row["values"]), "source": "log"}
        elif row["kind"] == KILL:
            kill = read_host_kill(row["text"])
            held = None if kill is None else kill.anonymous
            rows[row["file"], row["line"]] = {**place, "device": HOST, "reserved": held, "source": "log"}
        elif (found := read_out_of_memory(row["text"])) is not None:
            sizes = {name: value for name, value in found._asdict().items() if name in MEMORY}
            rows.setdefault((row["rank"], row["file"], found), {**place, **sizes, "source": "log"})
    if rows:
        logged = pl.DataFrame(list(rows.values()), schema=dict(MEMORY))
        tables["memory"] = with_memory(tables.get("memory"), [logged])


def _summary_sizes(text: str) -> dict[str, Any]:
    """The sizes of a summary, from the values of its message."""
    values = summary_values(text)
    names = {"device": "device", "allocated": "allocated", "reserved": "reserved", "peak": "peak_allocated"}
    return {name: values[key] for name, key in names.items() if key in values}


def summary_values(text: str) -> dict[str, Any]:
    """The values of the message of a summary, as the reader of the log makes them."""
    values: dict[str, Any] = orjson.loads(text)
    return values
