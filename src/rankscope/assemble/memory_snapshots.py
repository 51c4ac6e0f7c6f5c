"""Rows of `snapshots` and `allocations` from memory snapshots; their stacks stand behind those of the dumps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from rankscope import schema
from rankscope.assemble import file_names
from rankscope.assemble.operations import StackIds
from rankscope.assemble.sources import SourceFile
from rankscope.parsers.contents import StackFrame
from rankscope.parsers.memory_snapshots.model import MemorySnapshot


def add_snapshots(
    tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], chosen: int, pattern: re.Pattern[str] | None
) -> int:
    """Adds the snapshots of the chosen attempt; returns the number of ranks, 0 if no name has one."""
    before = tables.get("stacks", StackIds().table())
    highest = before["stack_id"].max()
    ids = SnapshotStacks(1 + highest if isinstance(highest, int) else 0)
    attempts = {s.directory: s.attempt for s in sources if s.attempt is not None}
    devices: list[tuple[Any, ...]] = []
    held: list[tuple[Any, ...]] = []
    for place, source in enumerate(sources):
        content = source.content
        if not isinstance(content, MemorySnapshot):
            continue
        _place(source, pattern, attempts.get(source.directory, max(0, chosen)))
        source.used = source.attempt == max(0, chosen)
        if source.used:
            devices += [(source.rank, place, *one) for one in content.devices]
            held += ids.rows(content, source.rank, place)
    found = pl.DataFrame(devices, schema=dict(schema.SNAPSHOTS), orient="row")
    tables["snapshots"] = found.sort("rank", "file", "device", nulls_last=True, maintain_order=True)
    tables["allocations"] = pl.DataFrame(held, schema=dict(schema.ALLOCATIONS), orient="row")
    tables["stacks"] = pl.concat([before, ids.table()])
    last = found["rank"].max()
    return 1 + last if isinstance(last, int) else 0


def _place(source: SourceFile, pattern: re.Pattern[str] | None, attempt: int) -> None:
    """Fills in the rank, from the option or a name that calls it so, and the attempt."""
    option = file_names.rank_by(pattern, source.shown) if pattern is not None else None
    named = file_names.rank_of(source.shown) if file_names.says_rank(source.shown) else None
    source.rank = named if option is None else option
    source.rank_source = "option" if option is not None else None if named is None else "name"
    source.attempt = attempt


class SnapshotStacks:
    """Numbers of stacks, behind those of other tables."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._known: dict[tuple[StackFrame, ...], int] = {}

    def rows(self, content: MemorySnapshot, rank: int | None, place: int) -> list[tuple[Any, ...]]:
        """Rows of `allocations` of one file."""
        out = []
        for one in content.stacks:
            frames = tuple(content.frames[number] for number in one.frames)
            number = self._known.setdefault(frames, self._first + len(self._known)) if frames else None
            out.append((rank, place, one.device, number, one.at_peak, one.at_dump, one.blocks))
        return out

    def table(self) -> pl.DataFrame:
        """Rows of `stacks`."""
        rows = [(number, depth, *frame) for own, number in self._known.items() for depth, frame in enumerate(own)]
        return pl.DataFrame(rows, schema=dict(schema.STACKS), orient="row")
