"""What each trace tells whatever the others do: its steps, kernels, idle time, queues and launches."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from rankscope.analysis.traces import device
from rankscope.analysis.traces.breakdown import split_steps
from rankscope.analysis.traces.model import IDLE, KERNELS, LAUNCHES, QUEUES, STEPS, Columns
from rankscope.analysis.traces.spans import Spans
from rankscope.schema import Dataset

Alone = dict[str, pl.DataFrame]
"""Tables of one file by name, without its rank: "steps" on its own clock, and KERNELS, IDLE, QUEUES, LAUNCHES."""
TABLES: dict[str, Columns] = {"kernels": KERNELS, "idle": IDLE, "queues": QUEUES, "launches": LAUNCHES}
_OF_LAUNCHED: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "idle": device.idle, "queues": device.queues, "launches": device.launches,
}  # fmt: skip
_TOLD_LATER = ("late_ns", "waited_ns")


def tables_of_all(spans: Spans, steps: pl.DataFrame) -> Alone:
    """The tables of all files, one after another in the order of files.

    `steps` are those that the program marked: file, step, begin_ns, end_ns.
    """
    dataset, windows = spans.dataset, _windows(spans.dataset, steps)
    ranks = dataset.traces.select("file", "rank")
    found = [_of(spans, file, windows[file]) for file in sorted(dataset.traces["file"])]
    out = {
        name: _ranked([one[name] for one in found if name in one], ranks, columns) for name, columns in TABLES.items()
    }
    without = {name: kind for name, kind in STEPS.items() if name not in _TOLD_LATER}
    told = _ranked([one["steps"] for one in found], ranks, without)
    return {**out, "steps": told.sort("rank", "file", "start_ns", maintain_order=True)}


def _windows(dataset: Dataset, steps: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """By file the steps in it; the window is one where none are marked."""
    windows = dataset.traces.select(
        "file", pl.lit(0, dtype=pl.Int64).alias("step"), begin_ns="start_ns", end_ns="end_ns"
    )
    marked = steps.select("file", "step", "begin_ns", "end_ns").sort("begin_ns")
    parts = {file: part for (file,), part in marked.partition_by("file", as_dict=True).items()}
    return {file: parts.get(file, part) for (file,), part in windows.partition_by("file", as_dict=True).items()}


def _of(spans: Spans, file: int, steps: pl.DataFrame) -> Alone:
    ran, launched = spans.device(file), spans.launched(file)
    tables = {"steps": split_steps(spans, file, steps)}
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
