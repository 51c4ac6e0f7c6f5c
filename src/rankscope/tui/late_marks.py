"""Lateness on the axis of sequence: how long after the first member each rank issued a collective."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.schema import Dataset
from rankscope.tui.clocks import align_clocks
from rankscope.tui.letters import NUMBER, SHIFT, Codes, Mark, code

MOST_OPERATIONS = 2_000_000
"""Operations beyond which no lateness is drawn: it would delay the first screen."""
LATE_NS, VERY_LATE_NS = 5_000_000, 20_000_000
"""Least lateness in ns that is drawn: less is the noise of a host."""
USUAL_TIMES, VERY_TIMES = 6, 20
"""Least multiples of the usual lateness of the group: the median of all members but the first."""
LEAST_SHARE = 0.1
"""A rank has marks only if it is late in this share of its collectives: rows of ranks that share a look would else fall
apart for single delays, as at the start."""


def with_lateness(dataset: Dataset, codes: Codes) -> Codes:
    """Codes with a mark on each finished collective that its rank issued late; `codes` has one for each row of ops.

    The clocks of several hosts are brought together first; where that is not possible, nothing is marked.
    """
    ops = dataset.ops
    if not 0 < ops.height <= MOST_OPERATIONS:
        return codes
    over = pl.Series((codes >> SHIFT) == Mark.DONE)
    issued = ops.select("rank", "group", "seq", "created_ns", "is_p2p").with_row_index("row").filter(over)
    issued = issued.filter(~pl.col("is_p2p")).drop_nulls(["rank", "group", "seq", "created_ns"])
    offsets = _offsets(dataset)
    if issued.is_empty() or offsets is None:
        return codes
    shift = pl.col("rank").replace_strict(offsets, default=0, return_dtype=pl.Int64) if offsets else pl.lit(0)
    same = ["group", "seq"]
    late = issued.with_columns(at=pl.col("created_ns") - shift).with_columns(
        late=pl.col("at") - pl.col("at").min().over(same), members=pl.len().over(same)
    )
    late = late.filter(pl.col("members") > 1)
    usual = late.filter(pl.col("late") > 0).group_by("group").agg(usual=pl.col("late").median())
    late = late.join(usual, on="group").filter(_beyond(LATE_NS, USUAL_TIMES))
    often = late.group_by("rank").len("late").join(issued.group_by("rank").len("all"), on="rank")
    late = late.join(often.filter(pl.col("late") >= LEAST_SHARE * pl.col("all")), on="rank", how="semi")
    out = codes.copy()
    for mark, rows in ((Mark.LATE, late), (Mark.VERY_LATE, late.filter(_beyond(VERY_LATE_NS, VERY_TIMES)))):
        places = rows["row"].to_numpy()
        out[places] = (codes[places] & NUMBER) | np.uint8(code(mark))
    return out


def _beyond(least_ns: int, times: int) -> pl.Expr:
    """Whether a lateness is at least this long, and so many times the usual one of the group."""
    return pl.col("late") >= pl.max_horizontal(pl.lit(least_ns), times * pl.col("usual"))


def _offsets(dataset: Dataset) -> dict[int, int] | None:
    """Nanoseconds to subtract from the times of each rank; None if the clocks of its hosts cannot be compared."""
    if dataset.ops["host"].n_unique() <= 1:
        return {}
    clocks = align_clocks(dataset)
    return None if clocks.residual_ns is None else clocks.offsets
