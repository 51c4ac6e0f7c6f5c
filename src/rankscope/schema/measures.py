"""Tables of what is measured beside operations: tensors, memory, parameters, compilations, stacks over time."""

from __future__ import annotations

import polars as pl

# Summaries of tensors.

SITES = ("collective", "p2p", "forward", "backward", "gradient", "parameter", "optimizer", "batch", "loss")
"""Where a tensor was recorded."""
Site = pl.Enum(SITES)
MOST_SAMPLES = 64
"""Places of a tensor at which its elements are sampled."""

TENSORS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "attempt": pl.UInt16,
    "step": pl.Int64,
    "micro": pl.Int32,  # micro batch; null if unknown
    "order": pl.Int64,  # program order in the rank
    "site": Site,
    "name": pl.Categorical,  # dotted name of the module or parameter; "" for collectives
    "occurrence": pl.Int32,  # k-th time in the step
    "slot": pl.Categorical,  # "in0", "out0"; "in0.1" is the second tensor of a list
    "slice": pl.Int32,  # member index of a slice of a gathered or scattered tensor; null if whole
    "group": pl.UInt32,  # row of `groups`
    "seq": pl.Int64,  # collective sequence number in the group, as in `ops`
    "op": pl.Categorical,  # "all_reduce", "all_gather", "reduce_scatter", "broadcast", "send", ...
    "reduce_op": pl.Categorical,  # "sum", "avg", "max", ...
    "root": pl.Int32,  # global rank
    "peer": pl.Int32,  # global rank
    "dtype": pl.Categorical,  # short name, as text.tensors has them: "f32", "bf16", "i64", "f8e4m3"
    "numel": pl.Int64,
    "shape": pl.List(pl.Int64),
    "offsets": pl.List(pl.Int64),  # of a shard in the whole tensor; null if it is whole
    "global_shape": pl.List(pl.Int64),
    "placements": pl.Categorical,  # of a DTensor: "S(0) R"
    "mesh": pl.Categorical,  # names of its dimensions
    "hash": pl.UInt64,  # linear over global indices: the hashes of shards add up to that of the whole
    "sum": pl.Float64,
    "l2": pl.Float64,
    "min": pl.Float64,
    "max": pl.Float64,
    "nan": pl.Int64,  # how many elements are NaN, infinite, zero; null if not counted
    "inf": pl.Int64,
    "zeros": pl.Int64,
    "projection": pl.Float64,  # sum with fixed random signs
    "samples": pl.Binary,  # elements at fixed places: little-endian float32 where that is exact, else float64
    "held": pl.UInt64,  # bit k: sample k is among `samples`
    "recompute": pl.Boolean,  # again, under activation checkpointing
    "stack_id": pl.UInt32,
    "file": pl.UInt32,  # row of `files`
    "line": pl.Int64,
    "md5": pl.String,  # hash that another tool wrote, with its kind: "crc32:0a1b2c3d", "l1:13.9"
    "tool": pl.Categorical,  # the other tool that wrote the row, whose statistics are rounded; null for the capture
}
"""One row for each summarised tensor, sorted by rank, then in the order of its file."""

# Memory of ranks.

MEMORY_SOURCES = ("capture", "log", "profiler")
"""Origin of a row: a sample of the capture, the message of an allocator that failed, an event in a trace."""
HOST = "host"
"""The device of memory of the host."""

MEMORY: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "host": pl.String,
    "device": pl.String,  # "cuda:3", "xpu:0", "npu:1", or `HOST`
    "time_ns": pl.Int64,  # null where nothing tells
    "step": pl.Int64,  # steps of optimizers before it; null where nothing tells
    # bytes; null where nothing tells
    "allocated": pl.Int64,  # in tensors
    "reserved": pl.Int64,  # that the allocator took from the device; of the host: that the process has there
    "peak": pl.Int64,  # the most so far of `allocated`, of the host of `reserved`
    "capacity": pl.Int64,  # of the device
    "free": pl.Int64,  # that nobody holds
    "used": pl.Int64,  # that this process holds, with memory that torch does not count
    "asked": pl.Int64,  # that could not be had
    "source": pl.Enum(MEMORY_SOURCES),
    "file": pl.UInt32,  # row of `files`
    "line": pl.Int64,
}
"""One row for each sample of one device of a rank, sorted by rank, device, then time."""

# Parameters of models.

LAYOUTS = ("whole", "sharded", "partial")
"""Share of a tensor that a rank holds: all of it, a part, or a summand that is not reduced."""
WRAPPERS = ("", "fsdp2", "fsdp1", "ddp", "zero", "megatron", "tp", "ignored", "other")
"""Wrapper that took a parameter; "tp" is a plan of DTensor, "ignored" one that was told to leave it, "" none."""

