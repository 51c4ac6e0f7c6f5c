"""A schedule: the operations of steps with their durations, and what each waits for."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rankscope.features.whatif.step_graph import StepGraph, Times

SCHEDULE: dict[str, pl.DataType | type[pl.DataType]] = {
    "step": pl.Int64,  # from 0
    "rank": pl.Int64,
    "stage": pl.Int64,  # ranks of one stage do the same work
    "replica": pl.Int64,  # ranks of one replica work on the same data
    "what": pl.String,  # kind of the operation, for people
    "transfer": pl.Boolean,  # it moves data; else it computes
    "slot": pl.Int64,  # operations of one stage and slot should take equally long
    "micro": pl.Int64,  # micro batch in the step; null where that is not known
    "route": pl.Int64,  # ranks between which a transfer goes; null for computing
    "took_ns": pl.Float64,  # of a transfer from when its last member came
    "typical_ns": pl.Float64,
    "first_ns": pl.Float64,  # two parts of its time that longer sequences stretch alike; null where they do not
    "second_ns": pl.Float64,
}
"""One row for each operation, in the order of the graph."""


def part_of(total: str) -> pl.Expr:
    """The part that an operation has in all of its slot on its rank, whose time is the column `total`; of none 0."""
    return pl.when(pl.col(total) > 0).then(pl.col("took_ns") / pl.col(total)).otherwise(0.0)


@dataclass(frozen=True)
class StepSchedule:
    """The operations of steps, in the form that what-if questions are asked of."""

    ops: pl.DataFrame
    """Columns SCHEDULE."""
    graph: StepGraph
    measured_ns: Times
    """By step of the graph how long it took."""
    repeats: int = 1
    """Steps of the program in each step of the graph: of traces and dumps all are simulated as one."""
    named: bool = False
    """Its slots are kinds of operations, which all stages share; else places in the step, which only one stage has."""
