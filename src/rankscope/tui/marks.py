"""The collectives of a job for the lanes, and marks for members that have no row of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.arrays import filled_array, true_mask
from rankscope.analysis.collective_calls import IS_PENDING, collectives_of
from rankscope.analysis.logical_time import whole_ranks
from rankscope.analysis.model import Finding
from rankscope.schema import Dataset
from rankscope.text.wording import SECOND_NS
from rankscope.tui.selection import Absence

DENSE = 32
"""A table counts the pairs of instance and rank if there are at most this many pairs for each row."""
SMALL = 1 << 25
"""A table also counts the pairs if there are at most this many in all."""


class Collectives(NamedTuple):
    """The collectives of a job, and their rows of ops."""

    table: pl.DataFrame
    """One row for each, sorted: group, seq, col (its column), members that have a row, pending."""
    places: NDArray[np.int64]
    """The number of each row of the table."""
    rows: NDArray[np.int64]
    """Rows of ops."""
    code: NDArray[np.int64]
    """The number of the collective of each of these rows."""


def collectives(dataset: Dataset, columns: NDArray[np.int64]) -> Collectives:
    """All collectives, with the columns of the rows of ops."""
    mine = collectives_of(dataset.ops)
    known = mine.instances
    code, count = known.code, len(known.group)
    at, col = mine.of(columns), np.full(count, -1, np.int64)
    col[code] = at
    # members have different columns only if they wait for each other in a circle
    apart = np.flatnonzero(at > col[code])
    np.maximum.at(col, code[apart], at[apart])
    pending = np.zeros(count, np.bool_)
    pending[code[np.flatnonzero(mine.of(true_mask(dataset.ops.select(IS_PENDING).to_series())))]] = True
    present = _member_counts(code, mine.of(filled_array(dataset.ops["rank"], -1)), count)
    places = np.flatnonzero(col >= 0)
    table = pl.DataFrame(
        {"group": known.group, "seq": known.seq, "col": col, "present": present, "pending": pending},
        schema_overrides={"group": pl.UInt32, "present": pl.UInt32},
    )
    return Collectives(table[places], places, mine.of(np.arange(dataset.ops.height)), code)


def _member_counts(code: NDArray[np.int64], rank: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """The number of ranks for each code."""
    ranks = int(rank.max(initial=0)) + 2
    pairs = code * ranks + rank + 1
    if count * ranks <= max(SMALL, DENSE * len(code)):
        there = np.zeros(count * ranks, np.bool_)
        there[pairs] = True
        if np.count_nonzero(there) == len(pairs):
            return np.bincount(code, minlength=count)
        counts: NDArray[np.int64] = np.count_nonzero(there.reshape(count, ranks), axis=1)
        return counts
    pairs.sort(kind="stable")
    return np.bincount(pairs[np.flatnonzero(np.diff(pairs, prepend=-1))] // ranks, minlength=count)


REASONS: tuple[Absence, ...] = get_args(Absence)
"""Reasons in the order of their numbers."""

FAR = 1 << 40
"""The count of members treats all sequence numbers from here on alike; groups have less than 22 bits."""
_NUMBER = {reason: pl.lit(i, pl.UInt8) for i, reason in enumerate(REASONS)}
_Ints = NDArray[np.int64]


def absences(dataset: Dataset, found: Collectives, *, never: bool) -> pl.DataFrame:
    """Members without a row: rank, group, seq, col, created_ns (of their peers), reason (a number of REASONS), is_p2p;
    those that never issued it only if `never`.

    Overwritten rows are left out. Without a dump, only awaited rows are marked: there the whole stretch of the lane is
    unknown.
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
    reason = pl.col("reason")
    hidden = (reason == _NUMBER["overwritten"]) | ((reason == _NUMBER["no dump"]) & ~pl.col("pending"))
    hidden = hidden if never else hidden | (reason == _NUMBER["never issued"])
    return (
        (_proven(dataset, judged) if never else judged)
        .filter(~hidden)
        .select("rank", "group", "seq", "col", "created_ns", "reason", pl.lit(False).alias("is_p2p"))
    )


def _proven(dataset: Dataset, judged: pl.DataFrame) -> pl.DataFrame:
    """Members with corrected reasons: if peers issued it after the dump of the rank, absence is unknown, not proven."""
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
    """The sides that findings call never posted, in the columns where their peers wait; columns as in `absences`."""
    ops = dataset.ops.select("rank", "peer", "group", "seq", "is_p2p", "state", "created_ns")
    waiting = ops.with_columns(col=pl.Series(columns)).filter(pl.col("is_p2p") & IS_PENDING)
    parts = [
        waiting.filter(pl.col("peer").is_in(f.culprit_ranks) & (pl.col("group") == f.group.key))
        for f in findings
        if f.kind == "p2p-unmatched" and f.group is not None
    ]
    rows = pl.concat([waiting.clear(), *parts])
    return rows.select(
        pl.col("peer").alias("rank"),
        "group",
        "seq",
        "col",
        "created_ns",
        pl.lit(REASONS.index("never issued"), pl.UInt8).alias("reason"),
        "is_p2p",
    ).unique(["rank", "group", "col"], keep="first", maintain_order=True)


def _members(dataset: Dataset) -> pl.DataFrame:
    """The members of each group, with their frontier, and what left a dump (`seen`, `whole`)."""
    known = dataset.frontiers.select("rank", "group", "last_enqueued", "first_kept", "wrapped", "filtered")
    members = dataset.groups.select("group", pl.col("ranks").alias("rank")).explode("rank").drop_nulls()
    return members.join(known, on=["rank", "group"], how="left").with_columns(
        seen=pl.col("rank").is_in(list(dataset.seen_ranks)),
        whole=pl.col("rank").is_in(set(whole_ranks(dataset)) - dataset.cut_ranks),
    )


def _shown(table: pl.DataFrame, members: pl.DataFrame, never: bool) -> _Ints:
    """Number of members of each collective that need a row; a smaller number shows absences. It is rather too high."""
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
    """For each element of `group`, the number of its rows."""
    return np.bincount(bounds["group"].to_numpy(), minlength=int(group.max(initial=0)) + 1)[group]


def _above(bounds: pl.DataFrame, group: NDArray[np.uint32], seq: _Ints) -> _Ints:
    """For each sequence number, how many bounds of its group (the second column) lie above it."""
    rising = np.sort(_keys(bounds["group"].to_numpy(), bounds.to_series(1).to_numpy()))
    ends = np.searchsorted(rising, _keys(group + 1, np.full(len(group), -1)), "left")
    above: _Ints = ends - np.searchsorted(rising, _keys(group, seq), "right")
    return above


def _keys(group: NDArray[np.uint32], number: _Ints) -> _Ints:
    keys: _Ints = group.astype(np.int64) * FAR + np.clip(number, -1, FAR - 2) + 1
    return keys


def _reason() -> pl.Expr:
    before = pl.col("first_kept").is_null() | (pl.col("seq") < pl.col("first_kept"))
    issued_nothing = pl.col("last_enqueued").is_null() & pl.col("whole")
    # If peers finished a collective, every member took part: then the dump is older, or rows are missing.
    never = ((pl.col("seq") > pl.col("last_enqueued")) | issued_nothing) & pl.col("pending")
    return (
        pl.when(~pl.col("seen")).then(_NUMBER["no dump"])
        .when(never).then(_NUMBER["never issued"])
        .when(pl.col("filtered") == "only-active").then(_NUMBER["filtered"])
        .when(pl.col("wrapped") & before).then(_NUMBER["overwritten"])
        .otherwise(_NUMBER["unknown"])
    )  # fmt: skip
