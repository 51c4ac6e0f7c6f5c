"""Signatures of collectives: the properties in which two members must agree, by the rules of each operation.

NCCL and gloo see element counts and types, not shapes, so shapes with equal element counts match. The operation decides
which arguments may differ between members (torch.distributed documentation): all_to_all may be uneven everywhere, a
scatter has an input only at its source, a gather an output only at its destination, and a barrier carries nothing.
"""

from __future__ import annotations

from math import prod

import numpy as np
import orjson
import polars as pl

UNEVEN_OPS = ("all_to_all", "all_to_allv", "alltoall", "alltoall_base", "all_to_all_single")
"""Operations whose sizes cannot be compared between members."""
_INPUT_SIZED_OPS = (
    "all_reduce", "allreduce", "allreduce_coalesced", "broadcast", "_broadcast_oop", "reduce", "_reduce_oop",
    "all_gather", "_all_gather_base", "all_gather_into_tensor_coalesced", "allgather", "_allgather_base",
    "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "gather", "sparse_all_reduce",
)  # fmt: skip
_OUTPUT_SIZED_OPS = ("scatter",)
SAME_SIZE_OPS = (
    "all_reduce", "allreduce", "allreduce_coalesced", "_all_gather_base", "_allgather_base", "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced", "_reduce_scatter_base", "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced",
)  # fmt: skip
"""Operations that take one count for all members (ncclAllReduce, ncclAllGather and ncclReduceScatter of NCCL; torch
makes one call of each of them): members with other counts read or write beyond the end of a buffer, even if all finish.

The forms with lists (all_gather, reduce_scatter) are not among them: torch replaces uneven ones by broadcasts and
reduces of one root each (`_broadcast_oop`, `_reduce_oop`). An all_to_all may be uneven; gather and scatter are sends
and receives."""
SAME_SIZE_LIBRARIES = ("nccl", "nccl2", "ncclx", "rccl", "rcclx", "xccl", "mccl", "hccl", "bccl")
"""Libraries of that rule; gloo checks sizes itself, and what it marks as finished may have failed."""
UNTOLD_OPS = ("coalesced", "unknown")
"""Names that do not tell the operation."""

_ALIASES = {
    "_all_gather_base": "all_gather", "_allgather_base": "all_gather", "allgather": "all_gather",
    "_reduce_scatter_base": "reduce_scatter", "_broadcast_oop": "broadcast", "_reduce_oop": "reduce",
    "allreduce": "all_reduce", "alltoall": "all_to_all", "alltoall_base": "all_to_all",
    # names in a recorder and in the hook of torch 2.15
    "all_to_all_single": "all_to_all", "all_reduce_barrier": "barrier", "allreduce_coalesced": "all_reduce",
    "all_gather_into_tensor_coalesced": "all_gather", "reduce_scatter_tensor_coalesced": "reduce_scatter",
}  # fmt: skip
"""Names of calls that are one operation on the wire; members may mix them."""

ROOTED_OPS = ("broadcast", "reduce", "gather", "scatter")
"""Operations that one member may finish before another has joined."""

MOST_COMBINATIONS = 1 << 21
"""Most combinations of operation, sizes and types for a table of all combinations."""
MOST_NUMBERS = 1 << 62
"""Most combinations for which each combination has a number."""
KEY_COLUMNS = ["op", "in_sizes", "out_sizes", "in_dtypes", "out_dtypes"]
"""The columns of ops that make a signature."""


def with_signatures(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` of ops with their signatures; see `signatures`."""
    return rows.hstack(signatures(rows))


def signatures(rows: pl.DataFrame) -> pl.DataFrame:
    """The signatures of `rows`, which have KEY_COLUMNS: `key`, `elements`, `dtype` (null: not comparable), `rooted`.

    `key` is the operation on the wire, null for the closer of a coalesced group and for an unknown one; `rooted` is
    true if one member may finish before another has joined.
    """
    distinct, place = distinct_calls(rows)
    texts = distinct.select(pl.all().cast(pl.String))
    keys = [None if op in UNTOLD_OPS else wire_name(op) for op in texts["op"].to_list()]
    table = pl.DataFrame(
        [
            pl.Series("key", keys, dtype=pl.Categorical),
            pl.Series("rooted", [key in ROOTED_OPS for key in keys], dtype=pl.Boolean),
            pl.Series("elements", [_elements(*row[:3]) for row in texts.iter_rows()], dtype=pl.Int64),
            pl.Series("dtype", [_dtype(row[0], *row[3:]) for row in texts.iter_rows()], dtype=pl.Categorical),
        ]
    )
    return table.select(pl.all().gather(place))


def distinct_calls(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """The distinct values of `KEY_COLUMNS`, and the index of each row's value."""
    # local categories, released after use
    own = pl.Categorical(pl.Categories.random())
    columns = rows.select(KEY_COLUMNS).with_columns(pl.col(pl.String).cast(own)).select(pl.all().to_physical())
    # null comes after the largest
    sizes = [(top or 0) + 2 for top in columns.select(pl.all().max()).row(0)]
    if prod(sizes) > MOST_NUMBERS:
        code = rows.select(pl.struct(KEY_COLUMNS).rank("dense")).to_series().to_numpy().astype(np.int64)
    else:
        code = np.zeros(rows.height, np.int64)
        for column, size in zip(columns, sizes, strict=True):
            code *= size
            values = column.fill_null(size - 1) if column.null_count() else column
            np.add(code, values.to_numpy(), out=code, casting="unsafe")
    if prod(sizes) > MOST_COMBINATIONS:
        code = np.searchsorted(pl.Series(code).unique().sort().to_numpy(), code)
    # a row for each number that occurs, then its index: several times faster than a join
    row_of = np.full(int(code.max(initial=0)) + 1, -1, np.int64)
    row_of[code] = np.arange(rows.height)
    occurs = np.flatnonzero(row_of >= 0)
    place_of = np.zeros(len(row_of), np.uint32)
    place_of[occurs] = np.arange(len(occurs), dtype=np.uint32)
    return rows.select(KEY_COLUMNS)[row_of[occurs]], pl.Series(place_of[code], dtype=pl.UInt32)


def wire_name(op: str) -> str:
    """The name of the operation that must agree between members."""
    return _ALIASES.get(op, op)


def _elements(op: str | None, in_sizes: str | None, out_sizes: str | None) -> int | None:
    if op in _INPUT_SIZED_OPS:
        return element_count(in_sizes)
    return element_count(out_sizes) if op in _OUTPUT_SIZED_OPS else None


def _dtype(op: str | None, in_dtypes: str | None, out_dtypes: str | None) -> str | None:
    if op is None or op.endswith("barrier"):
        return None
    text = out_dtypes if op in _OUTPUT_SIZED_OPS else in_dtypes
    if text in (None, "", "[]", "null"):
        return None
    # one row for all tensors of a coalesced operation, or a row for each
    return text if text is None or "," not in text else once(text)


def once(dtypes: str) -> str:
    """A JSON list of equal types, reduced to one of them."""
    names = dtypes.strip("[]").split(",")
    return f"[{names[0].strip()}]" if len({name.strip() for name in names}) == 1 else dtypes


def element_count(sizes: str | None) -> int | None:
    """The number of elements in a JSON list of shapes; None if it is empty or no such list."""
    if not sizes or sizes == "[]":
        return None
    try:
        total: int = sum(prod(shape) for shape in orjson.loads(sizes))
    except (orjson.JSONDecodeError, TypeError):
        return None
    return min(total, 2**62)
