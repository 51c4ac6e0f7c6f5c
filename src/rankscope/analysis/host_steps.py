"""Which host to look at next, as a command."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from rankscope.analysis.wording import ranks_text
from rankscope.schema import Dataset

MOST = 3
"""Ranks that are named one by one."""


def host_steps(dataset: Dataset, ranks: Sequence[int], question: str = "", native: bool = False) -> tuple[str, ...]:
    """What to collect of `ranks`: of those of which no py-spy dump is there; nothing where all have one."""
    seen = set(dataset.threads["rank"].drop_nulls().unique())
    left = [rank for rank in ranks if rank not in seen]
    if not left:
        return ()
    pids = [_process(dataset, rank) for rank in left[:MOST]]
    more = f"; the same of {ranks_text(left[MOST:])}" if left[MOST:] else ""
    command = f"py-spy dump {'--native ' if native else ''}--pid {' and '.join(pids)}{more}"
    return (f"{command}: {question}" if question else command,)


def _process(dataset: Dataset, rank: int) -> str:
    """The process of a rank: its id where a sidecar tells it, and whose it is."""
    mine = dataset.files.filter(pl.col("used") & (pl.col("rank") == rank))
    host, pid = (next(iter(mine[name].drop_nulls()), None) for name in ("host", "pid"))
    who = f"rank {rank}" + (f" on {host}" if host is not None else "")
    return f"{'PID' if pid is None else pid} ({who})"
