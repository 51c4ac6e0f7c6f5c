"""What a rank did last, and what it is waiting in."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rankscope.tui.detail.index import OpIndex, Row
from rankscope.tui.detail.peers import UNFINISHED, state_label


@dataclass(frozen=True)
class History:
    """The end of a rank's story, as its dump tells it. Rows carry `label`, their state in a word."""

    last: Row | None
    """The operation it issued last."""
    last_in_group: Row | None
    """The one it issued last in the group that was asked for."""
    waiting_in: Row | None
    """The oldest operation it has not finished."""
    pending: int
    """How many it has not finished."""


def history(index: OpIndex, rank: int, group: int | None = None) -> History:
    """What `rank` did last, overall and in `group`, and what it waits in."""
    issued = index.rank_frame(rank).with_columns(state_label().alias("label"))
    # What is inside a coalesced group stays "scheduled" in some dumps: the closer says how it went.
    alone = issued.filter(pl.col("coalesced") != "inner")
    issued = alone if alone.height else issued
    waiting = issued.filter(pl.col("label").is_in(UNFINISHED))
    in_group = issued.filter((pl.col("group") == group) & ~pl.col("is_p2p")) if group is not None else issued.clear()
    return History(_at(issued, -1), _at(in_group, -1), _at(waiting, 0), waiting.height)


def _at(rows: pl.DataFrame, position: int) -> Row | None:
    return rows.row(position, named=True) if rows.height else None
