"""torchcomms counts all groups of a recorder with one counter: there the ordinal within the group takes its place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from rankscope.assemble import names
from rankscope.parsers.flight_recorder.model import Dump


def wrote(dump: Dump) -> bool:
    """Whether a dump is of torchcomms: groups described by their backend, one counter from 0 that runs with record_id.

    c10d counts each group from 1, tells sends and receives apart, and describes groups by what they are for.
    """
    if not dump.rows or any(call.is_p2p for call in dump.calls) or dump.column("p2p_seq").any():
        return False
    backends = names.DEVICE_LIBRARIES | names.STATELESS | {names.library_of(c.profiling_name) for c in dump.calls}
    if any(call.description not in backends for call in dump.calls):
        return False
    ahead = dump.column("seq") - dump.column("record_id")
    return bool(np.all(ahead == ahead[0]) and ahead[0] <= 0)


def renumber(ops: pl.DataFrame, files: Sequence[int]) -> pl.DataFrame:
    """Counts collectives within each group from 1 in the dumps of torchcomms; null where the first ones are gone."""
    if not files:
        return ops
    mine = pl.col("file").is_in(list(files))
    ordinal = (~pl.col("is_p2p")).cast(pl.Int64).cum_sum().over("file", "group")
    whole = (pl.col("seq").min() == 0).over("file")
    return ops.with_columns(
        pl.when(mine & whole).then(ordinal).when(mine).then(None).otherwise(pl.col("seq")).alias("seq")
    )
