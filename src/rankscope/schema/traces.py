"""What a profiler's traces hold beside operations: windows, tracks and spans."""

from __future__ import annotations

import polars as pl

from rankscope.schema.tables import OPS

TRACK_KINDS = ("host", "compute", "communication", "memory")
"""What a row of a trace shows: a thread of a process, or a stream of a device by what runs on it."""
DETAILS = ("collectives", "all")
"""How much of a trace was read: its collectives and steps (the first paint), or everything."""

TrackKind = pl.Enum(TRACK_KINDS)
Detail = pl.Enum(DETAILS)

TRACES: dict[str, pl.DataType | type[pl.DataType]] = {
    "file": pl.UInt32,  # row of `files`; one rank may have several, one for each window of its profiler
    "rank": pl.Int32,
    "host": pl.String,  # "" if unknown
    "start_ns": pl.Int64,  # of the earliest and the end of the latest event, on the rank's own clock
    "end_ns": pl.Int64,
    "events": pl.Int64,  # read
    "lost": pl.Int64,  # events that could not be read
    "detail": Detail,
    "backend": pl.String,  # "nccl", "gloo"; "" if not told
    "resolution_ns": pl.Int64,  # of its time stamps: 1, 250 or 1000
}
"""One row for each window of a profiler: what one file holds of one process."""

TRACKS: dict[str, pl.DataType | type[pl.DataType]] = {
    "track": pl.UInt32,
    "file": pl.UInt32,  # row of `files` and of `traces`
    "rank": pl.Int32,
    "kind": TrackKind,
    "device": pl.Int32,  # null on the host
    "pid": pl.Int64,  # null on a device
    "lane": pl.Int64,  # thread id, or stream
    "name": pl.String,  # "thread 1234 (python)", "stream 7"; "" if it has none
    "order": pl.Int32,  # as the file sorts threads and streams
}
"""One row for each thread or stream of a window that has spans."""

TRACED: dict[str, pl.DataType | type[pl.DataType]] = {
    **OPS,
    "comms_id": pl.Int64,  # hash of group, number and kind, the same on all members; null before torch 2.12
}
"""One row for each operation that a profiler saw."""

SPANS: dict[str, pl.DataType | type[pl.DataType]] = {
    "track": pl.UInt32,  # row of `tracks`
    "category": pl.Categorical,  # as torch writes it now: "cpu_op", "kernel", "cuda_runtime", "user_annotation", ...
    "name": pl.Categorical,
    "start_ns": pl.Int64,  # on the rank's own clock
    "duration_ns": pl.Int64,
    "depth": pl.UInt16,  # spans of its track around it; 0 is outermost
    "correlation": pl.Int64,  # of a runtime call and what it started on a device; null if none
    "op": pl.UInt32,  # row of `traced` of which it is the execution on the device (gloo: the run loop); null if none
}
"""What ran when, sorted by track, then start, then the longest first: what lies around a span comes before it."""
