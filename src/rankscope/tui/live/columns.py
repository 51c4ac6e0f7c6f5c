"""Columns for what some ranks have issued since the lanes were laid out: beside the rest, which stays where it is.

A collective that has a column keeps it, and so does every operation that was there before; what is new follows on its
rank. For jobs whose ranks issue the same collectives in the same order these are the columns of `logical_time`;
elsewhere they may differ until all is laid out again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.analysis.calls import PENDING
from rankscope.analysis.logical_time import IS_COLLECTIVE, drawn_rows, fill_forward, in_program_order

Ints = NDArray[np.int64]
ROUNDS = 8
"""So often it is tried to bring what several ranks have issued into one column."""
_SAME = ["rank", "record_id", "created_ns"]
"""What two rows of one operation share: numbers begin anew in another process, and in another recorder of one."""
_PLACE = ["group", "seq"]
_STANDS = (IS_COLLECTIVE & (pl.col("coalesced") != "inner")).fill_null(value=False)
"""Collectives that stand for themselves: their members share a column."""


class Laid(NamedTuple):
    """Where rows stand, and the collectives that nobody had issued before."""

    columns: Ints
    instances: pl.DataFrame
    """With the columns of `Collectives.table`."""


def lay_out(rows: pl.DataFrame, own: Ints, instances: pl.DataFrame) -> Laid | None:
    """The columns of the rows of some ranks, in the order of ops.

    `own` is the column that each of them has already, -1 for none, and `instances` the collectives that have one. None
    where the rows do not fit between what has its column.
    """
    rows = rows.with_row_index("row")
    drawn = in_program_order(rows.filter(drawn_rows(rows)))
    known = _known(drawn, own[drawn["row"].to_numpy()], instances)
    if known is None:
        return None
    lane = drawn["rank"].to_numpy()
    together = _new_collectives(drawn, known)
    placed = _placed(lane, known, together)
    if placed is None or (np.diff(placed)[lane[1:] == lane[:-1]] <= 0).any():
        return None
    columns = np.full(rows.height, -1, np.int64)
    columns[drawn["row"].to_numpy()] = placed
    return Laid(fill_forward(columns), _instances(drawn, placed, instances))


def columns_had(rows: pl.DataFrame, before: pl.DataFrame, columns: Ints) -> Ints | None:
    """The columns of those rows that are among those of the same ranks `before`, which had these; -1 of all others.

    None where it cannot be told which is which.
    """
    known = before.select(_SAME).with_columns(col=pl.Series(columns)).drop_nulls()
    own = rows.select(_SAME).join(known, on=_SAME, how="left", maintain_order="left")
    return own["col"].fill_null(-1).to_numpy() if own.height == rows.height else None


def _known(drawn: pl.DataFrame, own: Ints, instances: pl.DataFrame) -> Ints | None:
    """The column that each row has by itself, or by its collective; -1 where it has none."""
    theirs = drawn.select(*_PLACE).join(
        instances.select(*_PLACE, "col"), on=_PLACE, how="left", maintain_order="left"
    )  # fmt: skip
    if theirs.height != drawn.height:
        return None
    stands = drawn.select(_STANDS).to_series().to_numpy()
    known: Ints = np.where(own >= 0, own, np.where(stands, theirs["col"].fill_null(-1).to_numpy(), -1))
    return known


def _new_collectives(drawn: pl.DataFrame, known: Ints) -> tuple[Ints, Ints]:
    """Rows of collectives without a column, and a number for each of these collectives."""
    stands = drawn.select(_STANDS).to_series()
    at = np.flatnonzero(stands.to_numpy() & (known < 0))
    code = drawn.select(pl.struct(_PLACE))[at].to_series().rank("dense").to_numpy().astype(np.int64) - 1
    return at, code


def _placed(lane: NDArray[np.int32], known: Ints, together: tuple[Ints, Ints]) -> Ints | None:
    """Columns in which the members of each collective stand together; None if these are not found."""
    at, code = together
    known = known.copy()
    for _ in range(ROUNDS):
        columns = _followed(lane, known)
        furthest = np.full(int(code.max(initial=-1)) + 1, -1, np.int64)
        np.maximum.at(furthest, code, columns[at])
        apart = columns[at] < furthest[code]
        if not apart.any():
            return columns
        known[at[apart]] = furthest[code][apart]
    return None


def _followed(lane: NDArray[np.int32], known: Ints) -> Ints:
    """What has no column follows what stands before it on its lane; from 0 on where nothing does."""
    at = np.arange(len(lane))
    first = np.diff(lane, prepend=-1) != 0
    since = at - np.maximum.accumulate(np.where(first, at, 0))
    last = np.maximum.accumulate(np.where(first | (known >= 0), at, 0))
    begin = np.where(known[last] >= 0, known[last], 0)
    columns: Ints = begin + since - since[last]
    return columns


def _instances(drawn: pl.DataFrame, placed: Ints, known: pl.DataFrame) -> pl.DataFrame:
    new = drawn.with_columns(col=pl.Series(placed)).filter(IS_COLLECTIVE).join(known, on=_PLACE, how="anti")
    found = new.group_by(_PLACE).agg(pl.col("col").max(), present=pl.col("rank").n_unique(), pending=PENDING.any())
    return found.cast(known.schema)
