"""The table of threads, and their stacks behind those of the recorders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from rankscope import schema
from rankscope.parsers.assemble.claims import Seen
from rankscope.parsers.assemble.operations import stack_table
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
    numbers = [i + beyond for i in ids.to_list()]
    rows: list[dict[str, Any]] = []
    offset = 0
    for one in ordered:
        rows.extend(_rows(one, places[id(one.source)], numbers[offset : offset + len(one.snapshot.stacks)]))
        offset += len(one.snapshot.stacks)
    threads = pl.DataFrame(rows, schema=dict(schema.THREADS))
    return threads.sort("rank", "written_ns", maintain_order=True, nulls_last=True), pl.concat([stacks, table])


def _rows(seen: Seen, place: int, stack_ids: list[int]) -> list[dict[str, Any]]:
    processes = [
        {
            "file": place, "rank": seen.rank_of(i), "pid": p.pid, "parent_pid": seen.roles[i].parent_pid,
            "command": p.command,
            "written_ns": None if seen.source.mtime_ns is None else seen.source.mtime_ns - p.later,
        }
        for i, p in enumerate(seen.snapshot.processes)
    ]  # fmt: skip
    return [
        {
            **processes[t.process], "thread": t.name, "thread_id": t.thread_id,
            "is_main": is_main(t.name, t.thread_id, seen.snapshot.processes[t.process].pid),
            "active": t.active, "gil": t.gil, "stack_id": stack_ids[t.stack],
        }
        for t in seen.snapshot.threads
    ]  # fmt: skip
