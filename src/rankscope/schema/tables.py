"""Tables of a job: what a row of each is, and type, unit, meaning and content of each column."""

from __future__ import annotations

from dataclasses import dataclass, fields

import polars as pl

from rankscope.schema.table import Column, Table

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

_SIZES = Column(
    pl.String,
    'JSON text: "[[64,32]]"; not categorical: a process never forgets a category, and sizes may be others in every '
    "step",
    holds="ours",
)


def _bytes(about: str) -> Column:
    return Column(pl.Int64, f"bytes; {about}", unit="bytes")


OPS = Table(
    "ops",
    "One row for each operation of each rank, sorted by rank, then in the order of issue.",
    source=Source,
    file=Column(pl.UInt32, "row of `files`"),
    attempt=pl.UInt16,
    rank=pl.Int32,
    host=Column(pl.Categorical, holds="host"),
    group=Column(pl.UInt32, "row of `groups`"),
    seq=Column(pl.Int64, "collective sequence number in the group; what joins ranks and sources"),
    p2p_seq=pl.Int64,
    op_id=pl.Int64,
    is_p2p=pl.Boolean,
    library=Column(pl.Categorical, '"nccl", "gloo", ...: what stood before the first \':\'', holds="text"),
    op=Column(pl.Categorical, '"all_reduce", "_all_gather_base", "send", "recv", "coalesced", ...', holds="text"),
    peer=Column(pl.Int32, "global rank at the other end of a send or recv; null if unknown"),
    coalesced=Coalesced,
    state=State,
    retired=pl.Boolean,
    created_ns=pl.Int64,
    started_ns=Column(pl.Int64, "when a CPU thread noticed, not when it happened"),
    completed_ns=pl.Int64,
    duration_ns=pl.Int64,
    **dict.fromkeys(("in_sizes", "out_sizes"), _SIZES),
    in_dtypes=Column(pl.Categorical, "JSON text: '[\"Float\"]'", holds="text"),
    out_dtypes=Column(pl.Categorical, holds="text"),
    stack_id=Column(pl.UInt32, "rows of `stacks`; null without one"),
    thread=Column(pl.Categorical, holds="text"),
    timeout_ms=pl.Int64,
    record_id=Column(pl.Int64, "counts per process over all groups; means nothing across ranks"),
)

GROUPS = Table(
    "groups",
    "One row for each process group, as one over all ranks, in the order of their ids.",
    group=pl.UInt32,
    name=Column(pl.String, holds="text"),
    description=Column(pl.String, 'the one most ranks give; "" if none', holds="text"),
    ranks=Column(pl.List(pl.Int32), "ordered: position = rank within the group"),
    membership=Membership,
    has_p2p=pl.Boolean,
)

STACKS = Table(
    "stacks",
    "One row for each frame of each distinct stack.",
    stack_id=pl.UInt32,
    depth=Column(pl.UInt16, "0 is innermost"),
    function=Column(pl.String, holds="text"),
    file=Column(pl.String, holds="path"),
    line=pl.Int64,
)

FRONTIERS = Table(
    "frontiers",
    "One row for each rank with a dump and each group that it has used or is a member of.",
    rank=pl.Int32,
    group=pl.UInt32,
    **dict.fromkeys(
        ("last_enqueued", "last_started", "last_completed"),
        Column(pl.Int64, "collective sequence numbers; null where neither pg_status nor entries can tell"),
    ),
    **dict.fromkeys(
        ("status_enqueued", "status_started", "status_completed"),
        Column(
            pl.Int64,
            "pg_status as written: on a group with point-to-point operations, and on gloo, it mixes counters",
        ),
    ),
    **dict.fromkeys(
        ("first_kept", "last_kept"),
        Column(pl.Int64, "collective sequence numbers of the entries that are there; null without entries"),
    ),
    wrapped=Column(pl.Boolean, "older entries were overwritten; null: unknown"),
    filtered=Filter,
)

