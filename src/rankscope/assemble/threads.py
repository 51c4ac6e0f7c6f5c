"""The table of threads, and their stacks behind those of the recorders."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import polars as pl

from rankscope import schema
from rankscope.assemble.operations import stack_table
from rankscope.assemble.py_spy_ranks import Seen
from rankscope.parsers.py_spy.roles import is_main


def thread_tables(
    seen: Sequence[Seen], places: dict[int, int], ops: pl.DataFrame, stacks: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The tables `threads` and `stacks`. `places` are rows of `files` by the identity of a source."""
    if not seen:
        return schema.empty(schema.THREADS), stacks
    ordered = sorted(seen, key=lambda s: places[id(s.source)])
    table, ids = stack_table([one.snapshot for one in ordered])
    beyond = 1 + max(
        (int(i) for i in (ops["stack_id"].max(), stacks["stack_id"].max()) if isinstance(i, int)), default=-1
    )
    table = table.with_columns((pl.col("stack_id") + beyond).cast(pl.UInt32))
    columns: dict[str, list[Any]] = {name: [] for name in schema.THREADS}
    numbers = ids.to_numpy()
    for one in ordered:
        count = len(one.snapshot.stacks)
        _append(columns, one, places[id(one.source)], (numbers[:count] + beyond).tolist())
        numbers = numbers[count:]
    threads = pl.DataFrame(columns, schema=dict(schema.THREADS))
    return threads.sort("rank", "written_ns", maintain_order=True, nulls_last=True), pl.concat([stacks, table])


def _append(columns: dict[str, list[Any]], seen: Seen, place: int, stack_ids: list[int]) -> None:
    snapshot, written = seen.snapshot, seen.written_ns
    threads, processes = snapshot.threads, snapshot.processes
    by_process: dict[str, list[Any]] = {
        "rank": [seen.rank_of(i) for i in range(len(processes))],
        "pid": [p.pid for p in processes],
        "parent_pid": [role.parent_pid for role in snapshot.roles],
        "command": [p.command for p in processes],
        "tool": [p.tool for p in processes],
        "written_ns": [None if written is None else written - p.later for p in processes],
    }
    for name, values in by_process.items():
        columns[name].extend(values[t.process] for t in threads)
    columns["file"].extend(repeat(place, len(threads)))
    columns["thread"].extend(t.name for t in threads)
    columns["thread_id"].extend(t.thread_id for t in threads)
    columns["is_main"].extend(is_main(t.name, t.thread_id, processes[t.process].pid) for t in threads)
    columns["active"].extend(t.active for t in threads)
    columns["gil"].extend(t.gil for t in threads)
    columns["stack_id"].extend(stack_ids[t.stack] for t in threads)
