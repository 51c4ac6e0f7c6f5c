"""Rows of `samples` from profiles of stacks; their stacks stand behind those of the dumps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from rankscope import schema
from rankscope.assemble import file_names
from rankscope.assemble.operations import StackIds
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.contents import StackFrame
from rankscope.parsers.stack_samples.model import StackProfile


def add_samples(
    tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], chosen: int, pattern: re.Pattern[str] | None
) -> int:
    """Adds the profiles of the chosen attempt to `samples`, and their stacks; returns the number of ranks, 0 if no name
    has one."""
    before = tables.get("stacks", StackIds().table())
    highest = before["stack_id"].max()
    stacks: dict[tuple[StackFrame, ...], int] = {}
    rows = list(_rows(sources, max(0, chosen), pattern, 1 + highest if isinstance(highest, int) else 0, stacks))
    tables["samples"] = pl.DataFrame(rows, schema=dict(schema.SAMPLES), orient="row")
    frames = [(number, depth, *frame) for own, number in stacks.items() for depth, frame in enumerate(own)]
    tables["stacks"] = pl.concat([before, pl.DataFrame(frames, schema=dict(schema.STACKS), orient="row")])
    last = tables["samples"]["rank"].max()
    return 1 + last if isinstance(last, int) else 0


def _rows(
    sources: Sequence[SourceFile], chosen: int, pattern: re.Pattern[str] | None, first: int,
    stacks: dict[tuple[StackFrame, ...], int],
) -> Iterator[tuple[Any, ...]]:  # fmt: skip
    attempts = {s.directory: s.attempt for s in sources if s.attempt is not None}
    for place, source in enumerate(sources):
        content = source.content
        if not isinstance(content, StackProfile):
            continue
        option = file_names.rank_by(pattern, source.shown) if pattern is not None else None
        named = file_names.rank_of(source.shown) if file_names.says_rank(source.shown) else None
        source.rank = named if option is None else option
        source.rank_source = "option" if option is not None else None if named is None else "name"
        source.attempt = attempts.get(source.directory, chosen)
        source.used = source.attempt == chosen
        for row in content.stacks if source.used else ():
            own = tuple(content.frames[number] for number in row.frames)
            number = stacks.setdefault(own, first + len(stacks))
            yield source.rank, row.pid, row.thread, row.thread_id, number, row.times, place