FILES = Table(
    "files",
    "One row for each file of the job, with what was wrong with it.",
    file=pl.UInt32,
    path=Column(pl.String, 'as found below the given paths; "a.tar.gz!dumps/rank_0" inside an archive', holds="path"),
    kind=Column(pl.String, "one of kinds.input_kinds", holds="ours"),
    rank=pl.Int32,
    rank_source=RankSource,
    attempt=pl.UInt16,
    host=Column(pl.String, holds="host"),
    pid=Column(pl.Int64, "of the process that wrote it, as its sidecar says; null if unknown"),
    interval_ns=Column(pl.Int64, "time between two dumps of that process, as its sidecar says; null if unknown"),
    delay_ns=Column(pl.Int64, "the longest that one took or came late"),
    rows=Column(pl.UInt32, "operations, or threads"),
    version=Column(pl.String, "of the format", holds="text"),
    library_version=Column(pl.String, '"2.27.3"', holds="text"),
    mtime_ns=pl.Int64,
    size=Column(pl.Int64, "bytes on disk", unit="bytes"),
    wrapped=pl.Boolean,
    filtered=Filter,
    has_stacks=pl.Boolean,
    has_timing=Column(pl.Boolean, "start events were recorded"),
    has_status=Column(pl.Boolean, "pg_status is there"),
    recorder=Column(Recorder, "how the dump was made; null if unknown"),
    problem=Column(pl.String, "why it could not be read, or only in part; null if all is well", holds="text"),
    used=Column(pl.Boolean, "its rows are in `ops`, or in `threads`; `Dataset.dumps` are the former"),
)

ATTEMPTS = Table(
    "attempts",
    "One row for each run of the job, where its files tell runs apart.",
    attempt=Column(pl.UInt16, "0 is the oldest"),
    label=Column(pl.String, holds="path"),
    job=Column(pl.String, "the id of the job, as sidecars say, or its size where that tells jobs apart", holds="text"),
    started_ns=Column(pl.Int64, "start of its first process, else its first event"),
    newest_ns=Column(pl.Int64, "newest event of any of its dumps"),
    dumps=pl.UInt32,
)

MESSAGES = Table(
    "messages",
    "One row for each relevant line of a log, and for each sidecar that reports an end; sorted by file and offset.",
    time_ns=Column(pl.Int64, "null without a date; local times are taken for UTC"),
    resolution_ns=Column(pl.Int64, "1_000_000_000 for a stamp with seconds only; null without a stamp"),
    rank=Column(pl.Int32, "null if unknown"),
    host=Column(pl.String, holds="host"),
    pid=pl.Int64,
    file=pl.UInt32,
    offset=Column(pl.Int64, "of its first byte in the file, after unpacking"),
    line=Column(pl.Int64, "from 1"),
    severity=Column(pl.String, '"error", "warning", "info"', holds="ours"),
    kind=Column(pl.String, "one of kinds.event_kinds", holds="ours"),
    role=Column(
        pl.String,
        'of a known error: "root", "victim", "context", "noise"; "" for what is not in the table',
        holds="ours",
    ),
    pattern=Column(pl.String, 'id in the table of known errors; "" for what is not in it', holds="text"),
    group=Column(pl.UInt32, "row of `groups`; null where it names none or an unknown one"),
    text=Column(pl.String, holds="text"),
    values=Column(pl.String, "JSON object: what was read from it", holds="json"),
    torn=pl.Boolean,
)

SETTINGS = Table(
    "settings",
    "One row for each reported setting or version of a process.",
    rank=pl.Int32,
    host=Column(pl.String, holds="host"),
    pid=pl.Int64,
    name=Column(pl.String, '"NCCL_ALGO", "version:nccl", "version:torch", ...', holds="text"),
    value=Column(pl.String, holds="setting"),
    source=Column(
        pl.String, '"nccl", "c10d", "collect_env", "environ", "msprobe", "flight-recorder", "capture"', holds="ours"
    ),
    file=pl.UInt32,
    line=pl.Int64,
)
CODE_SOURCE = "capture"
"""Source of settings that tell the code of a process, from its sidecar."""
ENVIRONMENTS = ("environ", "msprobe")
"""Sources of settings that hold the whole environment: an absent variable is unset."""

