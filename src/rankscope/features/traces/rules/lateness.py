"""Lateness of ranks at collectives, and the part of it that is their own doing.

A rank is late by itself only as far as it worked longer than the others since the last collective of the same group:
the time between the two, less its other communication. A rank that waited in another group comes late as well, but has
not worked longer. Each working time is measured on one clock.

Who came early to the last collective may have worked on while it waited in it, and who came late does the same work
behind it. This hidden work counts as well: else one delay would count again at each collective that follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.analysis.late_ranks import FEWEST_UNITS
from rankscope.features.traces.rules.device_spans import (
    COMMUNICATION_CATEGORY,
    BusyIntervals,
    SpanIndex,
    is_among,
)
from rankscope.features.traces.rules.host_pieces import host_pieces
from rankscope.features.traces.rules.model import LAST
from rankscope.schema import Dataset
from rankscope.text.wording import duration, rank_ranges

MATCH_COLUMNS = ["channel", "window", "place"]
ORDER_COLUMNS = ["file", "channel", "window"]
HOST_PACED_NS = 200_000
"""A collective that starts on the device this soon after its issue did not wait for the device."""


def with_work(rows: pl.DataFrame, spans: SpanIndex, begins: pl.DataFrame) -> pl.DataFrame:
    """`rows` of matched, aligned operations with `since_ns`, `work_ns` and `hidden_ns`.

    `since_ns` is the end of the previous one in its channel; for the first one, the begin of the first step or of the
    window. `work_ns` is the time between, less the time in which the rank was in any communication; `hidden_ns` its
    work during the previous one, null if that is unknown. `begins` (file, begin_ns) are the windows on their own
    clocks.
    """
    first, sequence = pl.min_horizontal(pl.col("begin_ns") + pl.col("offset_ns"), "arrived_ns"), ORDER_COLUMNS
    rows = rows.sort("file", "channel", "place").join(begins, on="file", how="left").with_columns(
        since_ns=pl.coalesce(pl.col("ended_ns").shift().over(sequence), first),
        before_ns=pl.coalesce(pl.col("arrived_ns").shift().over(sequence), first),
    ).drop("begin_ns")  # fmt: skip
    traced, other = spans.dataset.traced, communication_spans(spans.dataset)
    parts = []
    for (file,), part in rows.group_by("file", maintain_order=True):
        own = traced.filter((pl.col("file") == file) & pl.col("completed_ns").is_not_null())
        own = own.select(start=pl.coalesce("started_ns", "created_ns"), end="completed_ns").drop_nulls()
        own = pl.concat([own, other.filter(pl.col("file") == file).select("start", "end")])
        offset = part["offset_ns"].to_numpy()
        busy = BusyIntervals.of(own["start"].to_numpy(), own["end"].to_numpy())
        arrived = part["arrived_ns"].to_numpy()
        since = part.select(pl.min_horizontal("since_ns", "arrived_ns")).to_series().to_numpy()
        work = arrived - since - busy.within(since - offset, arrived - offset)
        hidden = _hidden(spans, part)
        parts.append(part.with_columns(work_ns=pl.Series(work, dtype=pl.Int64), hidden_ns=hidden))
    null = pl.lit(None, dtype=pl.Int64)
    return pl.concat(parts).drop("before_ns") if parts else rows.with_columns(work_ns=null, hidden_ns=null)


def _hidden(spans: SpanIndex, part: pl.DataFrame) -> pl.Series:
    """The work of a file during each previous collective: of its device, or of the host if that set the pace."""
    file, offset = part["file"][0], part["offset_ns"].to_numpy()
    ran = spans.device(file) if file in spans.whole else None
    if ran is None:
        return pl.Series([None] * part.height, dtype=pl.Int64)
    since, until = part["before_ns"].to_numpy() - offset, part["since_ns"].to_numpy() - offset
    until = np.maximum(since, until)
    computed = ran.filter(pl.col("what") != "communication")
    device = BusyIntervals.of(computed["start_ns"].to_numpy(), computed["end_ns"].to_numpy())
    if spans.on_host:
        return pl.Series(device.within(since, until), dtype=pl.Int64)
    # a kernel that starts as soon as it is issued waited for the host only
    issued = part.select(pl.col("created_ns").fill_null(0)).to_series().to_numpy()
    paced = part["arrived_ns"].to_numpy() - offset - issued < HOST_PACED_NS
    both = device.joined(host_pieces(spans, file).work).within(since, until)
    return pl.Series(np.where(paced, both, device.within(since, until)), dtype=pl.Int64)


def communication_spans(dataset: Dataset) -> pl.DataFrame:
    """file, start, end of communication on devices that belongs to no operation, on each file's own clock."""
    tracks = dataset.tracks.filter(pl.col("device").is_not_null()).select("track", "file")
    found = dataset.spans.filter(is_among("category", [COMMUNICATION_CATEGORY])).join(tracks, on="track")
    return found.select("file", start="start_ns", end=pl.col("start_ns") + pl.col("duration_ns"))


