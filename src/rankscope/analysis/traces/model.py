"""What the analysis of traces says: clocks, matched operations, and tables of where the time went.

All times are nanoseconds since the epoch, aligned: on the clock of the reference file. Ranks are global ranks, files
are rows of `Dataset.files`: a rank has one for each window that its profiler recorded. The breakdowns are those of
Holistic Trace Analysis (https://hta.readthedocs.io), so that its users find their numbers again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

Columns = dict[str, pl.DataType | type[pl.DataType]]

CAUSES = ("compute", "host", "launch", "unknown")
"""What made a rank late: its device computed, its host was busy elsewhere, or what it issued started late."""
IDLE_KINDS = ("host wait", "kernel wait", "other")
"""Why a stream of a device was idle: nothing was issued to it, the next kernel was launched closely behind, or else."""

MATCHED: Columns = {
    "match": pl.UInt32,  # counts the matched operations, in the order of their ends
    "group": pl.UInt32,  # row of `Dataset.groups`
    "seq": pl.Int64,  # as the trace tells it; without that, the ordinal in the window, from 0
    "is_p2p": pl.Boolean,
    "op": pl.Categorical,
    "file": pl.UInt32,
    "rank": pl.Int32,
    "row": pl.UInt32,  # of `Dataset.traced`
    "arrived_ns": pl.Int64,  # when the rank was there: its kernel started; the host issued it where none is told
    "started_ns": pl.Int64,
    "ended_ns": pl.Int64,
    "blocking": pl.Boolean,  # no member can end before the last has arrived
}
"""One row for each member of each matched operation, sorted by match, then rank."""

STEPS: Columns = {
    "rank": pl.Int32,
    "file": pl.UInt32,
    "step": pl.Int64,  # ProfilerStep#N; 0 where the window has none and counts as one
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
    "compute_ns": pl.Int64,  # any computing kernel ran
    "communication_ns": pl.Int64,  # any communication ran
    "exposed_ns": pl.Int64,  # communication ran, and no computing kernel
    "overlap_ns": pl.Int64,  # both ran
    "memory_ns": pl.Int64,  # copies and memsets ran, and neither of the two
    "idle_ns": pl.Int64,  # nothing ran on the device; on a CPU, nothing on any thread
    "host_gap_ns": pl.Int64,  # the part of idle_ns in which no operation or launch ran on the host either
    "late_ns": pl.Int64,  # how much later than the others it came to collectives by its own doing
    "waited_ns": pl.Int64,  # how long it was in collectives before the last member came
}
"""One row for each window and step. compute + exposed + memory + idle is the step.

