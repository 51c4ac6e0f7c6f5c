"""The calls of ranks with their times, from dumps: a step is the period in which calls repeat.

A rank computes from the end of one call to the start of the next. That is known if hosts noted both, or if a device
measured how long each call ran and the host waits for it before it issues the next one.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints
from rankscope.analysis.straggler import run_times
from rankscope.features.traces.rules.trace_story import pipeline_groups
from rankscope.features.whatif.model import TimesError
from rankscope.features.whatif.recorded_calls import with_forms
from rankscope.schema import Dataset

FEWEST_STEPS = 4
"""Fewest steps that show a period."""
MOST_CALLS = 1 << 21
"""Most calls of a job that is simulated."""
AHEAD_SHARE = 0.1
"""Largest share of calls that a host may issue before the one before them has ended."""


def timed_calls(dataset: Dataset) -> pl.DataFrame:
    """CALLS of dumps, with their steps. Raises TimesError."""
    if dataset.ops.height > MOST_CALLS:
        raise TimesError("too many operations")
    ops = dataset.ops.with_columns(ran_ns=run_times(dataset.ops)).filter(pl.col("state") == "completed")
    if not (ops["coalesced"] == "none").all():
        raise TimesError("operations in coalesced groups have no times of their own")
    if ops.is_empty() or ops["ran_ns"].has_nulls() or ops["created_ns"].has_nulls():
        raise TimesError("not all operations have a start and an end")
    rows = _with_meetings(_with_times(ops.filter(~pl.col("is_p2p") | pl.col("peer").is_not_null())))
    staged = pipeline_groups(rows, dataset.group_list)
    calls = with_forms(dataset, rows.with_columns(step=pl.lit(0), begin_ns=None, stream=None), staged)
    return _with_steps(calls)


def _with_times(ops: pl.DataFrame) -> pl.DataFrame:
    """`ops` with `arrived_ns` and `ended_ns`."""
    if ops["duration_ns"].has_nulls():
        return ops.with_columns(arrived_ns="started_ns", ended_ns="completed_ns", issued_ns="created_ns")
    ends = pl.col("created_ns") + pl.col("duration_ns")
    early = ops.select((pl.col("created_ns") < ends.shift().over("rank")).fill_null(False).mean()).item()
    if early > AHEAD_SHARE:
        raise TimesError("hosts issue operations before earlier ones have ended, so times between them are not known")
    return ops.with_columns(arrived_ns="created_ns", ended_ns=ends, issued_ns="created_ns")


def _with_meetings(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with `meeting`: by sequence number, sends and receives by their turn from the end; only whole ones."""
    sends = pl.col("op").cast(pl.String) == "send"
    pair = pl.when("is_p2p").then(
        pl.struct(
            pl.when(sends).then("rank").otherwise("peer").alias("from"),
            pl.when(sends).then("peer").otherwise("rank").alias("to"),
        )
    )
    turn = pl.int_range(pl.len(), dtype=pl.Int64).reverse().over("rank", "group", "peer", "op")
    number = pl.when("is_p2p").then(-1 - turn).otherwise("seq")
    rows = rows.with_columns(pair=pair.rank("dense"), number=number)
    rows = rows.with_columns(meeting=pl.struct("group", "pair", "number").rank("dense"), blocking=~pl.col("is_p2p"))
    return rows.filter(pl.col("rank").n_unique().over("meeting") == pl.col("rank").n_unique().over("group", "pair"))


def _with_steps(calls: pl.DataFrame) -> pl.DataFrame:
    """`calls` with `step`, from 0, of those in whole steps. Raises TimesError without a period."""
    calls = calls.sort("rank", "arrived_ns", "ended_ns").with_columns(
        token=pl.struct("alike", "peer", "route").rank("dense"),
        gap_ns=(pl.col("arrived_ns") - pl.col("ended_ns").shift().over("rank")).fill_null(0),
    )
    parts = []
    for _, own in calls.group_by("rank", maintain_order=True):
        tokens = own["token"].to_numpy()
        period, first = _period(tokens.astype(np.int64))
        if not period:
            raise TimesError("calls do not repeat, so no steps are known")
        place = np.arange(len(tokens)) - first
        gaps = pl.DataFrame({"phase": place % period, "gap": own["gap_ns"]}).filter(pl.Series(place >= 1))
        start = gaps.group_by("phase").agg(pl.col("gap").median()).sort("gap", "phase", descending=[True, False])["phase"][0]
        steps = (len(tokens) - first - start) // period
        step = (place - start) // period
        # of ranks that end alike the last step is the same
        numbered = np.where((place >= start) & (step < steps), step - steps, 0)
        parts.append(own.with_columns(step=pl.Series(numbered, dtype=pl.Int64)))
    table = pl.concat(parts).filter(pl.col("step") < 0)
    if table.is_empty() or (table["step"].n_unique() < FEWEST_STEPS):
        raise TimesError(f"fewer than {FEWEST_STEPS} steps")
    if table.select((pl.col("step").n_unique().over("meeting") > 1).any()).item():
        raise TimesError("the steps of ranks do not agree")
    known = table.group_by("rank").agg(pl.col("step").min())["step"].max()
    table = table.filter(pl.col("step") >= known).with_columns(pl.col("step") - known)
    # a rank begins the first step when it ended what came before
    begins = table.group_by("rank").agg(begin_ns=(pl.col("arrived_ns") - pl.col("gap_ns")).first())
    return table.drop("begin_ns", "token", "gap_ns").join(begins, on="rank", how="left", maintain_order="left")


def _period(tokens: Ints) -> tuple[int, int]:
    """The shortest period of the end of `tokens` that repeats FEWEST_STEPS times, and where it begins; (0, 0) without."""
    count = len(tokens)
    for period in range(1, count // FEWEST_STEPS + 1):
        if tokens[-1] != tokens[-1 - period]:
            continue
        differs = np.flatnonzero(tokens[period:] != tokens[:-period])
        first = int(differs[-1]) + 1 if len(differs) else 0
        if count - first >= FEWEST_STEPS * period:
            return period, first
    return 0, 0
