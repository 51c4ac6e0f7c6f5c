"""The operations of all traces in a form in which they can be matched.

A channel is what keeps an order of its own: the collectives of a group, what one rank sends to another in it, or its
operations of which only is told that they were coalesced, which may be either. Where operations carry a `Comms Id`,
that says which groups of different traces are one.
"""

from __future__ import annotations

import polars as pl

from rankscope.analysis.signatures import with_signatures
from rankscope.analysis.traces.comms import with_parts
from rankscope.schema import Dataset

COALESCED = "coalesced"
"""Operations of a batch whose kind is not told: not all members need to take part."""
ROWS = (
    "row", "file", "rank", "group", "channel", "token", "seq", "is_p2p", "op", "key", "elements", "blocking",
    "comms_id", "members", "created_ns", "arrived_ns", "started_ns", "ended_ns",
)  # fmt: skip


def executed_rows(dataset: Dataset) -> pl.DataFrame:
    """Operations that ran from start to end within a window, with `ROWS`, in the order in which each file issued them.

    `token` is what all members must agree on; `blocking` tells that no member can end before the last has arrived:
    not so for rooted operations, nor between two ranks, for what is small is sent before anybody receives.
    """
    traced = dataset.traced.with_row_index("row").filter(
        pl.col("completed_ns").is_not_null() & (~pl.col("is_p2p") | pl.col("peer").is_not_null())
    )
    mixed = pl.col("op").cast(pl.String) == COALESCED
    rows = with_signatures(traced).with_columns(
        mixed=mixed,
        arrived_ns=pl.coalesce("started_ns", "created_ns"),
        started_ns=pl.coalesce("started_ns", "created_ns"),
        ended_ns=pl.col("completed_ns"),
        blocking=~pl.col("rooted") & ~pl.col("is_p2p") & ~mixed,
    )
    sends = pl.col("key").cast(pl.String) == "send"
    ends = (
        pl.when(pl.col("is_p2p")).then(pl.when(sends).then(first).otherwise(second)).alias(name)
        for name, first, second in (("src", pl.col("rank"), pl.col("peer")), ("dst", pl.col("peer"), pl.col("rank")))
    )
    what = pl.when(~pl.col("is_p2p")).then(pl.col("key").cast(pl.String))
    return with_parts(rows, dataset.group_list).with_columns(*ends).with_columns(
        channel=pl.struct("group", "part", "src", "dst", "mixed").rank("dense"),
        token=pl.struct(what.alias("what"), "elements").rank("dense"),
    ).filter(pl.col("arrived_ns").is_not_null()).select(ROWS)  # fmt: skip
