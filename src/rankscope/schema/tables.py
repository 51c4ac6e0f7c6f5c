"""Columns, dtypes, enums and units of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import polars as pl

SOURCES = ("flight-recorder", "nccl-log", "profiler", "c10d-log")
"""Origin of a row."""
STATES = ("scheduled", "started", "completed", "unknown")
"""State of an operation. A recorder without states (gloo, torchcomms on a CPU) writes "retired", read as completed.

Inner operations of a coalesced group carry the state of their closer, because their own never changes. A send or
receive that a hook marks as completed at its issue is "unknown": the hook marks all batched ones so.
"""
COALESCED = ("none", "inner", "closer")
"""Role of a row: it stands alone, is inside a coalesced group, or launched the group."""
MEMBERSHIPS = ("config", "inferred")
"""Source of the members of a group: written in pg_config, or inferred from ranks with entries."""
RANK_SOURCES = ("option", "name", "content", "guess", "sidecar")
"""Source of the rank of a file: the user, its name, its groups and peers, a numbering, or the sidecar of the
capture."""
AT_CRASH = "faulthandler (crash)"
"""The tool of stacks that a process printed because it ended."""
AT_STANDSTILL = "faulthandler (standstill)"
"""The tool of stacks that the capture took because the rank had made no progress for long."""
UNRANKED = "no rank known"
"""Beginning of the `problem` of a file of stacks without a known rank."""
FILTERS = ("none", "only-active", "unknown")
"""Whether a dump omits completed operations."""
NATIVE, HOOK, BLIND_HOOK = RECORDERS = ("native", "hook", "blind-hook")
"""Origin of a dump: the recorder of its own backend, or the hook that torch 2.15 attaches to the others, with or
without notice of completions. A blind hook knows no end: all of its operations have the state "unknown"."""
HOOKS = (HOOK, BLIND_HOOK)
"""Recorders that get operations from the dispatcher, not from the backend."""

Source = pl.Enum(SOURCES)
State = pl.Enum(STATES)
Coalesced = pl.Enum(COALESCED)
Membership = pl.Enum(MEMBERSHIPS)
RankSource = pl.Enum(RANK_SOURCES)
Filter = pl.Enum(FILTERS)
Recorder = pl.Enum(RECORDERS)

OPS: dict[str, pl.DataType | type[pl.DataType]] = {
    "source": Source,
    "file": pl.UInt32,  # row of `files`
    "attempt": pl.UInt16,
    "rank": pl.Int32,
    "host": pl.Categorical,
    "group": pl.UInt32,  # row of `groups`
    "seq": pl.Int64,  # collective sequence number in the group; what joins ranks and sources
    "p2p_seq": pl.Int64,
    "op_id": pl.Int64,
    "is_p2p": pl.Boolean,
    "library": pl.Categorical,  # "nccl", "gloo", ...: what stood before the first ':'
    "op": pl.Categorical,  # "all_reduce", "_all_gather_base", "send", "recv", "coalesced", ...
    "peer": pl.Int32,  # global rank at the other end of a send or recv; null where it cannot be told
    "coalesced": Coalesced,
    "state": State,
    "retired": pl.Boolean,
    "created_ns": pl.Int64,
    "started_ns": pl.Int64,  # when a CPU thread noticed, not when it happened
    "completed_ns": pl.Int64,
    "duration_ns": pl.Int64,
    # JSON text: "[[64,32]]"; not categorical: a process never forgets a category, and sizes may be others in every step
    "in_sizes": pl.String,
    "out_sizes": pl.String,
    "in_dtypes": pl.Categorical,  # JSON text: '["Float"]'
    "out_dtypes": pl.Categorical,
    "stack_id": pl.UInt32,  # rows of `stacks`; null without one
    "thread": pl.Categorical,
    "timeout_ms": pl.Int64,
    "record_id": pl.Int64,  # counts per process over all groups; means nothing across ranks
}
"""Columns of ``ops``. Rows are sorted by rank, then in the order of issue."""

GROUPS: dict[str, pl.DataType | type[pl.DataType]] = {
    "group": pl.UInt32,
    "name": pl.String,
    "description": pl.String,  # the one most ranks give; "" if none
    "ranks": pl.List(pl.Int32),  # ordered: position = rank within the group
    "membership": Membership,
    "has_p2p": pl.Boolean,
}

STACKS: dict[str, pl.DataType | type[pl.DataType]] = {
    "stack_id": pl.UInt32,
    "depth": pl.UInt16,  # 0 is innermost
    "function": pl.String,
    "file": pl.String,
    "line": pl.Int64,
}

FRONTIERS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "group": pl.UInt32,
    # collective sequence numbers; null where neither pg_status nor entries can tell
    "last_enqueued": pl.Int64,
    "last_started": pl.Int64,
    "last_completed": pl.Int64,
    # pg_status as written: on a group with point-to-point operations, and on gloo, it mixes counters
    "status_enqueued": pl.Int64,
    "status_started": pl.Int64,
    "status_completed": pl.Int64,
    # collective sequence numbers of the entries that are there; null without entries
    "first_kept": pl.Int64,
    "last_kept": pl.Int64,
    "wrapped": pl.Boolean,  # older entries were overwritten; null: cannot be told
    "filtered": Filter,
}
"""One row for each rank with a dump and each group that it has used or is a member of."""

FILES: dict[str, pl.DataType | type[pl.DataType]] = {
    "file": pl.UInt32,
    "path": pl.String,  # as found below the given paths; "a.tar.gz!dumps/rank_0" inside an archive
    "kind": pl.String,  # one of kinds.input_kinds
    "rank": pl.Int32,
    "rank_source": RankSource,
    "attempt": pl.UInt16,
    "host": pl.String,
    "pid": pl.Int64,  # of the process that wrote it, as its sidecar says; null where nothing tells
    "interval_ns": pl.Int64,  # that process writes a dump so often, as its sidecar says; null where nothing tells
    "delay_ns": pl.Int64,  # the longest that one took or came late
    "rows": pl.UInt32,  # operations, or threads
    "version": pl.String,  # of the format
    "library_version": pl.String,  # "2.27.3"
    "mtime_ns": pl.Int64,
    "size": pl.Int64,  # bytes on disk
    "wrapped": pl.Boolean,
    "filtered": Filter,
    "has_stacks": pl.Boolean,
    "has_timing": pl.Boolean,  # start events were recorded
    "has_status": pl.Boolean,  # pg_status is there
    "recorder": Recorder,  # how the dump was made; null where nothing tells
    "problem": pl.String,  # why it could not be read, or only in part; null if all is well
    "used": pl.Boolean,  # its rows are in `ops`, or in `threads`; `Dataset.dumps` are the former
}

THREADS: dict[str, pl.DataType | type[pl.DataType]] = {
    "file": pl.UInt32,  # row of `files`: the py-spy dump, or a log in which the stack stands
    "rank": pl.Int32,  # null where nothing tells whose process it is
    "pid": pl.Int64,  # null where the stack does not tell it
    "parent_pid": pl.Int64,  # null unless it is a subprocess of the rank: a data loader's worker
    "command": pl.String,  # the command line of the process; "" if unknown
    "process": pl.UInt32,  # number of the process in its file; null if it starts ranks or serves one
    "thread": pl.String,  # "MainThread", "Thread-1"; "" if it has no name
    "thread_id": pl.Int64,
    "is_main": pl.Boolean,
    "active": pl.Boolean,  # running or runnable when it was sampled; null if not told
    "gil": pl.Boolean,  # held the interpreter lock; null if not told
    "stack_id": pl.UInt32,  # rows of `stacks`; a native frame has the library as its file and line 0
    "written_ns": pl.Int64,  # modification time of the dump
    "tool": pl.String,  # what looked: "py-spy", "faulthandler", "pystack", AT_CRASH or AT_STANDSTILL
}
"""One row for each thread of each sampled process: its stack at one moment.

