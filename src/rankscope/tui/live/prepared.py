"""An update with all data for the screen, made in a thread where no key waits for it, and marks of ranks that moved."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl

from rankscope.analysis.arrays import filled_array
from rankscope.schema import Dataset
from rankscope.tui.model import build_model
from rankscope.tui.overview import worst_by_column

if TYPE_CHECKING:
    from rankscope.tui.letters import Codes
    from rankscope.tui.model import Model
    from rankscope.watching.update import FollowProgress, JobUpdate


@dataclass(frozen=True)
class Prepared:
    """An update of a job, and its lanes."""

    update: JobUpdate
    model: Model
    overview: Codes
    marks: Marks


class Watch(Protocol):
    """Follows a job; `run` calls back until `stop` is called, which may be done from any thread."""

    def run(self, publish: Callable[[JobUpdate | FollowProgress | Prepared], None]) -> None:
        """Follows the job in the thread of the caller; preparation there costs the screen no time."""
        ...

    def stop(self) -> None:
        """Ends `run`."""
        ...


def prepare(update: JobUpdate) -> Prepared:
    """Makes the data of the screen for an update."""
    model = build_model(update.dataset, update.analysis)
    return Prepared(update, model, worst_by_column(model), marks_of(update.dataset))


Marks = dict[int, tuple[int, ...]]
"""By rank, numbers that change when its operation is issued, starts or ends, or when a trace of it comes."""


def marks_of(dataset: Dataset, only: Collection[int] | None = None) -> Marks:
    """The marks of all ranks with data: newest events, and numbers of all operations and of those that are done.

    Then the number of traces, and the end of the newest. `only` limits the result to some ranks.
    """
    ops, traces = _of_operations(_of(dataset.ops, only)), _of_traces(_of(dataset.traces, only))
    nothing = (0, 0)
    return {rank: (*ops.get(rank, (0, 0, 0, 0)), *traces.get(rank, nothing)) for rank in {*ops, *traces}}


def _of(table: pl.DataFrame, only: Collection[int] | None) -> pl.DataFrame:
    table = table.filter(pl.col("rank").is_not_null()) if table["rank"].null_count() else table
    return table if only is None else table.filter(pl.col("rank").is_in(list(only)))


def _of_operations(ops: pl.DataFrame) -> Marks:
    ranks = ops["rank"].to_numpy()
    starts = np.flatnonzero(np.diff(ranks, prepend=-1))
    if not len(starts):
        return {}
    columns = [np.maximum.reduceat(filled_array(ops[name], 0), starts) for name in ("created_ns", "completed_ns")]
    done = np.add.reduceat((ops["state"] == "completed").fill_null(value=False).to_numpy(), starts, dtype=np.int64)
    counts = np.diff(starts, append=len(ranks))
    rows = zip(*(part.tolist() for part in (ranks[starts], *columns, done, counts)), strict=True)
    return {rank: tuple(rest) for rank, *rest in rows}


def _of_traces(traces: pl.DataFrame) -> Marks:
    table = traces.group_by("rank").agg(pl.len(), pl.col("end_ns").max())
    return {rank: tuple(rest) for rank, *rest in table.iter_rows()}


def changed_ranks(before: Marks, now: Marks) -> frozenset[int]:
    """Ranks whose marks differ."""
    return frozenset(rank for rank in now if now[rank] != before.get(rank))
