"""Where the time of each rank and step went: computing, communication, copies, nothing.

The parts are those of Holistic Trace Analysis (temporal breakdown, communication computation overlap): what runs at
the same time on several streams counts once, and a copy or communication only where nothing computes.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from rankscope.analysis.traces.intervals import Busy
from rankscope.analysis.traces.spans import Spans, among

_ACTIVE = ("cpu_op", "cuda_runtime", "cuda_driver", "xpu_runtime", "mtia_runtime", "privateuse1_runtime")
_WAITS = re.compile(r"Synchronize|StreamWait|EventQuery")
"""Calls in which the host only waits for its device."""


def split_steps(spans: Spans, file: int, steps: pl.DataFrame) -> pl.DataFrame:
    """Columns of STEPS but `rank`, `late_ns` and `waited_ns`, on the file's own clock.

    `steps`: file, step, begin_ns, end_ns, all of one file.
    """
    since, until = steps["begin_ns"].to_numpy(), steps["end_ns"].to_numpy()
    ran = spans.device(file)
    if ran is None:
        none = pl.lit(None, dtype=pl.Int64)
        return steps.select(*_HEAD, **dict.fromkeys(_PARTS, none))
    start, end, what = ran["start_ns"].to_numpy(), ran["end_ns"].to_numpy(), ran["what"].to_physical().to_numpy()
    computes, communicates = what == 0, what == 1
    both = computes | communicates
    device = Busy.of(start, end)
    compute = Busy.of(start[computes], end[computes]).within(since, until)
    communication = Busy.of(start[communicates], end[communicates]).within(since, until)
    either, any_ = Busy.of(start[both], end[both]).within(since, until), device.within(since, until)
    active = device.joined(_active(spans, file)).within(since, until)
    table = steps.select(*_HEAD).with_columns(
        compute_ns=pl.Series(compute), communication_ns=pl.Series(communication),
        exposed_ns=pl.Series(either - compute), overlap_ns=pl.Series(compute + communication - either),
        memory_ns=pl.Series(any_ - either), idle_ns=pl.Series(until - since - any_),
        host_gap_ns=pl.Series(until - since - active),
    )  # fmt: skip
    if file in spans.whole:
        return table
    unread = [name for name in _PARTS if name != "communication_ns"]
    return table.with_columns(pl.lit(None, dtype=pl.Int64).alias(name) for name in unread)


_HEAD = ("file", "step", pl.col("begin_ns").alias("start_ns"), "end_ns")
_PARTS = ("compute_ns", "communication_ns", "exposed_ns", "overlap_ns", "memory_ns", "idle_ns", "host_gap_ns")


def _active(spans: Spans, file: int) -> Busy:
    """When any operation or launch ran on the host."""
    host = spans.host(file)
    if host is None:
        return Busy(np.empty(0, np.int64), np.empty(0, np.int64))
    host = host.filter(among("category", _ACTIVE))
    waits = [name for name in host["name"].unique().cast(pl.String) if _WAITS.search(name)]
    active = host.filter(~among("name", waits))
    return Busy.of(active["start_ns"].to_numpy(), active["end_ns"].to_numpy())
