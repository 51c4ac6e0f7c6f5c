"""How far each rank has got, to tell which have moved since somebody looked."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import polars as pl

from rankscope.analysis.arrays import filled
from rankscope.schema import Dataset

Marks = dict[int, tuple[int, ...]]
"""By rank what changes whenever an operation of it is issued, starts or ends, or a trace of it comes."""


def marks_of(dataset: Dataset, only: Collection[int] | None = None) -> Marks:
    """The marks of all ranks that left anything: their newest events, and how many operations there are and done.

    Then how many traces, and until when the newest goes. Or the marks of `only` some ranks.
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
    columns = [np.maximum.reduceat(filled(ops[name], 0), starts) for name in ("created_ns", "completed_ns")]
    done = np.add.reduceat((ops["state"] == "completed").fill_null(value=False).to_numpy(), starts, dtype=np.int64)
    counts = np.diff(starts, append=len(ranks))
    rows = zip(*(part.tolist() for part in (ranks[starts], *columns, done, counts)), strict=True)
    return {rank: tuple(rest) for rank, *rest in rows}


def _of_traces(traces: pl.DataFrame) -> Marks:
    table = traces.group_by("rank").agg(pl.len(), pl.col("end_ns").max())
    return {rank: tuple(rest) for rank, *rest in table.iter_rows()}


def changed_ranks(before: Marks, now: Marks) -> frozenset[int]:
    """Ranks that are not as they were."""
    return frozenset(rank for rank in now if now[rank] != before.get(rank))
