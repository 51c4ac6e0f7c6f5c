"""Results of the analysis of traces: clocks, matched operations, and tables of where the time went.

All times are nanoseconds since the epoch, aligned to the clock of the reference file. Ranks are global ranks, files are
rows of `Dataset.files`; a rank has one file for each window that its profiler recorded. The breakdowns are those of
Holistic Trace Analysis (https://hta.readthedocs.io), so that its users recognise the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from rankscope.analysis.model import FeaturePart

Columns = dict[str, pl.DataType | type[pl.DataType]]

CAUSES = ("compute", "host", "launch", "unknown")
"""Causes of lateness: the device computed, the host was busy otherwise, or issued work started late."""
IDLE_KINDS = ("host wait", "kernel wait", "other")
"""Reasons of idle streams: nothing was issued, the next kernel was launched just before, or another reason."""

MATCHED: Columns = {
    "match": pl.UInt32,  # counts the matched operations, in the order of their ends
    "group": pl.UInt32,  # row of `Dataset.groups`
    "seq": pl.Int64,  # from the trace; without that, the ordinal in the window, from 0
    "is_p2p": pl.Boolean,
    "op": pl.Categorical,
    "file": pl.UInt32,
    "rank": pl.Int32,
    "row": pl.UInt32,  # of `Dataset.traced`
    "arrived_ns": pl.Int64,  # arrival of the rank: start of its kernel, else the time of issue
    "started_ns": pl.Int64,
    "ended_ns": pl.Int64,
    "blocking": pl.Boolean,  # no member can end before the last has arrived
}
"""One row for each member of each matched operation, sorted by match, then rank."""

STEPS: Columns = {
    "rank": pl.Int32,
    "file": pl.UInt32,
    "step": pl.Int64,  # ProfilerStep  # ProfilerStep#N; 0 for a window without steps, which counts as one
    "start_ns": pl.Int64,  # of the step on the device, see `steps_on_device`
    "end_ns": pl.Int64,
    "compute_ns": pl.Int64,  # any computing kernel ran
    "communication_ns": pl.Int64,  # any communication ran
    "exposed_ns": pl.Int64,  # communication ran, and no computing kernel
    "overlap_ns": pl.Int64,  # both ran
    "memory_ns": pl.Int64,  # copies and memsets ran, and neither of the two
    "idle_ns": pl.Int64,  # nothing ran on the device; on a CPU, nothing on any thread
    "host_gap_ns": pl.Int64,  # the part of idle_ns in which no host worked either, see `host_pieces`
    "late_ns": pl.Int64,  # delay at collectives against the others, by its own doing
    "waited_ns": pl.Int64,  # time in collectives before the last member came
}
"""One row for each window and step. compute + exposed + memory + idle is the step.

