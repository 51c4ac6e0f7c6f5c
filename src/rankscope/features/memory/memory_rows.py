"""Rows of `memory`: samples of the capture, messages of allocators that failed, memory events of traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from rankscope.assemble.gathering import RunChoice
from rankscope.assemble.rank_files import FileOwner, RankFile, newest_files, rank_files
from rankscope.assemble.sources import SourceFile
from rankscope.features.memory.memory_messages import MARKS, read_out_of_memory
from rankscope.features.memory.memory_samples import SAMPLE_NUMBERS, MemorySamples
from rankscope.features.traces.read.model import MEMORY_NUMBERS
from rankscope.features.traces.rows.trace_window import TraceWindow
from rankscope.parsers.matrices import NULL
from rankscope.schema.tables import HOST, MEMORY

_TYPES = {0: HOST, 1: "cuda", 6: "hip", 12: "xpu", 20: "privateuseone"}
"""Names of c10::DeviceType; torch_npu and other vendors are "privateuseone"."""
MOST_MESSAGES = 1 << 12
"""Most messages that are read: a job that goes on after each failed request may print many."""


def add_samples(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], run: RunChoice) -> int:
    """Adds the samples of the newest process of each rank; returns the number of ranks, 0 for none."""
    chosen, pattern = run.attempt, run.pattern
    files = rank_files(sources, MemorySamples, chosen, pattern, lambda _, one: FileOwner(one.rank, one.host, one.pid))
    newest = newest_files(files, lambda file: file.content.started_ns or 0)
    _put(tables, [_sample_rows(file) for file in newest])
    return max((max(_rank(file) + 1, file.content.world_size or 0) for file in newest), default=0)


def _rank(file: RankFile[MemorySamples]) -> int:
    return file.content.rank if file.source.rank is None else file.source.rank


def _sample_rows(file: RankFile[MemorySamples]) -> pl.DataFrame:
    place, source, content = file
    source.used = True
    columns: dict[str, Any] = dict(zip(SAMPLE_NUMBERS, content.numbers, strict=True))
    devices = np.array([*content.devices, ""], object)[columns.pop("device")].tolist()
    return _frame({**columns, "device": devices}, _rank(file), content.host or None, place, "capture")


def add_message_rows(tables: dict[str, pl.DataFrame]) -> None:
    """Adds the sizes in messages of allocators that failed. A message that a log has twice counts once."""
    texts = tables["messages"]
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
        _put(tables, [pl.DataFrame(list(rows.values()), schema=MEMORY)])


def add_event_rows(
    tables: dict[str, pl.DataFrame], before: Mapping[str, pl.DataFrame], found: Sequence[TraceWindow]
) -> None:
    """Adds the memory events of traces to the rows `before` them."""
    parts = [_event_rows(window) for window in found if window.content.memory.size and window.content.writers == 1]
    if parts:
        tables["memory"] = before.get("memory", MEMORY.empty())
        _put(tables, parts)


def _event_rows(window: TraceWindow) -> pl.DataFrame:
    columns: dict[str, Any] = dict(zip(MEMORY_NUMBERS, window.content.memory, strict=True))
    types, places = columns.pop("type").tolist(), columns.pop("index").tolist()
    names = {
        key: kind if (kind := _TYPES.get(key[0], f"device{max(key[0], 0)}")) == HOST else f"{kind}:{max(key[1], 0)}"
        for key in set(zip(types, places, strict=True))
    }
    columns["time_ns"] = columns["time_ns"] + window.base_ns
    devices = [names[key] for key in zip(types, places, strict=True)]
    # the allocator of the host reserves nothing, and says 0
    columns["reserved"] = np.where(np.array(devices) == HOST, NULL, columns["reserved"])
    return _frame({**columns, "device": devices}, window.rank, window.host or None, window.place, "profiler")


def _frame(columns: Mapping[str, Any], rank: int, host: str | None, place: int, source: str) -> pl.DataFrame:
    same = {"rank": rank, "host": host, "file": place, "source": source}
    told = pl.DataFrame(dict(columns)).with_columns(
        pl.when(pl.col(name) == NULL).then(None).otherwise(pl.col(name)).alias(name)
        for name in columns if name != "device"
    ).with_columns(**{name: pl.lit(value) for name, value in same.items()})  # fmt: skip
    return told.select(
        (pl.col(name) if name in told.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in MEMORY.items()
    )


def _put(tables: dict[str, pl.DataFrame], parts: Sequence[pl.DataFrame]) -> None:
    known = [tables["memory"]] if "memory" in tables else []
    if parts:
        tables["memory"] = pl.concat([*known, *parts]).sort("rank", "device", "time_ns", maintain_order=True)