def with_lateness(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` with nanoseconds for each member of each match:

    `late_ns` after the median of the others; `own_ns`, the part of it that its own work explains; `margin_ns` after the
    last of the others (0 unless it is last); `cost_ns`, the part of that which is its own doing; `waited_ns` until the
    last came. In a group of which not all members were traced (`partial`), nobody is late by itself if even the last
    waited for longer: somebody else may have come later.
    """
    arrived, work = pl.col("arrived_ns"), pl.col("work_ns")
    last = arrived.max().over(MATCH_COLUMNS)
    known = pl.col("hidden_ns").is_not_null().all().over(MATCH_COLUMNS)
    # the second largest of the match
    second = pl.col("arrived_ns").top_k(2).min().over(MATCH_COLUMNS)
    return (
        rows.with_columns(
            all_work_ns=work + pl.when(known).then("hidden_ns").otherwise(0),
            tail_ns=pl.col("ended_ns").min().over(MATCH_COLUMNS) - last,
        ).with_columns(
            usual_ns=_others_median("arrived_ns"), usual_work_ns=_others_median("work_ns"),
            usual_all_ns=_others_median("all_work_ns"),
            next_ns=pl.when(arrived == last).then(second).otherwise(arrived),
        )
        .with_columns(late_ns=arrived - pl.col("usual_ns"), margin_ns=arrived - pl.col("next_ns"),
                      more_ns=pl.min_horizontal(work - pl.col("usual_work_ns"),
                                                pl.col("all_work_ns") - pl.col("usual_all_ns")),
                      waited_ns=last - arrived)
        .with_columns(more_ns=pl.when(pl.col("partial") & (pl.col("tail_ns") > pl.col("late_ns"))).then(0)
                      .otherwise("more_ns"))
        .with_columns(own_ns=pl.min_horizontal("late_ns", "more_ns").clip(0),
                      cost_ns=pl.min_horizontal("margin_ns", "more_ns").clip(0))
        .drop("next_ns", "all_work_ns", "usual_all_ns")
    )  # fmt: skip


def with_lost(rows: pl.DataFrame, spans: SpanIndex) -> pl.DataFrame:
    """`rows` with nanoseconds for the last member of each match, 0 for all others:

    `lost_ns`, for which most of the others waited for it and did not compute; `alone_ns`, the part of it that its other
    communication does not explain, in which it may have waited itself. As in `with_lateness`, nothing is lost for a
    rank if somebody who was not traced may have come later.
    """
    parts = []
    for (file,), part in rows.group_by("file", maintain_order=True):
        ran = spans.device(int(file)) if file in spans.whole else None
        idle = part["waited_ns"].to_numpy()
        if ran is not None:
            computed = ran.filter(pl.col("what") != "communication")
            device = BusyIntervals.of(computed["start_ns"].to_numpy(), computed["end_ns"].to_numpy())
            arrived = part["arrived_ns"].to_numpy() - part["offset_ns"].to_numpy()
            idle = idle - device.within(arrived, arrived + idle)
        parts.append(part.with_columns(idle_ns=pl.Series(idle, dtype=pl.Int64)))
    if not parts:
        null = pl.lit(None, dtype=pl.Int64)
        return rows.with_columns(lost_ns=null, alone_ns=null)
    others = pl.col("partial") & (pl.col("tail_ns") > pl.col("late_ns"))
    communicated = pl.col("arrived_ns") - pl.col("since_ns") - pl.col("work_ns")
    return (
        pl.concat(parts).with_columns(communicated_ns=communicated)
        .with_columns(
            lost_ns=pl.when((pl.col("margin_ns") > 0) & ~others).then(_others_median("idle_ns")).otherwise(0),
            elsewhere_ns=(pl.col("communicated_ns") - _others_median("communicated_ns")).clip(0),
        )
        .with_columns(alone_ns=pl.min_horizontal("lost_ns", pl.col("late_ns") - pl.col("elsewhere_ns")).clip(0))
        .drop("idle_ns", "communicated_ns", "elsewhere_ns")
    )  # fmt: skip


def _others_median(column: str) -> pl.Expr:
    """For each member the lower median of the others: of two the other, of four the second smallest of three."""
    rank = (pl.col(column).rank("ordinal") - 1).cast(pl.Int64)
    middle = (pl.len().cast(pl.Int64) - 2) // 2
    # without the row itself, every row after it moves one place forward
    place = pl.when(rank <= middle).then(middle + 1).otherwise(middle)
    return pl.col(column).sort().gather(place).over(MATCH_COLUMNS)


# The last rank at each matched collective, its margin, and its certainty.

MOST_LISTED = 64
"""Most collectives of a short window that are listed one by one."""


@dataclass(frozen=True)
class LastRankRun:
    """Successive collectives of a group with the same last rank and equal certainty."""

    group: int
    rank: int
    seqs: tuple[int, ...]
    sure: bool
    least_ns: int
    """The smallest and the largest margin."""
    most_ns: int
    second: int
    """The second last rank at the first of them."""

    @property
    def margin(self) -> str:
        """The margin in words: "9 us", "124 us to 509 us"."""
        least, most = duration(self.least_ns), duration(self.most_ns)
        return least if least == most else f"{least} to {most}"


def last_table(joined: pl.DataFrame, numbers: pl.DataFrame, error_ns: int, *, by_step: bool) -> pl.DataFrame:
    """LAST of matched operations `joined`; `numbers` gives each its match, and clocks may be off by `error_ns`."""
    came = pl.col("rank").sort_by("arrived_ns", "rank")
    table = joined.group_by(MATCH_COLUMNS).agg(
        pl.col("group", "op", "unit").first(), seq=pl.coalesce("seq", "place").first(), last=came.last(),
        second=came.get(-2, null_on_oob=True), margin_ns=pl.col("margin_ns").max(),
        first_ns=pl.col("arrived_ns").min(), last_ns=pl.col("arrived_ns").max(),
    ).join(numbers, on=MATCH_COLUMNS)  # fmt: skip
    step = pl.col("unit") if by_step else pl.lit(None)
    table = table.with_columns(sure=pl.col("margin_ns") > error_ns, step=step)
    return table.select([pl.col(name).cast(kind) for name, kind in LAST.items()]).sort("match")


def is_short(last: pl.DataFrame) -> bool:
    """Whether the window is too short to call a rank late, and short enough to list its collectives."""
    units = last["step"].n_unique() if last["step"].null_count() < last.height else last.height
    return 0 < last.height <= MOST_LISTED and units < FEWEST_UNITS


def last_rank_runs(last: pl.DataFrame) -> Iterator[LastRankRun]:
    """The collectives of each group in order, successive equal ones merged."""
    ordered = last.sort("group", "match")
    new = pl.any_horizontal(pl.col(name) != pl.col(name).shift() for name in ("group", "last", "sure"))
    table = ordered.with_columns(turn=new.fill_null(True).cum_sum())
    for _, part in table.group_by("turn", maintain_order=True):
        first = part.row(0, named=True)
        margins = part["margin_ns"].to_list()
        seqs = tuple(part["seq"].to_list())
        yield LastRankRun(
            first["group"], first["last"], seqs, first["sure"], min(margins), max(margins), first["second"]
        )


def most_frequent_last(last: pl.DataFrame) -> str:
    """The rank that came last most often in a short window, with the collectives and those that are not sure."""
    if last.is_empty():
        return ""
    rank = last["last"].value_counts().sort("count", "last", descending=[True, False])["last"][0]
    own = last.filter(pl.col("last") == rank)
    text = f"rank {rank} came last in {own.height:,} of {last.height:,}"
    unsure = own.filter(~pl.col("sure"))
    if last["group"].n_unique() > 1 or last.height > MOST_LISTED:
        return f"{text} (surely in {own.height - unsure.height}), "
    which = f"#{rank_ranges(own['seq'].to_list())}"
    if unsure.is_empty():
        return f"{text} ({which}), "
    margin = duration(int(unsure["margin_ns"].max()))  # type: ignore[arg-type]
    doubt = f"#{rank_ranges(unsure['seq'].to_list())} by only {margin}"
    return f"{text} ({doubt if unsure.height == own.height else f'{which}; {doubt}'}), "


# Units in which lateness is counted: steps of the program, or equal parts of a window without steps.

MOST_PARTS = 8
"""Most units of a window without steps."""


def with_units(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` of matches with `unit` and `spot`, the index of the match among those of its channel in the unit.

    A match belongs to the step in which most members issued it. Rows outside of steps have no unit.
    """
    match = ["channel", "window", "place"]
    matches = rows.group_by(match).agg(pl.col("step").drop_nulls().mode().min(), at=pl.col("ended_ns").max())
    if matches["step"].is_not_null().any():
        matches = matches.with_columns(unit=pl.col("step"))
    else:
        size = pl.max_horizontal(1, (pl.len() / MOST_PARTS).ceil().cast(pl.Int64))
        order = (pl.col("at").rank("ordinal") - 1).cast(pl.Int64)
        matches = matches.with_columns(unit=(order // size).over("window"))
    matches = matches.sort("window", "channel", "place").with_columns(
        spot=pl.int_range(pl.len(), dtype=pl.Int64).over("window", "channel", "unit")
    )
    return rows.drop("step").join(matches.drop("at"), on=match)
