"""How far each rank has got, to tell which have moved since somebody looked."""

from __future__ import annotations

import polars as pl

from rankscope.schema import Dataset

Marks = dict[int, tuple[int | None, ...]]
"""By rank what changes whenever an operation of it is issued, starts or ends."""


def marks_of(dataset: Dataset) -> Marks:
    """The marks of all ranks that left anything."""
    done = (pl.col("state") == "completed").sum().cast(pl.Int64)
    table = (
        dataset.ops.filter(pl.col("rank").is_not_null())
        .group_by("rank")
        .agg(pl.col("created_ns").max(), pl.col("completed_ns").max(), done.alias("done"), pl.len().alias("count"))
    )
    return {rank: tuple(rest) for rank, *rest in table.iter_rows()}


def changed_ranks(before: Marks, now: Marks) -> frozenset[int]:
    """Ranks that are not as they were."""
    return frozenset(rank for rank in now if now[rank] != before.get(rank))
