"""Collectives a rank has no row for, each with the reason: what the lanes show as `!` and `?`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.agreement import instances as numbered
from rankscope.analysis.model import Finding
from rankscope.schema import Dataset
from rankscope.tui.selection import Absence

REASONS: tuple[Absence, ...] = get_args(Absence)
"""Reasons in the order of their numbers."""

DENSE = 32
"""Where there are no more pairs of an instance and a rank than this for each row, they are counted in a table."""
_PENDING = pl.col("state").is_in(["scheduled", "started"])


class Collectives(NamedTuple):
    """The collectives of a job, and the rows of ops that are theirs."""

    table: pl.DataFrame
    """One row for each, sorted: group, seq, col (where it stands), members that have a row, pending."""
    places: NDArray[np.int64]
    """The number of each row of the table."""
    rows: NDArray[np.uint32]
    """Rows of ops."""
    code: NDArray[np.int64]
    """The number of the collective each of these is of."""


def collectives(dataset: Dataset, columns: NDArray[np.int64]) -> Collectives:
    """All collectives, with the columns of the rows of ops."""
    rows = dataset.ops.select("rank", "group", "seq", "is_p2p", _PENDING.alias("pending")).with_row_index("row")
    rows = rows.filter(~pl.col("is_p2p") & pl.col("seq").is_not_null() & pl.col("group").is_not_null())
    known = numbered(rows)
    code, count = known.code, len(known.group)
    at, col = columns[rows["row"].to_numpy()], np.full(count, -1, np.int64)
    col[code] = at
    # members stand apart only where they wait for each other in a circle
    apart = np.flatnonzero(at > col[code])
    np.maximum.at(col, code[apart], at[apart])
    pending = np.zeros(count, np.bool_)
    pending[code[rows["pending"].fill_null(value=False).to_numpy()]] = True
    present = _members(code, rows["rank"].fill_null(-1).to_numpy(), count)
    places = np.flatnonzero(col >= 0)
    table = pl.DataFrame(
        {"group": known.group, "seq": known.seq, "col": col, "present": present, "pending": pending},
        schema_overrides={"group": pl.UInt32, "present": pl.UInt32},
    )
    return Collectives(table[places], places, rows["row"].to_numpy(), code)


def _members(code: NDArray[np.int64], rank: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """How many ranks each code stands beside."""
    ranks = int(rank.max(initial=0)) + 2
    pairs = code * ranks + rank + 1
    if count * ranks <= DENSE * len(code):
        there = np.zeros(count * ranks, np.bool_)
        there[pairs] = True
        counts: NDArray[np.int64] = np.count_nonzero(there.reshape(count, ranks), axis=1)
        return counts
    pairs.sort(kind="stable")
    return np.bincount(pairs[np.flatnonzero(np.diff(pairs, prepend=-1))] // ranks, minlength=count)


def absences(dataset: Dataset, found: Collectives) -> pl.DataFrame:
    """Members without a row: rank, group, seq, col, created_ns (of their peers), reason (a number
    of REASONS), is_p2p.

    What was overwritten is left out, and where there is no dump all that is not waited for: there the whole
    stretch of the lane is unknown.
    """
    members = dataset.groups.select("group", pl.col("ranks").alias("rank")).explode("rank").drop_nulls()
    seen = members.filter(pl.col("rank").is_in(list(dataset.seen_ranks)))
    wanted = pl.when(pl.col("pending")).then(pl.col("size")).otherwise(pl.col("seen")).fill_null(0)
    short = (
        found.table.with_columns(place=pl.Series(found.places))
        .join(members.group_by("group").agg(pl.len().alias("size")), on="group")
        .join(seen.group_by("group").agg(pl.len().alias("seen")), on="group", how="left")
        .filter(pl.col("present") < wanted)
    )
    lacks = np.zeros(int(found.code.max(initial=-1)) + 1, np.bool_)
    lacks[short["place"].to_numpy()] = True
    present = dataset.ops.select("rank", "group", "seq", "created_ns")[found.rows[lacks[found.code]]]
    when = present.group_by("group", "seq").agg(pl.col("created_ns").median().cast(pl.Int64, strict=False))
    expected = short.join(when, on=["group", "seq"], how="left").join(members, on="group")
    lacking = expected.join(present, on=["rank", "group", "seq"], how="anti")
    known = dataset.frontiers.select(
        "rank", "group", "last_enqueued", "last_completed", "first_kept", "wrapped", "filtered"
    )
    judged = lacking.join(known, on=["rank", "group"], how="left").with_columns(_reason(dataset).alias("reason"))
    hidden = (pl.col("reason") == REASONS.index("overwritten")) | (
        (pl.col("reason") == REASONS.index("no dump")) & ~pl.col("pending")
    )
    return judged.filter(~hidden).select(
        "rank", "group", "seq", "col", "created_ns", "reason", pl.lit(False).alias("is_p2p")
    )


def p2p_absences(dataset: Dataset, findings: Sequence[Finding], columns: NDArray[np.int64]) -> pl.DataFrame:
    """The sides that findings say were never posted, in the columns where their peers wait; columns as `absences`."""
    ops = dataset.ops.select("rank", "peer", "group", "seq", "is_p2p", "state", "created_ns")
    waiting = ops.with_columns(col=pl.Series(columns)).filter(pl.col("is_p2p") & _PENDING)
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


def _reason(dataset: Dataset) -> pl.Expr:
    whole = _whole_ranks(dataset)
    before = pl.col("first_kept").is_null() | (pl.col("seq") < pl.col("first_kept"))
    silent = pl.col("last_enqueued").is_null()
    issued_nothing = silent & pl.col("rank").is_in(whole)
    # Peers that finished a collective had everybody's part in it: then the dump is older, or rows are missing.
    never = ((pl.col("seq") > pl.col("last_enqueued")) | issued_nothing) & pl.col("pending")
    number = {reason: pl.lit(i, pl.UInt8) for i, reason in enumerate(REASONS)}
    return (
        pl.when(~pl.col("rank").is_in(list(dataset.seen_ranks)))
        .then(number["no dump"])
        .when(never)
        .then(number["never issued"])
        .when(pl.col("filtered") == "only-active")
        .then(number["filtered"])
        .when(pl.col("wrapped") & before)
        .then(number["overwritten"])
        .otherwise(number["unknown"])
    )


def _whole_ranks(dataset: Dataset) -> list[int]:
    whole = dataset.dumps.filter(~pl.col("wrapped") & (pl.col("filtered") == "none"))
    return whole["rank"].drop_nulls().unique().to_list()
