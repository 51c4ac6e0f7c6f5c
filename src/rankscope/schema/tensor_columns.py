"""Columns, dtypes and enums of the table of summaries of tensors."""

from __future__ import annotations

import polars as pl

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
    "samples": pl.Array(pl.Float64, MOST_SAMPLES),  # elements at fixed places, NaN where `held` has no bit
    "held": pl.UInt64,  # bit k: the row has sample k
    "recompute": pl.Boolean,  # again, under activation checkpointing
    "stack_id": pl.UInt32,
    "file": pl.UInt32,  # row of `files`
    "line": pl.Int64,
    "md5": pl.String,  # hash that another tool wrote
}
"""One row for each summarised tensor, sorted by rank, then in the order of its file."""