COMMS = Table(
    "comms",
    "One row for each life of a communicator in one process.",
    group=Column(pl.UInt32, "row of `groups`: the communicator over all ranks; null if its members are unknown"),
    rank=pl.Int32,
    host=Column(pl.String, holds="host"),
    pid=pl.Int64,
    comm_rank=pl.Int32,
    size=Column(pl.Int32, "nranks, as the process was told"),
    device=pl.Int32,
    state=Column(
        pl.String,
        '"seen", "start", "complete", "finalized", "revoked", "aborting", "destroyed", "aborted"',
        holds="ours",
    ),
    identity=Column(pl.String, "commId, or parent, split and colour: equal on all ranks", holds="text"),
    started_ns=pl.Int64,
    completed_ns=pl.Int64,
    collectives=pl.Int64,
    version=Column(pl.String, holds="text"),
    file=pl.UInt32,
    line=Column(pl.Int64, "where it was initialised, or first seen"),
)

RAS = Table(
    "ras",
    "Rows of NCCL's RAS and Inspector about communicators and their ranks.",
    comm=Column(pl.String, holds="text"),
    group=pl.UInt32,
    rank=Column(pl.Int32, "in the communicator; null for the communicator itself"),
    host=Column(pl.String, holds="host"),
    pid=pl.Int64,
    device=pl.Int32,
    size=pl.Int32,
    present=pl.Int32,
    missing=pl.Int32,
    status=Column(pl.String, holds="text"),
    counts=Column(pl.String, "JSON object: how often it launched each kind of collective", holds="text"),
    source=Column(pl.String, '"ras", "inspector"', holds="ours"),
    answer=Column(pl.Int64, "number of the answer of RAS within its file: it may have been asked several times"),
    time_ns=Column(pl.Int64, "of the answer, as printed; null if it has none"),
    file=pl.UInt32,
    line=pl.Int64,
    text=Column(pl.String, holds="text"),
)

THREADS = Table(
    "threads",
    "One row for each thread of each sampled process: its stack at one moment. A process with several dumps "
    "has several rows, at different `written_ns`. For an earlier dump in the same file it is smaller by some "
    "nanoseconds: the order is known, the distance is not.",
    file=Column(pl.UInt32, "row of `files`: the py-spy dump, or a log in which the stack stands"),
    rank=Column(pl.Int32, "null if its process is unknown"),
    pid=Column(pl.Int64, "null where the stack does not tell it"),
    parent_pid=Column(pl.Int64, "null unless it is a subprocess of the rank: a data loader's worker"),
    command=Column(pl.String, 'the command line of the process; "" if unknown', holds="text"),
    process=Column(pl.UInt32, "number of the process in its file; null if it starts ranks or serves one"),
    thread=Column(pl.String, '"MainThread", "Thread-1"; "" if it has no name', holds="text"),
    thread_id=pl.Int64,
    is_main=pl.Boolean,
    active=Column(pl.Boolean, "running or runnable when it was sampled; null if not told"),
    gil=Column(pl.Boolean, "held the interpreter lock; null if not told"),
    stack_id=Column(pl.UInt32, "rows of `stacks`; a native frame has the library as its file and line 0"),
    written_ns=Column(pl.Int64, "modification time of the dump"),
    tool=Column(pl.String, 'what looked: "py-spy", "faulthandler", "pystack", AT_CRASH or AT_STANDSTILL', holds="ours"),
)

REPEATS = Table(
    "repeats",
    "One row for each earlier dump of a recorder; its newest dump is the used one.",
    rank=pl.Int32,
    file=Column(pl.UInt32, "row of `files`: the earlier dump"),
    written_ns=Column(pl.Int64, "when the earlier dump was written"),
    later_ns=Column(pl.Int64, "when the dump that is used was written"),
    progressed=Column(pl.Boolean, "an operation was issued, started or completed between the two"),
)

SAMPLES = Table(
    "samples",
    "One row for each distinct stack of each thread in a profile of stacks.",
    rank=Column(pl.Int32, "null where the name of the file has none"),
    pid=pl.Int64,
    thread=Column(pl.String, '"MainThread"; "" if it has no name', holds="text"),
    thread_id=pl.Int64,
    stack_id=Column(pl.UInt32, "rows of `stacks`"),
    count=Column(pl.Int64, "how often it was seen, at equal distances in time"),
    file=pl.UInt32,
)