Of a file of which only collectives were read, all but communication_ns, late_ns and waited_ns are null.
"""

KERNELS: Columns = {
    "rank": pl.Int32,
    "file": pl.UInt32,
    "kind": pl.String,  # compute, communication, memory
    "name": pl.Categorical,
    "count": pl.UInt32,
    "total_ns": pl.Int64,
    "mean_ns": pl.Int64,
    "max_ns": pl.Int64,
    "min_ns": pl.Int64,
    "share": pl.Float64,  # of all that ran on the device of this kind
}
"""One row for each window and kernel."""

IDLE: Columns = {
    "rank": pl.Int32,
    "file": pl.UInt32,
    "track": pl.UInt32,
    "lane": pl.Int64,  # the stream
    "kind": pl.String,  # one of IDLE_KINDS
    "idle_ns": pl.Int64,
    "share": pl.Float64,  # of the idle time of the stream
}
"""One row for each stream and kind of idle time between two of its kernels."""

QUEUES: Columns = {
    "rank": pl.Int32,
    "file": pl.UInt32,
    "lane": pl.Int64,
    "mean": pl.Float64,  # launched and not yet finished, over time
    "median": pl.Float64,
    "max": pl.Int64,
    "full_ns": pl.Int64,  # time with 1024 or more waiting: launching blocks
}
"""One row for each stream: how much waited on it."""

LAUNCHES: Columns = {
    "rank": pl.Int32,
    "file": pl.UInt32,
    "launches": pl.UInt32,
    "delay_ns": pl.Int64,  # median from the end of a launch to the start of its kernel
    "delay_p99_ns": pl.Int64,
    "runtime_ns": pl.Int64,  # median length of a launch
    "short": pl.UInt32,  # kernels shorter than the launch that started them
    "late": pl.UInt32,  # kernels that started more than 100 us after their launch
}
"""One row for each window: launches and their kernels."""

BANDWIDTH: Columns = {
    "group": pl.UInt32,
    "op": pl.Categorical,
    "bytes": pl.Int64,  # as nccl-tests counts the size of an operation
    "count": pl.UInt32,
    "median_ns": pl.Int64,  # from the last arrival to the end
    "algbw": pl.Float64,  # GB/s
    "busbw": pl.Float64,  # GB/s
    "low": pl.Float64,  # 10 % and 90 % of busbw
    "high": pl.Float64,
}
"""One row for each group, operation and size."""

LAST: Columns = {
    "match": pl.UInt32,
    "group": pl.UInt32,
    "op": pl.Categorical,
    "seq": pl.Int64,  # as in MATCHED
    "last": pl.Int32,  # the rank that came last
    "second": pl.Int32,  # the one that came before it
    "margin_ns": pl.Int64,  # after the second last
    "first_ns": pl.Int64,  # when the first one came
    "last_ns": pl.Int64,
    "sure": pl.Boolean,  # the margin is more than clocks may be off
    "step": pl.Int64,  # null outside of steps
}
"""One row for each matched collective that all members must join, in the order of time: who came last."""


def _empty(columns: Columns) -> pl.DataFrame:
    return pl.DataFrame(schema=columns)


@dataclass(frozen=True)
class Lateness:
    """Why a rank is late: what it did between two collectives more than the others did."""

    rank: int
    cause: str
    """One of CAUSES."""
    what: str
    """The span that took the time, or the kernel; "" if nothing is seen in it."""
    share: float
    """Of the time that the rank is late, the part that this explains."""
    detail: str = ""
    """What is odd about it, for a person."""
    row: int | None = None
    """Row of `Dataset.spans` of the longest such span."""
    where: str = ""
    """The Python function around it; "" if none was recorded."""
    stack: tuple[str, ...] = ()
    """Names of that span and all around it, innermost first."""


@dataclass(frozen=True)
class TraceAnalysis:
    """What the traces say, beside the findings."""

    offsets: Mapping[int, int] = field(default_factory=dict)
    """By file, nanoseconds to add to its clock: 0 for the reference; missing where it cannot be aligned."""
    residuals: Mapping[int, int] = field(default_factory=dict)
    """By file, median absolute distance in ns of its matched ends to those of the others, after alignment."""
    clock_error_ns: int | None = None
    """A difference between two ranks that is less may be due to their clocks; None where none were compared."""
    matched: pl.DataFrame = field(default_factory=lambda: _empty(MATCHED))
    refused: tuple[str, ...] = ()
    """What was not matched or not aligned, and why; for a person."""
    steps: pl.DataFrame = field(default_factory=lambda: _empty(STEPS))
    kernels: pl.DataFrame = field(default_factory=lambda: _empty(KERNELS))
    idle: pl.DataFrame = field(default_factory=lambda: _empty(IDLE))
    queues: pl.DataFrame = field(default_factory=lambda: _empty(QUEUES))
    launches: pl.DataFrame = field(default_factory=lambda: _empty(LAUNCHES))
    bandwidth: pl.DataFrame = field(default_factory=lambda: _empty(BANDWIDTH))
    last: pl.DataFrame = field(default_factory=lambda: _empty(LAST))
    causes: Mapping[int, Lateness] = field(default_factory=dict)
    """By rank that is accused of being late, why."""
    recorded: int | None = None
    """Operations of the traces that are in dumps as well; None where there are no dumps."""

    @property
    def residual_ns(self) -> int | None:
        """The worst residual of any file that was aligned by more than itself; None where none was."""
        return max(self.residuals.values(), default=None)