All columns but communication_ns, late_ns and waited_ns are null for a file of which only collectives were read.
"""

STEP_TIME = "step time"


class Metric(NamedTuple):
    """A value of a step that a map can show."""

    name: str
    column: pl.Expr
    """In nanoseconds."""


METRICS: tuple[Metric, ...] = (
    Metric("late", pl.col("late_ns")),
    Metric(STEP_TIME, pl.col("end_ns") - pl.col("start_ns")),
    Metric("compute", pl.col("compute_ns")),
    Metric("exposed communication", pl.col("exposed_ns")),
    Metric("waiting in collectives", pl.col("waited_ns")),
    Metric("idle", pl.col("idle_ns")),
    Metric("host gap", pl.col("host_gap_ns")),
)
"""Values of a step that maps show, in the order in which keys walk through them."""

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
"""One row for each stream: the length of its queue."""

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

STEP_LAUNCHES: Columns = {
    "rank": pl.Int32,
    "file": pl.UInt32,
    "step": pl.Int64,  # as in STEPS
    "launches": pl.UInt32,  # kernels of known launches; not copies, graphs, and launches that wait for the device
    "short": pl.UInt32,  # of these, shorter than the call that launched it
}
"""One row for each window and step: kernels that are shorter than their launch."""

COPIES: Columns = {
    "rank": pl.Int32,
    "file": pl.UInt32,
    "step": pl.Int64,  # as in STEPS
    "name": pl.Categorical,  # "Memcpy HtoD (Pinned -> Device)", "Memset (Device)", ...
    "count": pl.UInt32,
    "bytes": pl.Int64,
    "total_ns": pl.Int64,
    "speed": pl.Float64,  # GB/s over all of them
    "most": pl.Float64,  # GB/s of the fastest
}
"""One row for each window, step and kind of copy, in the order of steps, those with most time first."""

RANGE_KINDS = ("annotation", "module", "module class")
"""Ranges that a program names: annotations, instances of modules, and all instances of a class."""

RANGES: Columns = {
    "rank": pl.Int32,
    "file": pl.UInt32,
    "kind": pl.String,  # one of RANGE_KINDS
    "name": pl.Categorical,
    "count": pl.UInt32,  # one within another of the same name does not count
    "host_ns": pl.Int64,  # of the ranges on the host; null where only the device shows them
    "device_ns": pl.Int64,  # of the work that was launched in them; null where that is not known
    "communication_ns": pl.Int64,  # of that, collectives, which wait for other ranks
    "kernels": pl.UInt32,
    "share": pl.Float64,  # of all work of the device; parallel streams count each
}
"""One row for each window, kind and name, those with most device time first. Ranges may hold one another."""

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
    "sure": pl.Boolean,  # the margin exceeds the clock error
    "step": pl.Int64,  # null outside of steps
}
"""One row for each matched collective that all members must join, by time: the rank that came last."""

PATH_KINDS = ("compute", "communication", "memory", "launch", "host")
"""Kinds of parts of a critical path: work on devices, the gap before it, and all that the host does."""

PATH: Columns = {
    "path": pl.UInt32,  # counts the paths: one for each step of each window, by time
    "step": pl.Int64,  # as in STEPS
    "rank": pl.Int32,
    "file": pl.UInt32,
    "kind": pl.String,  # one of PATH_KINDS
    "row": pl.UInt32,  # of `Dataset.spans`: the work that runs or is launched; null on the host
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
}
"""The parts of the critical path of each step, by time: they follow one another, and their sum is the step."""

PATH_NAMES: Columns = {
    "path": pl.UInt32,
    "step": pl.Int64,
    "rank": pl.Int32,
    "kind": pl.String,
    "name": pl.Categorical,  # of the work, or of the innermost spans of the host; null where the host shows none
    "count": pl.UInt32,  # parts of the path; on the host the spans
    "total_ns": pl.Int64,
}
"""The same by name: one row for each path, rank, kind and name."""

HANDOVERS: Columns = {
    "path": pl.UInt32,
    "step": pl.Int64,
    "group": pl.UInt32,
    "op": pl.Categorical,
    "seq": pl.Int64,  # as in MATCHED
    "rank": pl.Int32,  # the rank that waits
    "for_rank": pl.Int32,  # the rank that came last, to which the path goes
    "waited_ns": pl.Int64,
    "time_ns": pl.Int64,  # when that came
}
"""One row for each operation at which a critical path goes from one rank to another."""

PATTERNS: Columns = {
    "rank": pl.Int32,
    "operator": pl.Categorical,  # the outermost operator that launches the kernels
    "kernels": pl.String,  # their names in the order of their launches, with PATTERN_JOINT between them
    "length": pl.UInt32,  # kernels in it
    "count": pl.UInt32,
    "total_ns": pl.Int64,  # of the kernels
}
"""One row for each rank, operator and sequence of two or more kernels that it launches again and again."""
PATTERN_JOINT = "\n"
"""Names in C++ do not hold it."""

COUNTERS: Columns = {
    "rank": pl.Int32,
    "operator": pl.Categorical,  # the innermost operator that launches the kernel; null where that is not known
    "kernel": pl.Categorical,
    "counter": pl.Categorical,
    "count": pl.UInt32,  # measured kernels
    "total": pl.Float64,
    "mean": pl.Float64,
}
"""One row for each rank, operator, kernel and counter of a device."""


@dataclass(frozen=True)
class Lateness:
    """The cause why a rank is late: its excess over the others between two collectives."""

    rank: int
    cause: str
    """One of CAUSES."""
    what: str
    """The span or kernel that took the time; "" if none is known."""
    share: float
    """Share of the lateness that this explains."""
    detail: str = ""
    """The irregularity, for the user."""
    row: int | None = None
    """Row of `Dataset.spans` of the longest such span."""
    where: str = ""
    """The Python function around it; "" if none was recorded."""
    stack: tuple[str, ...] = ()
    """Names of that span and all around it, innermost first."""


@dataclass(frozen=True)
class TraceAnalysis:
    """Results of the traces, beside the findings."""

    offsets: Mapping[int, int] = field(default_factory=dict)
    """By file, nanoseconds to add to its clock: 0 for the reference; missing if it cannot be aligned."""
    residuals: Mapping[int, int] = field(default_factory=dict)
    """By file, median absolute distance in ns of its matched ends to those of the others, after alignment."""
    clock_error_ns: int | None = None
    """Smaller differences between two ranks may be due to their clocks; None if no clocks were compared."""
    matched: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=MATCHED))
    refused: tuple[str, ...] = ()
    """Operations and files that were not matched or aligned, with the reason; for the user."""
    steps: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=STEPS))
    kernels: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=KERNELS))
    idle: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=IDLE))
    queues: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=QUEUES))
    launches: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=LAUNCHES))
    last: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=LAST))
    path: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PATH))
    path_names: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PATH_NAMES))
    patterns: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PATTERNS))
    step_launches: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=STEP_LAUNCHES))
    copies: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COPIES))
    ranges: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=RANGES))
    counters: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COUNTERS))
    handovers: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=HANDOVERS))
    causes: Mapping[int, Lateness] = field(default_factory=dict)
    """The cause for each rank accused of being late."""
    recorded: int | None = None
    """Number of traced operations that are also in dumps; None without dumps."""

    @property
    def has_steps(self) -> bool:
        """Whether the program marked steps: else the whole window counts as one, with number 0."""
        return bool((self.steps.group_by("file").len()["len"] > 1).any() or (self.steps["step"] > 0).any())

    @property
    def residual_ns(self) -> int | None:
        """The largest residual of a file that was aligned to another; None without one."""
        return max(self.residuals.values(), default=None)


TRACE_RESULTS = FeaturePart[TraceAnalysis]("traces")
"""Results of traces in an analysis."""