COMPILATION_KINDS = ("compile", "recompile", "backward", "limit", "graph-break")
"""The first of a frame, a later one, that of its backward graph, the limit of them, a split of its graph."""

COMPILATIONS = Table(
    "compilations",
    "One row for each compilation of torch.compile and each graph break; logs hold only those that TORCH_LOGS prints.",
    rank=Column(pl.Int32, "null if unknown"),
    pid=pl.Int64,
    what=pl.Enum(COMPILATION_KINDS),
    compile_id=Column(
        pl.String, '"0/1": number of the frame in its process, and of its compilation; "" if not told', holds="ours"
    ),
    function=Column(pl.String, holds="text"),
    path=Column(pl.String, "of the function, or of the break", holds="path"),
    code_line=pl.Int64,
    reason=Column(
        pl.String, 'the guard that failed, the message of `error`, or why the graph is split; "" if none', holds="text"
    ),
    error=Column(pl.String, 'name of the exception that ended it; "" if none is told', holds="text"),
    start_ns=Column(pl.Int64, "of a line of a log, its time; null without a date"),
    duration_ns=Column(pl.Int64, "null in logs, and for one that had not ended"),
    is_open=Column(pl.Boolean, "it had begun, and its file does not see it end"),
    hits=Column(pl.Int64, "lookups of caches of compiled code with and without result; null if not counted"),
    misses=pl.Int64,
    file=Column(pl.UInt32, "row of `files`: a structured log of the compiler, or a log"),
    line=pl.Int64,
)

TRACED = Table(
    "traced",
    'One row for each operation in a profile, with the columns of `ops` and `source` "profiler"; sorted by file, then '
    "created_ns. They are separate because a window is cut out of the middle of a run: an operation outside of it is "
    "not missing. (group, seq, is_p2p) is the same collective as in `ops`; seq and comms_id are null if the trace "
    "lacks them. created_ns is the time of issue on the host, started_ns and completed_ns are of the execution; sizes "
    "are in elements.",
    **OPS.columns,
    comms_id=Column(pl.Int64, "hash of group, number and kind, the same on all members; null before torch 2.12"),
    in_splits=Column(
        pl.String,
        "of an all_to_all what goes to each member, in order, in rows or elements; JSON text: '[1,3]'; null if parts "
        "are equal, not told, or in a list that the profiler cuts",
        holds="ours",
    ),
    out_splits=Column(pl.String, "the same for what comes from each member", holds="ours"),
)

TRACK_KINDS = ("host", "compute", "communication", "memory")
"""Content of a row of a trace: a thread of a process, or a stream of a device by its work."""
DETAILS = ("collectives", "all")
"""Detail of a trace: its collectives and steps (the first paint), or everything."""

TrackKind = pl.Enum(TRACK_KINDS)
Detail = pl.Enum(DETAILS)

TRACES = Table(
    "traces",
    "One row for each window of a profiler: the part of one file about one process.",
    file=Column(pl.UInt32, "row of `files`; one rank may have several, one for each window of its profiler"),
    rank=pl.Int32,
    host=Column(pl.String, '"" if unknown', holds="host"),
    start_ns=Column(pl.Int64, "of the earliest and the end of the latest event, on the rank's own clock"),
    end_ns=pl.Int64,
    events=Column(pl.Int64, "read"),
    lost=Column(pl.Int64, "events that could not be read"),
    detail=Detail,
    backend=Column(pl.String, '"nccl", "gloo"; "" if not told', holds="text"),
    resolution_ns=Column(pl.Int64, "of its time stamps: 1, 250 or 1000"),
)

TRACKS = Table(
    "tracks",
    "One row for each thread or stream of a window that has spans.",
    track=pl.UInt32,
    file=Column(pl.UInt32, "row of `files` and of `traces`"),
    rank=pl.Int32,
    kind=TrackKind,
    device=Column(pl.Int32, "null on the host"),
    pid=Column(pl.Int64, "null on a device"),
    lane=Column(pl.Int64, "thread id, or stream"),
    name=Column(pl.String, '"thread 1234 (python)", "stream 7"; "" if it has none', holds="text"),
    order=Column(pl.Int32, "as the file sorts threads and streams"),
)

