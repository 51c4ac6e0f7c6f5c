"""Rows of `samples` from profiles of stacks; their stacks stand behind those of the dumps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from rankscope.assemble.gathering import RunChoice
from rankscope.assemble.operations import LaterStacks
from rankscope.assemble.rank_files import FileOwner, rank_files
from rankscope.assemble.sources import SourceFile
from rankscope.features.stacks.py_spy.thread_roles import rank_in
from rankscope.features.stacks.samples.model import StackProfile
from rankscope.schema.tables import SAMPLES


def add_samples(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], run: RunChoice) -> int:
    """Adds the profiles of the chosen attempt to `samples`, and their stacks; returns the number of ranks, 0 if no name
    has one."""
    chosen, pattern = run.attempt, run.pattern
    stacks = LaterStacks(tables)
    rows = list(_rows(sources, chosen, pattern, stacks))
    tables["samples"] = pl.DataFrame(rows, schema=SAMPLES, orient="row")
    tables["stacks"] = stacks.table()
    last = tables["samples"]["rank"].max()
    return 1 + last if isinstance(last, int) else 0


def _rows(
    sources: Sequence[SourceFile], chosen: int, pattern: re.Pattern[str] | None, stacks: LaterStacks
) -> Iterator[tuple[Any, ...]]:
    for place, source, content in rank_files(sources, StackProfile, chosen, pattern, lambda *_: FileOwner()):
        source.used = True
        titled = {pid: rank_in(command, "") for pid, command in content.commands.items()}
        several = len({row.pid for row in content.stacks}) > 1
        for row in content.stacks:
            number = stacks.number(content.frames[at] for at in row.frames)
            # of several processes, the name of the file can be the rank of none
            rank = titled.get(row.pid, None if several else source.rank) if row.pid is not None else source.rank
            if rank is None and not several:
                rank = source.rank
            yield rank, row.pid, row.thread, row.thread_id, number, row.times, place
