"""Lateness on the axis of sequence: how long after the first member each rank issued a collective."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.schema import Dataset
from rankscope.tui.clocks import align_clocks
from rankscope.tui.letters import NUMBER, SHIFT, Codes, Mark, code

MOST_OPERATIONS = 2_000_000
"""Operations beyond which no lateness is drawn: it would delay the first screen."""
LATE_NS, VERY_LATE_NS = 1_000_000, 10_000_000
"""Least lateness in ns that is drawn: less is the noise of a host."""
USUAL_TIMES, VERY_TIMES = 4, 16
"""Least multiples of the usual lateness of the group: the median of all members but the first."""


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
    late = late.filter(pl.col("late") >= LATE_NS).join(usual, on="group")
    out = codes.copy()
    for mark, least, times in ((Mark.LATE, LATE_NS, USUAL_TIMES), (Mark.VERY_LATE, VERY_LATE_NS, VERY_TIMES)):
        rows = late.filter(pl.col("late") >= pl.max_horizontal(pl.lit(least), times * pl.col("usual")))[
            "row"
        ].to_numpy()
        out[rows] = (codes[rows] & NUMBER) | np.uint8(code(mark))
    return out


def _offsets(dataset: Dataset) -> dict[int, int] | None:
    """Nanoseconds to subtract from the times of each rank; None if the clocks of its hosts cannot be compared."""
    if dataset.ops["host"].n_unique() <= 1:
        return {}
    clocks = align_clocks(dataset)
    return None if clocks.residual_ns is None else clocks.offsets
