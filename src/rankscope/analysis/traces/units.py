"""The units in which lateness is counted: steps of the program, or where none are told equal parts of the window."""

from __future__ import annotations

import re

import polars as pl

from rankscope.analysis.traces.spans import among
from rankscope.schema import Dataset

STEP = re.compile(r"^ProfilerStep#(\d+)$")
PARTS = 8
"""Units of a window without steps, at most."""


def step_spans(dataset: Dataset) -> pl.DataFrame:
    """Steps that `torch.profiler.profile.step` marked: file, step, begin_ns, end_ns on the file's own clock."""
    steps = [name for name in dataset.spans["name"].unique().cast(pl.String).drop_nulls() if STEP.match(name)]
    host = dataset.tracks.filter(pl.col("kind") == "host").select("track", "file")
    marked = among("name", steps) & among("category", ["user_annotation"])
    return (
        dataset.spans.filter(marked).join(host, on="track")
        .select(
            "file", step=pl.col("name").cast(pl.String).str.extract(STEP.pattern).cast(pl.Int64, strict=False),
            begin_ns=pl.col("start_ns"), end_ns=pl.col("start_ns") + pl.col("duration_ns"),
        )
        .drop_nulls().sort("file", "begin_ns")
    )  # fmt: skip


def with_steps(rows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """`rows` with `step`: the one in which the host issued it, null outside of all."""
    if steps.is_empty():
        return rows.with_columns(step=pl.lit(None, dtype=pl.Int64))
    at = pl.coalesce("created_ns", pl.col("started_ns") - pl.col("offset_ns"))
    return (
        rows.with_columns(at=at).sort("at")
        .join_asof(steps.sort("begin_ns"), left_on="at", right_on="begin_ns", by="file", check_sortedness=False)
        .with_columns(step=pl.when(pl.col("at") < pl.col("end_ns")).then("step"))
        .drop("at", "begin_ns", "end_ns")
    )  # fmt: skip


def with_units(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` of matches with `unit` and `spot`, the place of the match among those of its channel in the unit.

    A match belongs to the step in which most members issued it. Rows outside of steps have no unit.
    """
    match = ["channel", "window", "place"]
    matches = rows.group_by(match).agg(pl.col("step").drop_nulls().mode().min(), at=pl.col("ended_ns").max())
    if matches["step"].is_not_null().any():
        matches = matches.with_columns(unit=pl.col("step"))
    else:
        size = pl.max_horizontal(1, (pl.len() / PARTS).ceil().cast(pl.Int64))
        order = (pl.col("at").rank("ordinal") - 1).cast(pl.Int64)
        matches = matches.with_columns(unit=(order // size).over("window"))
    matches = matches.sort("window", "channel", "place").with_columns(
        spot=pl.int_range(pl.len(), dtype=pl.Int64).over("window", "channel", "unit")
    )
    return rows.drop("step").join(matches.drop("at"), on=match)
