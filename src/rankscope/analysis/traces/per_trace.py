"""What each trace tells whatever the others do: of a job that is watched it is worked out once."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from rankscope.analysis.traces import device
from rankscope.analysis.traces.breakdown import split_steps
from rankscope.analysis.traces.model import IDLE, KERNELS, LAUNCHES, QUEUES, STEPS, Columns
from rankscope.analysis.traces.spans import Spans
from rankscope.schema import Dataset

Alone = dict[str, pl.DataFrame]
"""Tables of one file by name, without its rank: "steps" on its own clock, and KERNELS, IDLE, QUEUES, LAUNCHES."""
Kept = MutableMapping[tuple[Any, ...], tuple[int, int, Alone]]
"""By what a file is: its number, that of its first track, and its tables."""
TABLES: dict[str, Columns] = {"kernels": KERNELS, "idle": IDLE, "queues": QUEUES, "launches": LAUNCHES}
_OF_LAUNCHED: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "idle": device.idle, "queues": device.queues, "launches": device.launches,
}  # fmt: skip
_TOLD_LATER = ("late_ns", "waited_ns")


@dataclass(frozen=True)
class Apart:
    """The tables of all files, each told apart from the others."""

    spans: Spans
    steps: pl.DataFrame
    """Steps that the program marked: file, step, begin_ns, end_ns."""
    kept: Kept
    """What is known of files; what is not is put there."""
    all_there: bool = True
    """There are no others: what is known of any is forgotten."""

    def tables(self) -> Alone:
        """One after another, in the order of files."""
        dataset, whole = self.spans.dataset, self._windows()
        ranks = dataset.traces.select("file", "rank")
        found = self._all(dataset, whole)
        out = {
            name: _ranked([one[name] for one in found if name in one], ranks, columns)
            for name, columns in TABLES.items()
        }
        without = {name: kind for name, kind in STEPS.items() if name not in _TOLD_LATER}
        steps = _ranked([one["steps"] for one in found], ranks, without)
        return {**out, "steps": steps.sort("rank", "file", "start_ns", maintain_order=True)}

    def _all(self, dataset: Dataset, windows: dict[int, pl.DataFrame]) -> list[Alone]:
        tracks = dict(dataset.tracks.group_by("file").agg(pl.col("track").min()).iter_rows())
        keys, found, now = _keys(dataset, self.spans), list[Alone](), dict[tuple[Any, ...], tuple[int, int, Alone]]()
        for file, key in sorted(keys.items()):
            track = tracks.get(file, 0)
            known = self.kept.get(key)
            tables = self._of(file, windows[file]) if known is None else _moved(known, file, track)
            now[key] = file, track, tables
            found.append(tables)
        if self.all_there:
            self.kept.clear()
        self.kept.update(now)
        return found

    def _windows(self) -> dict[int, pl.DataFrame]:
        """By file the steps in it; the window is one where none are marked."""
        windows = self.spans.dataset.traces.select(
            "file", pl.lit(0, dtype=pl.Int64).alias("step"), begin_ns="start_ns", end_ns="end_ns"
        )
        marked = self.steps.select("file", "step", "begin_ns", "end_ns").sort("begin_ns")
        parts = {file: part for (file,), part in marked.partition_by("file", as_dict=True).items()}
        return {file: parts.get(file, part) for (file,), part in windows.partition_by("file", as_dict=True).items()}

    def _of(self, file: int, steps: pl.DataFrame) -> Alone:
        ran, launched = self.spans.device(file), self.spans.launched(file)
        tables = {"steps": split_steps(self.spans, file, steps)}
        if ran is not None:
            tables["kernels"] = device.kernels(ran)
            tables |= {name: make(launched) for name, make in _OF_LAUNCHED.items()}
        return tables


def _ranked(tables: list[pl.DataFrame], ranks: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """The tables as one with these columns, and the rank of each file."""
    if not tables:
        return pl.DataFrame(schema=columns)
    joined = pl.concat(tables, how="vertical_relaxed").join(ranks, on="file", maintain_order="left")
    return joined.select([pl.col(name).cast(kind) for name, kind in columns.items()])


def _moved(known: tuple[int, int, Alone], file: int, track: int) -> Alone:
    """Tables of a file with the numbers that it has now."""
    was, first, tables = known
    if (was, first) == (file, track):
        return tables
    number = pl.lit(file, dtype=pl.UInt32).alias("file")
    shift = (pl.col("^track$").cast(pl.Int64) - first + track).cast(pl.UInt32)
    return {name: table.with_columns(number, shift) for name, table in tables.items()}


def _keys(dataset: Dataset, spans: Spans) -> dict[int, tuple[Any, ...]]:
    """By file what tells it from all others, and from what it was: what it is made of and what is read of it."""
    rows = dataset.traced.group_by("file").agg(operations=pl.len())
    table = dataset.traces.join(dataset.files.select("file", "path", "size", "mtime_ns"), on="file", how="left")
    return {row[0]: (*row[1:], spans.busy_ns(row[0])) for row in table.join(rows, on="file", how="left").iter_rows()}
