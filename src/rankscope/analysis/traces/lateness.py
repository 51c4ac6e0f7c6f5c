"""Who comes late to collectives, and how much of that is its own doing.

A rank is late by itself only as far as it worked longer than the others since the last collective of the same group:
the time between the two, less what it spent in other communication. Who waited in another group for somebody else
comes late as well, and has not worked longer. Working times are measured on one clock each.
"""

from __future__ import annotations

import polars as pl

from rankscope.analysis.traces.intervals import Busy

MATCH = ["channel", "window", "place"]


def with_work(rows: pl.DataFrame, traced: pl.DataFrame, begins: pl.DataFrame) -> pl.DataFrame:
    """`rows` of matched operations, aligned, with `since_ns` and `work_ns`.

    `since_ns` is the end of the one before it in its channel, for the first where the first step of the window or the
    window itself begins; `work_ns` what lies between, less the time in which the rank was in any communication.
    `traced` are all operations of all files and `begins` (file, begin_ns) their windows, on their own clocks.
    """
    first = pl.min_horizontal(pl.col("begin_ns") + pl.col("offset_ns"), "arrived_ns")
    rows = rows.sort("file", "channel", "place").join(begins, on="file", how="left").with_columns(
        since_ns=pl.coalesce(pl.col("ended_ns").shift().over("file", "channel", "window"), first)
    ).drop("begin_ns")  # fmt: skip
    parts = []
    for (file,), part in rows.group_by("file", maintain_order=True):
        own = traced.filter((pl.col("file") == file) & pl.col("completed_ns").is_not_null())
        own = own.select(start=pl.coalesce("started_ns", "created_ns"), end="completed_ns").drop_nulls()
        offset = part["offset_ns"].to_numpy()
        busy = Busy.of(own["start"].to_numpy(), own["end"].to_numpy())
        arrived = part["arrived_ns"].to_numpy()
        since = part.select(pl.min_horizontal("since_ns", "arrived_ns")).to_series().to_numpy()
        work = arrived - since - busy.within(since - offset, arrived - offset)
        parts.append(part.with_columns(work_ns=pl.Series(work, dtype=pl.Int64)))
    return pl.concat(parts) if parts else rows.with_columns(work_ns=pl.lit(None, dtype=pl.Int64))


def with_lateness(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with, for each member of each match, nanoseconds:

    `late_ns` after the median of the others, `own_ns`: the part of it that its own work explains, `margin_ns` after
    the last of the others (0 unless it is last), `cost_ns` the part of that which is its own doing, `waited_ns`
    until the last came.
    """
    arrived, work = pl.col("arrived_ns"), pl.col("work_ns")
    last = arrived.max().over(MATCH)
    return (
        rows.with_columns(
            usual_ns=_others_median("arrived_ns"), usual_work_ns=_others_median("work_ns"),
            next_ns=pl.when(arrived == last).then(_second("arrived_ns")).otherwise(arrived),
        )
        .with_columns(late_ns=arrived - pl.col("usual_ns"), margin_ns=arrived - pl.col("next_ns"),
                      more_ns=work - pl.col("usual_work_ns"),
                      waited_ns=last - arrived)
        .with_columns(own_ns=pl.min_horizontal("late_ns", "more_ns").clip(0),
                      cost_ns=pl.min_horizontal("margin_ns", "more_ns").clip(0))
        .drop("next_ns")
    )  # fmt: skip


def _second(column: str) -> pl.Expr:
    """The second largest of the match."""
    return pl.col(column).top_k(2).min().over(MATCH)


def _others_median(column: str) -> pl.Expr:
    """For each member the lower median of the others: of two the other, of four the second smallest of three."""
    rank = (pl.col(column).rank("ordinal") - 1).cast(pl.Int64)
    middle = (pl.len().cast(pl.Int64) - 2) // 2
    # without the row itself, everything behind it moves one place forward
    place = pl.when(rank <= middle).then(middle + 1).otherwise(middle)
    return pl.col(column).sort().gather(place).over(MATCH)