SPANS = Table(
    "spans",
    "Spans, sorted by track, then start, then the longest first: an enclosing span comes before its inner spans.",
    track=Column(pl.UInt32, "row of `tracks`"),
    category=Column(
        pl.Categorical,
        'as torch writes it now: "cpu_op", "kernel", "cuda_runtime", "user_annotation", ...; '
        '"collective_comm" is that of kernels that communicate without being described',
        holds="text",
    ),
    name=Column(pl.Categorical, holds="text"),
    start_ns=Column(pl.Int64, "on the rank's own clock"),
    duration_ns=pl.Int64,
    depth=Column(pl.UInt16, "spans of its track around it; 0 is outermost"),
    correlation=Column(pl.Int64, "of a runtime call and what it started on a device; null if none"),
    op=Column(
        pl.UInt32, "row of `traced` of which it is the execution on the device (gloo: the run loop); null if none"
    ),
)

SPAN_VALUES = Table(
    "span_values",
    "Numbers that few spans hold: counters of a device (`cuda_profiler_range`), what a stream waits for (`cuda_sync`), "
    "bytes and speed of copies and memsets.",
    span=Column(pl.UInt32, "row of `spans`"),
    name=Column(pl.Categorical, "as in the file: of a counter, or of an argument of a wait", holds="text"),
    value=pl.Float64,
)

SITES = ("collective", "p2p", "forward", "backward", "gradient", "parameter", "optimizer", "batch", "loss")
"""Where a tensor was recorded."""
Site = pl.Enum(SITES)
MOST_SAMPLES = 64
"""Places of a tensor at which its elements are sampled."""

TENSORS = Table(
    "tensors",
    "One row for each summarised tensor, sorted by rank, then in the order of its file.",
    rank=pl.Int32,
    attempt=pl.UInt16,
    step=pl.Int64,
    micro=Column(pl.Int32, "micro batch; null if unknown"),
    order=Column(pl.Int64, "program order in the rank"),
    site=Site,
    name=Column(pl.Categorical, 'dotted name of the module or parameter; "" for collectives', holds="text"),
    occurrence=Column(pl.Int32, "k-th time in the step"),
    slot=Column(pl.Categorical, '"in0", "out0"; "in0.1" is the second tensor of a list', holds="text"),
    slice=Column(pl.Int32, "member index of a slice of a gathered or scattered tensor; null if whole"),
    group=Column(pl.UInt32, "row of `groups`"),
    seq=Column(pl.Int64, "collective sequence number in the group, as in `ops`"),
    op=Column(pl.Categorical, '"all_reduce", "all_gather", "reduce_scatter", "broadcast", "send", ...', holds="text"),
    reduce_op=Column(pl.Categorical, '"sum", "avg", "max", ...', holds="text"),
    root=Column(pl.Int32, "global rank"),
    peer=Column(pl.Int32, "global rank"),
    dtype=Column(pl.Categorical, 'short name, as text.tensors has them: "f32", "bf16", "i64", "f8e4m3"', holds="text"),
    numel=pl.Int64,
    shape=pl.List(pl.Int64),
    offsets=Column(pl.List(pl.Int64), "of a shard in the whole tensor; null if it is whole"),
    global_shape=pl.List(pl.Int64),
    placements=Column(pl.Categorical, 'of a DTensor: "S(0) R"', holds="text"),
    mesh=Column(pl.Categorical, "names of its dimensions", holds="text"),
    hash=Column(pl.UInt64, "linear over global indices: the hashes of shards add up to that of the whole"),
    sum=pl.Float64,
    l2=pl.Float64,
    min=pl.Float64,
    max=pl.Float64,
    nan=Column(pl.Int64, "how many elements are NaN, infinite, zero; null if not counted"),
    inf=pl.Int64,
    zeros=pl.Int64,
    projection=Column(pl.Float64, "sum with fixed random signs"),
    samples=Column(pl.Binary, "elements at fixed places: little-endian float32 where that is exact, else float64"),
    held=Column(pl.UInt64, "bit k: sample k is among `samples`"),
    recompute=Column(pl.Boolean, "again, under activation checkpointing"),
    stack_id=pl.UInt32,
    file=Column(pl.UInt32, "row of `files`"),
    line=pl.Int64,
    md5=Column(pl.String, 'hash that another tool wrote, with its kind: "crc32:0a1b2c3d", "l1:13.9"', holds="text"),
    tool=Column(
        pl.Categorical,
        "the other tool that wrote the row, whose statistics are rounded; null for the capture",
        holds="ours",
    ),
)