A process with several dumps has several rows, at different `written_ns`. For an earlier dump in the same file it is
smaller by some nanoseconds: the order is known, the distance is not.
"""

REPEATS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "file": pl.UInt32,  # row of `files`: the earlier dump
    "written_ns": pl.Int64,  # when the earlier dump was written
    "later_ns": pl.Int64,  # when the dump that is used was written
    "progressed": pl.Boolean,  # an operation was issued, started or completed between the two
}
"""One row for each earlier dump of a recorder; its newest dump is the used one."""

ATTEMPTS: dict[str, pl.DataType | type[pl.DataType]] = {
    "attempt": pl.UInt16,  # 0 is the oldest
    "label": pl.String,
    "job": pl.String,  # the id of the job, as sidecars say; null where nothing tells
    "started_ns": pl.Int64,  # start of its first process, else its first event
    "newest_ns": pl.Int64,  # newest event of any of its dumps
    "dumps": pl.UInt32,
}

MESSAGES: dict[str, pl.DataType | type[pl.DataType]] = {
    "time_ns": pl.Int64,  # null without a date; local times are taken for UTC
    "resolution_ns": pl.Int64,  # 1_000_000_000 for a stamp with seconds only; null without a stamp
    "rank": pl.Int32,  # null where nothing tells
    "host": pl.String,
    "pid": pl.Int64,
    "file": pl.UInt32,
    "offset": pl.Int64,  # of its first byte in the file, after unpacking
    "line": pl.Int64,  # from 1
    "severity": pl.String,  # "error", "warning", "info"
    "kind": pl.String,  # one of kinds.event_kinds
    "role": pl.String,  # of a known error: "root", "victim", "context", "noise"; "" for what is not in the table
    "pattern": pl.String,  # id in the table of known errors; "" for what is not in it
    "group": pl.UInt32,  # row of `groups`; null where it names none or an unknown one
    "text": pl.String,
    "values": pl.String,  # JSON object: what was read from it
    "torn": pl.Boolean,
}
"""One row for each relevant line of a log, and for each sidecar that reports an end; sorted by file and offset."""

SETTINGS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "host": pl.String,
    "pid": pl.Int64,
    "name": pl.String,  # "NCCL_ALGO", "version:nccl", "version:torch", ...
    "value": pl.String,
    "source": pl.String,  # "nccl", "c10d", "collect_env", "environ", "msprobe", "flight-recorder"
    "file": pl.UInt32,
    "line": pl.Int64,
}
"""One row for each reported setting or version of a process."""
ENVIRONMENTS = ("environ", "msprobe")
"""Sources of settings that hold the whole environment: an absent variable is unset."""

COMMS: dict[str, pl.DataType | type[pl.DataType]] = {
    "group": pl.UInt32,  # row of `groups`: the communicator over all ranks; null where its members cannot be told
    "rank": pl.Int32,
    "host": pl.String,
    "pid": pl.Int64,
    "comm_rank": pl.Int32,
    "size": pl.Int32,  # nranks, as the process was told
    "device": pl.Int32,
    "state": pl.String,  # "seen", "start", "complete", "finalized", "revoked", "aborting", "destroyed", "aborted"
    "identity": pl.String,  # commId, or parent, split and colour: equal on all ranks
    "started_ns": pl.Int64,
    "completed_ns": pl.Int64,
    "collectives": pl.Int64,
    "version": pl.String,
    "file": pl.UInt32,
    "line": pl.Int64,  # where it was initialised, or first seen
}
"""One row for each life of a communicator in one process."""

RAS: dict[str, pl.DataType | type[pl.DataType]] = {
    "comm": pl.String,
    "group": pl.UInt32,
    "rank": pl.Int32,  # in the communicator; null for the communicator itself
    "host": pl.String,
    "pid": pl.Int64,
    "device": pl.Int32,
    "size": pl.Int32,
    "present": pl.Int32,
    "missing": pl.Int32,
    "status": pl.String,
    "counts": pl.String,  # JSON object: how often it launched each kind of collective
    "source": pl.String,  # "ras", "inspector"
    "answer": pl.Int64,  # number of the answer of RAS within its file: it may have been asked several times
    "time_ns": pl.Int64,  # of the answer, as printed; null if it has none
    "file": pl.UInt32,
    "line": pl.Int64,
    "text": pl.String,
}
"""Rows of NCCL's RAS and Inspector about communicators and their ranks."""


