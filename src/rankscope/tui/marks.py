"""Members of collectives that have no row for them, each with the reason: what the lanes show as `!` and `?`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.collective_calls import IS_PENDING
from rankscope.analysis.logical_time import whole_ranks
from rankscope.analysis.model import Finding
from rankscope.schema import Dataset
from rankscope.schema.tables import SECOND_NS
from rankscope.tui.collective_columns import Collectives
from rankscope.tui.selection import Absence

REASONS: tuple[Absence, ...] = get_args(Absence)
"""Reasons in the order of their numbers."""

FAR = 1 << 40
"""Sequence numbers from here on are not told apart when members are counted; groups have less than 22 bits."""
_NUMBER = {reason: pl.lit(i, pl.UInt8) for i, reason in enumerate(REASONS)}
_Ints = NDArray[np.int64]


def absences(dataset: Dataset, found: Collectives, *, never: bool) -> pl.DataFrame:
    """Members without a row: rank, group, seq, col, created_ns (of their peers), reason (a number
    of REASONS), is_p2p; those that never issued it only if `never`.

    What was overwritten is left out, and where there is no dump all that is not waited for: there the whole
    stretch of the lane is unknown.
    """
    members = _members(dataset)
    table = found.table.with_columns(place=pl.Series(found.places))
    short = table.filter(table["present"] < pl.Series(_shown(table, members, never)))
    lacks = np.zeros(int(found.code.max(initial=-1)) + 1, np.bool_)
    lacks[short["place"].to_numpy()] = True
    present = dataset.ops.select("rank", "group", "seq", "created_ns")[found.rows[lacks[found.code]]]
    lacking = short.join(members, on="group").join(present, on=["rank", "group", "seq"], how="anti")
    when = present.group_by("group", "seq").agg(pl.col("created_ns").median().cast(pl.Int64, strict=False))
    judged = lacking.with_columns(_reason().alias("reason")).join(when, on=["group", "seq"], how="left")
    return (
        (_proven(dataset, judged) if never else judged).filter(~_hidden(never))
        .select("rank", "group", "seq", "col", "created_ns", "reason", pl.lit(False).alias("is_p2p"))
    )  # fmt: skip


def _proven(dataset: Dataset, judged: pl.DataFrame) -> pl.DataFrame:
    """What peers issued only after the dump of a rank was written is not known of it, where the time is believed."""
    never = pl.col("reason") == _NUMBER["never issued"]
    later = judged.join(dataset.written, on="rank", how="left", maintain_order="left").with_columns(
        later=(never & (pl.col("created_ns") > pl.col("written_ns"))).fill_null(False)
    )
    ranks = later.filter("later")["rank"].unique()
    if ranks.is_empty():
        return judged
    events = (
        dataset.ops.filter(pl.col("rank").is_in(ranks.implode()))
        .group_by("rank")
        .agg(newest=pl.max_horizontal(pl.col("created_ns", "started_ns", "completed_ns").max()))
    )
    known = later.join(events, on="rank", how="left", maintain_order="left")
    believed = pl.col("later") & (pl.col("newest") < pl.col("written_ns") + SECOND_NS)
    return known.with_columns(reason=pl.when(believed).then(_NUMBER["unknown"]).otherwise("reason"))


def p2p_absences(dataset: Dataset, findings: Sequence[Finding], columns: NDArray[np.int64]) -> pl.DataFrame:
    """The sides that findings say were never posted, in the columns where their peers wait; columns as `absences`."""
    ops = dataset.ops.select("rank", "peer", "group", "seq", "is_p2p", "state", "created_ns")
    waiting = ops.with_columns(col=pl.Series(columns)).filter(pl.col("is_p2p") & IS_PENDING)
    parts = [
        waiting.filter(pl.col("peer").is_in(f.culprit_ranks) & (pl.col("group") == f.group.key))
        for f in findings
        if f.kind == "p2p-unmatched" and f.group is not None
    ]
    rows = pl.concat([waiting.clear(), *parts])
    return rows.select(
        pl.col("peer").alias("rank"), "group", "seq", "col", "created_ns",
        pl.lit(REASONS.index("never issued"), pl.UInt8).alias("reason"), "is_p2p",
    ).unique(["rank", "group", "col"], keep="first", maintain_order=True)  # fmt: skip


def _members(dataset: Dataset) -> pl.DataFrame:
    """Who is in each group, with what is known of it there: its frontier, and what left a dump (`seen`, `whole`)."""
    known = dataset.frontiers.select("rank", "group", "last_enqueued", "first_kept", "wrapped", "filtered")
    members = dataset.groups.select("group", pl.col("ranks").alias("rank")).explode("rank").drop_nulls()
    return members.join(known, on=["rank", "group"], how="left").with_columns(
        seen=pl.col("rank").is_in(list(dataset.seen_ranks)),
        whole=pl.col("rank").is_in(set(whole_ranks(dataset)) - dataset.cut_ranks),
    )


def _shown(table: pl.DataFrame, members: pl.DataFrame, never: bool) -> _Ints:
    """How many members each collective must have a row of, or else one is shown as absent; rather too many."""
    group, seq, pending = (table[name].to_numpy() for name in ("group", "seq", "pending"))
    seen, unseen = members.filter("seen"), members.filter(~pl.col("seen"))
    shown = _all(seen, group) + np.where(pending, _all(unseen, group), 0)
    last = pl.col("last_enqueued") + 1
    silent = pl.col("last_enqueued").is_null() & pl.col("whole")
    lost = seen.filter(~silent & pl.col("wrapped") & (pl.col("filtered") != "only-active"))
    shown -= _above(lost.select("group", pl.min_horizontal("first_kept", last).fill_null(FAR)), group, seq)
    if not never:
        nothing = silent & pl.col("first_kept").is_null()
        ended = seen.select("group", ended=pl.when(nothing).then(-1).otherwise(last)).filter(pl.col("ended") < FAR - 2)
        shown -= np.where(pending, _all(ended, group) - _above(ended, group, seq), 0)
    return shown


def _all(bounds: pl.DataFrame, group: NDArray[np.uint32]) -> _Ints:
    """How many rows there are of each group."""
    return np.bincount(bounds["group"].to_numpy(), minlength=int(group.max(initial=0)) + 1)[group]


def _above(bounds: pl.DataFrame, group: NDArray[np.uint32], seq: _Ints) -> _Ints:
    """How many of the bounds of its group, the second column, lie above each sequence number."""
    rising = np.sort(_keys(bounds["group"].to_numpy(), bounds.to_series(1).to_numpy()))
    ends = np.searchsorted(rising, _keys(group + 1, np.full(len(group), -1)), "left")
    above: _Ints = ends - np.searchsorted(rising, _keys(group, seq), "right")
    return above


def _keys(group: NDArray[np.uint32], number: _Ints) -> _Ints:
    keys: _Ints = group.astype(np.int64) * FAR + np.clip(number, -1, FAR - 2) + 1
    return keys


def _hidden(never: bool) -> pl.Expr:
    reason = pl.col("reason")
    hidden = (reason == _NUMBER["overwritten"]) | ((reason == _NUMBER["no dump"]) & ~pl.col("pending"))
    return hidden if never else hidden | (reason == _NUMBER["never issued"])


def _reason() -> pl.Expr:
    before = pl.col("first_kept").is_null() | (pl.col("seq") < pl.col("first_kept"))
    issued_nothing = pl.col("last_enqueued").is_null() & pl.col("whole")
    # Peers that finished a collective had everybody's part in it: then the dump is older, or rows are missing.
    never = ((pl.col("seq") > pl.col("last_enqueued")) | issued_nothing) & pl.col("pending")
    return (
        pl.when(~pl.col("seen")).then(_NUMBER["no dump"])
        .when(never).then(_NUMBER["never issued"])
        .when(pl.col("filtered") == "only-active").then(_NUMBER["filtered"])
        .when(pl.col("wrapped") & before).then(_NUMBER["overwritten"])
        .otherwise(_NUMBER["unknown"])
    )  # fmt: skip