MEMORY_SOURCES = ("capture", "log", "profiler")
"""Origin of a row: a sample of the capture, the message of an allocator that failed, an event in a trace."""
HOST = "host"
"""The device of memory of the host."""

MEMORY = Table(
    "memory",
    "One row for each sample of one device of a rank, sorted by rank, device, then time.",
    rank=pl.Int32,
    host=Column(pl.String, holds="host"),
    device=Column(pl.String, '"cuda:3", "xpu:0", "npu:1", or `HOST`', holds="ours"),
    time_ns=Column(pl.Int64, "null if unknown"),
    step=Column(pl.Int64, "steps of optimizers before it; null if unknown"),
    allocated=_bytes("null if unknown; in tensors"),
    reserved=_bytes(
        "null if unknown; that the allocator took from the device; of the host: that the process has there"
    ),
    peak=_bytes("null if unknown; the most so far of `allocated`, of the host of `reserved`"),
    capacity=_bytes("null if unknown; of the device"),
    free=_bytes("null if unknown; that nobody holds"),
    used=_bytes("null if unknown; that this process holds, with memory that torch does not count"),
    asked=_bytes("null if unknown; that could not be had"),
    samples=Column(pl.Int64, "null for one; that it stands for, as the fullest of its stretch"),
    source=pl.Enum(MEMORY_SOURCES),
    file=Column(pl.UInt32, "row of `files`"),
    line=pl.Int64,
)

SNAPSHOTS = Table(
    "snapshots",
    "One row for each device in each memory snapshot, sorted by rank, file, then device.",
    rank=Column(pl.Int32, "null where the name of the file has none"),
    file=pl.UInt32,
    device=pl.Int32,
    segments=pl.Int64,
    reserved=_bytes("in segments"),
    allocated=_bytes("in blocks that tensors hold"),
    pending=_bytes("in blocks that are freed, and wait for a stream"),
    gaps=_bytes("in free blocks of segments that are partly held"),
    cached=_bytes("in segments without a held block"),
    largest=_bytes("the largest free block"),
    expandable=Column(pl.Boolean, "expandable_segments is set; null where that torch has no such segments"),
    events=Column(pl.Int64, "entries of the recorded history"),
    peak=Column(pl.Int64, "most bytes that tensors held in it; null without one", unit="bytes"),
    ago_ns=Column(pl.Int64, "from that peak to the last entry"),
    end_ns=Column(pl.Int64, "time of the last entry; null in a history without times"),
    unknown=Column(pl.Int64, "bytes at the peak whose allocation is older than the history", unit="bytes"),
    failures=Column(pl.Int64, "failed requests"),
    asked=Column(pl.Int64, "size of the last one; null without one", unit="bytes"),
    asked_by=Column(pl.UInt32, "rows of `stacks`; null if no stack was recorded"),
    free=Column(pl.Int64, "bytes that the device had free then", unit="bytes"),
    held_then=Column(pl.Int64, "in tensors then", unit="bytes"),
    reserved_then=Column(pl.Int64, "in segments then; null where the history does not tell", unit="bytes"),
    gaps_then=Column(pl.Int64, "in free pieces of segments that were partly held then", unit="bytes"),
    cached_then=Column(pl.Int64, "in segments without a held block then", unit="bytes"),
    largest_then=Column(pl.Int64, "the largest free piece then", unit="bytes"),
    later=Column(pl.Int64, "allocations behind it in the history"),
    later_bytes=Column(pl.Int64, "sum of these", unit="bytes"),
    peak_reserved=Column(pl.Int64, "in segments at the peak; null where the history does not tell", unit="bytes"),
    peak_gaps=Column(pl.Int64, "in free pieces of segments that were partly held at the peak", unit="bytes"),
    peak_cached=Column(pl.Int64, "in segments without a held block at the peak", unit="bytes"),
)