def empty(columns: dict[str, pl.DataType | type[pl.DataType]]) -> pl.DataFrame:
    """A table of the given columns without rows."""
    return pl.DataFrame(schema=columns)


# Times of files.

SECOND_NS = 1_000_000_000


def latest_ns(mtime_ns: int) -> int:
    """The latest possible write time of a file with this modification time, in nanoseconds since the epoch.

    Archives in tar's old formats and many ways to copy files keep whole seconds and cut off the rest.
    """
    return mtime_ns + SECOND_NS - 1 if mtime_ns % SECOND_NS == 0 else mtime_ns


# Text columns of the tables that may hold text of the user.

Holds = Literal["text", "host", "path", "json", "own"]
"""Text of any kind; the name of a host; a path of a file; JSON with such text; words of rankscope's own, or numbers."""

_OPS: dict[str, Holds] = {"host": "host", "in_sizes": "own", "out_sizes": "own"}
HOLDS: Mapping[str, Mapping[str, Holds]] = {
    "ops": _OPS,
    "traced": _OPS,
    "stacks": {"file": "path"},
    "files": {"path": "path", "kind": "own", "host": "host"},
    "attempts": {"label": "path"},
    "messages": {"host": "host", "severity": "own", "kind": "own", "role": "own", "values": "json"},
    "settings": {"host": "host", "source": "own"},
    "comms": {"host": "host", "state": "own"},
    "ras": {"host": "host", "source": "own"},
    "compilations": {"compile_id": "own", "path": "path"},
    "threads": {"tool": "own"},
    "tensors": {"tool": "own"},
    "traces": {"host": "host"},
    "memory": {"host": "host", "device": "own"},
    # tables of the analysis of traces
    "kernels": {"kind": "own"},
    "idle": {"kind": "own"},
    "path": {"kind": "own"},
    "path_names": {"kind": "own"},
}
"""Content of columns, by table and column, where it is not text of any kind."""