PARAMETERS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "name": pl.Categorical,  # dotted name, without the words of wrappers
    "shape": pl.List(pl.Int64),  # of the whole parameter
    "local": pl.List(pl.Int64),  # on this rank
    "dtype": pl.Categorical,  # as torch names it: "bfloat16"
    "requires_grad": pl.Boolean,
    "buffer": pl.Boolean,  # a buffer of the model, which nobody trains
    "device": pl.Categorical,  # "cuda:3", "cpu", "meta"
    "wrapper": pl.Enum(WRAPPERS),
    "placements": pl.Categorical,  # of a DTensor: "S(0) R"; "" for a plain tensor
    "mesh": pl.Categorical,  # its dimensions with their sizes: "dp 4 x tp 2"; "" without
    "layout": pl.Enum(LAYOUTS),
    "gradient": pl.Enum(LAYOUTS),  # layout of its gradient, of its optimizer state; null without
    "state": pl.Enum(LAYOUTS),
    "peers": pl.Int32,  # least rank of those that share meshes and groups with this one; null if it shares none
    "numel": pl.Int64,  # elements of the whole parameter
    "whole_bytes": pl.Int64,  # of the whole parameter
    # bytes on this rank
    "bytes": pl.Int64,
    "gradient_bytes": pl.Int64,
    "state_bytes": pl.Int64,
    "file": pl.UInt32,  # row of `files`
    "line": pl.Int64,
}
"""One row for each parameter and buffer of each rank, sorted by rank, then in the order of the model."""

# Compilations, and stacks over time.

COMPILATION_KINDS = ("compile", "recompile", "backward", "limit", "graph-break")
"""The first of a frame, a later one, that of its backward graph, the limit of them, a split of its graph."""

COMPILATIONS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,  # null where nothing tells
    "pid": pl.Int64,
    "what": pl.Enum(COMPILATION_KINDS),
    "compile_id": pl.String,  # "0/1": number of the frame in its process, and of its compilation; "" if not told
    "function": pl.String,
    "path": pl.String,  # of the function, or of the break
    "code_line": pl.Int64,
    "reason": pl.String,  # the guard that failed, or why the graph is split; "" if not told
    "start_ns": pl.Int64,  # of a line of a log, its time; null without a date
    "duration_ns": pl.Int64,  # null in logs, and for one that had not ended
    "is_open": pl.Boolean,  # it had begun, and its file does not see it end
    "hits": pl.Int64,  # lookups of caches of compiled code with and without result; null if not counted
    "misses": pl.Int64,
    "file": pl.UInt32,  # row of `files`: a structured log of the compiler, or a log
    "line": pl.Int64,
}
"""One row for each compilation of torch.compile and each graph break; logs hold only those that TORCH_LOGS prints."""

SAMPLES: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,  # null where the name of the file has none
    "pid": pl.Int64,
    "thread": pl.String,  # "MainThread"; "" if it has no name
    "thread_id": pl.Int64,
    "stack_id": pl.UInt32,  # rows of `stacks`
    "count": pl.Int64,  # how often it was seen, at equal distances in time
    "file": pl.UInt32,
}
"""One row for each distinct stack of each thread in a profile of stacks."""

# Snapshots of the memory of devices.

SNAPSHOTS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,  # null where the name of the file has none
    "file": pl.UInt32,
    "device": pl.Int32,
    "segments": pl.Int64,
    # bytes
    "reserved": pl.Int64,  # in segments
    "allocated": pl.Int64,  # in blocks that tensors hold
    "pending": pl.Int64,  # in blocks that are freed, and wait for a stream
    "gaps": pl.Int64,  # in free blocks of segments that are partly held
    "cached": pl.Int64,  # in segments without a held block
    "largest": pl.Int64,  # the largest free block
    "expandable": pl.Boolean,  # expandable_segments is set
    "events": pl.Int64,  # entries of the recorded history
    "peak": pl.Int64,  # most bytes that tensors held in it; null without one
    "ago_ns": pl.Int64,  # from that peak to the last entry
    "unknown": pl.Int64,  # bytes at the peak whose allocation is older than the history
    "failures": pl.Int64,  # failed requests
    "asked": pl.Int64,  # size of the last one
    "free": pl.Int64,  # bytes that the device had free then
}
"""One row for each device in each memory snapshot, sorted by rank, file, then device."""

ALLOCATIONS: dict[str, pl.DataType | type[pl.DataType]] = {
    "rank": pl.Int32,
    "file": pl.UInt32,
    "device": pl.Int32,
    "stack_id": pl.UInt32,  # rows of `stacks`; null if no stack was recorded
    "at_peak": pl.Int64,  # bytes, as the program asked for them
    "at_dump": pl.Int64,
    "blocks": pl.Int64,  # live allocations at the dump
}
"""One row for each stack that holds much memory in a memory snapshot, the largest first."""