ALLOCATIONS = Table(
    "allocations",
    "One row for each stack that holds much memory in a memory snapshot, the largest first.",
    rank=pl.Int32,
    file=pl.UInt32,
    device=pl.Int32,
    stack_id=Column(pl.UInt32, "rows of `stacks`; null if no stack was recorded"),
    at_peak=Column(pl.Int64, "bytes, as the program asked for them", unit="bytes"),
    at_failure=Column(pl.Int64, "at the last failed request; 0 without one", unit="bytes"),
    at_dump=Column(pl.Int64, unit="bytes"),
    blocks=Column(pl.Int64, "live allocations at the dump"),
)

LAYOUTS = ("whole", "sharded", "partial")
"""Share of a tensor that a rank holds: all of it, a part, or a summand that is not reduced."""
WRAPPERS = ("", "fsdp2", "fsdp1", "ddp", "zero", "megatron", "tp", "ignored", "other")
"""Wrapper that took a parameter; "tp" is a plan of DTensor, "ignored" one that was told to leave it, "" none."""

PARAMETERS = Table(
    "parameters",
    "One row for each parameter and buffer of each rank, sorted by rank, then in the order of the model.",
    rank=pl.Int32,
    name=Column(pl.Categorical, "dotted name, without the words of wrappers", holds="text"),
    shape=Column(pl.List(pl.Int64), "of the whole parameter"),
    local=Column(pl.List(pl.Int64), "on this rank"),
    dtype=Column(pl.Categorical, 'as torch names it: "bfloat16"', holds="text"),
    requires_grad=pl.Boolean,
    buffer=Column(pl.Boolean, "a buffer of the model, which nobody trains"),
    device=Column(pl.Categorical, '"cuda:3", "cpu", "meta"', holds="text"),
    wrapper=pl.Enum(WRAPPERS),
    placements=Column(pl.Categorical, 'of a DTensor: "S(0) R"; "" for a plain tensor', holds="text"),
    mesh=Column(pl.Categorical, 'its dimensions with their sizes: "dp 4 x tp 2"; "" without', holds="text"),
    layout=pl.Enum(LAYOUTS),
    gradient=Column(pl.Enum(LAYOUTS), "layout of its gradient, of its optimizer state; null without"),
    state=pl.Enum(LAYOUTS),
    peers=Column(pl.Int32, "least rank of those that share meshes and groups with this one; null if it shares none"),
    numel=Column(pl.Int64, "elements of the whole parameter"),
    whole_bytes=Column(pl.Int64, "of the whole parameter"),
    bytes=Column(pl.Int64, "bytes on this rank", unit="bytes"),
    gradient_bytes=Column(pl.Int64, "bytes on this rank"),
    state_bytes=Column(pl.Int64, "bytes on this rank"),
    file=Column(pl.UInt32, "row of `files`"),
    line=pl.Int64,
)

TRAINING = Table(
    "training",
    "One row for each value of a step in a log of a trainer, by file, in the order of its lines. Quantities that are "
    "no loss and have no name below keep only their first value, and those that are not finite.",
    file=Column(pl.UInt32, "row of `files`"),
    line=Column(pl.Int64, "from 1"),
    rank=Column(pl.Int32, "by the name of the file; null if unknown"),
    printer=Column(pl.Int32, "the number in front of its lines: a rank, a local rank or a task; null without one"),
    segment=Column(pl.UInt32, "counts the restarts of one series: its step goes back"),
    step=Column(pl.Int64, "null where the trainer does not print it"),
    name=Column(
        pl.String, '"loss", "grad_norm", "lr", "loss_scale", "step_s", "skipped", "nans", "overflow" (a loss scale '
        "after an overflow), else the raw name", holds="text",
    ),
    raw_name=Column(pl.String, holds="text"),
    value=pl.Float64,
    time_ns=Column(pl.Int64, "as printed, read as UTC; null if unknown"),
)  # fmt: skip