def text_columns(table: str, columns: Mapping[str, pl.DataType | type[pl.DataType]]) -> dict[str, Holds]:
    """The columns of a table that may hold text of the user, and their content."""
    known = HOLDS.get(table, {})
    held = {name: known.get(name, "text") for name, dtype in columns.items() if dtype in (pl.String, pl.Categorical)}
    return {name: what for name, what in held.items() if what != "own"}


# Further tables of profilers' traces: windows, tracks and spans.

TRACK_KINDS = ("host", "compute", "communication", "memory")
"""Content of a row of a trace: a thread of a process, or a stream of a device by its work."""
DETAILS = ("collectives", "all")
"""Detail of a trace: its collectives and steps (the first paint), or everything."""

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
"""One row for each window of a profiler: the part of one file about one process."""

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
"""One row for each operation in a profile."""

SPANS: dict[str, pl.DataType | type[pl.DataType]] = {
    "track": pl.UInt32,  # row of `tracks`
    "category": pl.Categorical,  # as torch writes it now: "cpu_op", "kernel", "cuda_runtime", "user_annotation", ...;
    # "collective_comm" is that of kernels that communicate without being described
    "name": pl.Categorical,
    "start_ns": pl.Int64,  # on the rank's own clock
    "duration_ns": pl.Int64,
    "depth": pl.UInt16,  # spans of its track around it; 0 is outermost
    "correlation": pl.Int64,  # of a runtime call and what it started on a device; null if none
    "op": pl.UInt32,  # row of `traced` of which it is the execution on the device (gloo: the run loop); null if none
}
"""Spans, sorted by track, then start, then the longest first: an enclosing span comes before its inner spans."""

SPAN_VALUES: dict[str, pl.DataType | type[pl.DataType]] = {
    "span": pl.UInt32,  # row of `spans`
    "name": pl.Categorical,  # as in the file: of a counter, or of an argument of a wait
    "value": pl.Float64,
}
"""Numbers that few spans hold: counters of a device (`cuda_profiler_range`), what a stream waits for (`cuda_sync`)."""
