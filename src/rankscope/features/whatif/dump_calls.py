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
from rankscope.features.whatif.matched_schedule import CALLS
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
        token=pl.struct("alike", "peer", "route").rank("dense").cast(pl.Int64),
        gap_ns=(pl.col("arrived_ns") - pl.col("ended_ns").shift().over("rank")).fill_null(0),
    )
    periods = {}
    for (rank,), own in calls.group_by("rank", maintain_order=True):
        periods[rank] = _period(own["token"].to_numpy())
        if not periods[rank][0]:
            raise TimesError("calls do not repeat, so no steps are known")
    table = pl.DataFrame(
        [(rank, period, first) for rank, (period, first) in periods.items()],
        {"rank": pl.Int64, "period": pl.Int64, "first": pl.Int64}, orient="row",
    )  # fmt: skip
    place = pl.int_range(pl.len(), dtype=pl.Int64).over("rank") - pl.col("first")
    calls = calls.join(table, on="rank", maintain_order="left").with_columns(place=place)
    calls = calls.with_columns(phase=pl.col("place") % pl.col("period"))
    starts = _starts(calls.filter(pl.col("place") >= 0))
    calls = calls.join(starts, on="rank", maintain_order="left")
    start = pl.col("start")
    steps = (pl.col("place").max().over("rank") + 1 - start) // pl.col("period")
    # of ranks that end alike the last step is the same
    step = (pl.col("place") - start).floordiv(pl.col("period")) - steps
    table = calls.with_columns(step=step).filter((pl.col("place") >= start) & (pl.col("step") < 0))
    if table["step"].n_unique() < FEWEST_STEPS:
        raise TimesError(f"fewer than {FEWEST_STEPS} steps are whole")
    if table.select((pl.col("step").n_unique().over("meeting") > 1).any()).item():
        raise TimesError("the steps of ranks do not agree")
    known = table.group_by("rank").agg(pl.col("step").min())["step"].max()
    table = table.filter(pl.col("step") >= known).with_columns(pl.col("step") - known)
    # a rank begins the first step when it ended what came before
    begins = table.group_by("rank").agg(begin_ns=(pl.col("arrived_ns") - pl.col("gap_ns").clip(0)).first())
    return table.select(pl.exclude("begin_ns")).join(begins, on="rank", maintain_order="left").select(list(CALLS))


def _starts(calls: pl.DataFrame) -> pl.DataFrame:
    """rank, start: the place in the period of each rank at which a step begins, the same for all.

    It is behind the call that all ranks make once in a period and after which most time passes; without one, where most
    time passes on the rank.
    """
    calls = calls.with_columns(after_ns=pl.col("gap_ns").shift(-1).over("rank"))
    turns = calls.group_by("rank", "alike").agg(
        pl.col("phase").n_unique().alias("phases"), pl.col("phase").first(), pl.col("period").first(),
        pl.col("after_ns").median(),
    )  # fmt: skip
    ranks = calls["rank"].n_unique()
    anchors = turns.group_by("alike").agg(pl.len(), pl.col("phases").max(), pl.col("after_ns").mean())
    anchors = anchors.filter((pl.col("len") == ranks) & (pl.col("phases") == 1)).sort(
        "after_ns", "alike", descending=True
    )
    begin = ((pl.col("phase") + 1) % pl.col("period")).alias("start")
    if anchors.height:
        return turns.filter(pl.col("alike") == anchors["alike"][0]).select("rank", begin)
    gaps = calls.group_by("rank", "phase", "period").agg(pl.col("after_ns").median())
    return gaps.sort("after_ns", "phase", descending=[True, False]).unique(
        "rank", keep="first", maintain_order=True
    ).select("rank", begin)  # fmt: skip


def _period(tokens: Ints) -> tuple[int, int]:
    """The shortest period of the end of `tokens` that repeats often enough, and where it begins; (0, 0) without."""
    count = len(tokens)
    for period in range(1, count // FEWEST_STEPS + 1):
        if tokens[-1] != tokens[-1 - period]:
            continue
        differs = np.flatnonzero(tokens[period:] != tokens[:-period])
        first = int(differs[-1]) + 1 if len(differs) else 0
        if count - first >= FEWEST_STEPS * period:
            return period, first
    return 0, 0