STEP_OPS = Table(
    "step_ops",
    "One row for each operation of a worker in a step, of a trace of steps; sorted by rank, step, then start_ns. Ranks "
    "that share a worker (tensor parallel) have one row.",
    rank=pl.Int32,
    replica=Column(pl.Int32, "rank in data parallel"),
    stage=Column(pl.Int32, "rank in pipeline parallel"),
    step=pl.Int64,
    kind=Column(pl.Categorical, '"forward-compute", "grads-reduce-scatter", ...', holds="ours"),
    start_ns=Column(pl.Int64, "on the clock of the trace, which may begin anywhere"),
    duration_ns=pl.Int64,
    number=Column(pl.Int64, "among those of its kind in the step of the worker"),
    chunk=Column(pl.Int64, "part of the model on the worker, and in the whole model; null where it has none"),
    model_chunk=pl.Int64,
    micro=Column(pl.Int64, "micro batch; null or negative where it has none"),
    length=Column(pl.Int64, "of the sequences of the micro batch; null where that is not recorded"),
    file=Column(pl.UInt32, "row of `files`"),
)

SCALARS = Table(
    "scalars",
    "One row for each value of each series, sorted by file, then in the order of the file.",
    attempt=pl.UInt16,
    segment=Column(pl.UInt32, "counts the restarts of one series: its step goes back"),
    rank=Column(pl.Int32, "null if unknown"),
    step=Column(pl.Int64, "null where the source does not tell it"),
    step_hi=Column(pl.Int64, "the last possible step where the printed one is rounded, else null"),
    name=Column(pl.String, "one of metric_names.NAMES, else the raw name", holds="text"),
    raw_name=Column(pl.String, holds="text"),
    value=pl.Float64,
    resolution=Column(pl.Float64, "half of the last printed digit; 0 for exact values"),
    time_ns=Column(pl.Int64, "as printed, read as UTC; null if unknown"),
    source=pl.Enum(("log", "tensorboard", "wandb", "json", "csv", "trackio")),
    file=Column(pl.String, holds="path"),
    line=Column(pl.Int64, "from 1; in binary files the number of the record"),
)
"""Training series of a run, from logs and the files of trackers: they are compared, and no table of a Dataset."""


@dataclass(frozen=True)
class JobTables:
    """The tables of one attempt of one job; those that nothing is given for are empty."""

    ops: pl.DataFrame = OPS.field()
    groups: pl.DataFrame = GROUPS.field()
    stacks: pl.DataFrame = STACKS.field()
    frontiers: pl.DataFrame = FRONTIERS.field()
    files: pl.DataFrame = FILES.field()
    attempts: pl.DataFrame = ATTEMPTS.field()
    messages: pl.DataFrame = MESSAGES.field()
    settings: pl.DataFrame = SETTINGS.field()
    comms: pl.DataFrame = COMMS.field()
    ras: pl.DataFrame = RAS.field()
    threads: pl.DataFrame = THREADS.field()
    repeats: pl.DataFrame = REPEATS.field()
    samples: pl.DataFrame = SAMPLES.field()
    compilations: pl.DataFrame = COMPILATIONS.field()
    traced: pl.DataFrame = TRACED.field()
    traces: pl.DataFrame = TRACES.field()
    tracks: pl.DataFrame = TRACKS.field()
    spans: pl.DataFrame = SPANS.field()
    span_values: pl.DataFrame = SPAN_VALUES.field()
    tensors: pl.DataFrame = TENSORS.field()
    memory: pl.DataFrame = MEMORY.field()
    snapshots: pl.DataFrame = SNAPSHOTS.field()
    allocations: pl.DataFrame = ALLOCATIONS.field()
    parameters: pl.DataFrame = PARAMETERS.field()
    training: pl.DataFrame = TRAINING.field()
    step_ops: pl.DataFrame = STEP_OPS.field()


TABLES: dict[str, Table] = {field.name: field.metadata["table"] for field in fields(JobTables)}
"""The declarations of these tables, by the names of their fields."""
