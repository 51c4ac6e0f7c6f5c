"""Rows of `snapshots` and `allocations` from memory snapshots; their stacks stand behind those of the dumps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from rankscope.assemble.gathering import RunChoice
from rankscope.assemble.operations import LaterStacks
from rankscope.assemble.rank_files import FileOwner, rank_files
from rankscope.assemble.sources import SourceFile
from rankscope.features.memory.snapshots.model import MemorySnapshot
from rankscope.schema.tables import ALLOCATIONS, SNAPSHOTS


def add_snapshots(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], run: RunChoice) -> int:
    """Adds the snapshots of the chosen attempt; returns the number of ranks, 0 if no name has one."""
    chosen, pattern = run.attempt, run.pattern
    stacks = LaterStacks(tables)
    devices: list[tuple[Any, ...]] = []
    held: list[tuple[Any, ...]] = []
    for place, source, content in rank_files(sources, MemorySnapshot, chosen, pattern, lambda *_: FileOwner()):
        source.used = True
        devices += [(source.rank, place, *one) for one in content.devices]
        held += _allocations(content, source.rank, place, stacks)
    found = pl.DataFrame(devices, schema=SNAPSHOTS, orient="row")
    tables["snapshots"] = found.sort("rank", "file", "device", nulls_last=True, maintain_order=True)
    tables["allocations"] = pl.DataFrame(held, schema=ALLOCATIONS, orient="row")
    tables["stacks"] = stacks.table()
    last = found["rank"].max()
    return 1 + last if isinstance(last, int) else 0


def _allocations(
    content: MemorySnapshot, rank: int | None, place: int, stacks: LaterStacks
) -> Iterator[tuple[Any, ...]]:
    """Rows of `allocations` of one file."""
    for one in content.stacks:
        number = stacks.number(content.frames[at] for at in one.frames) if one.frames else None
        yield rank, place, one.device, number, one.at_peak, one.at_dump, one.blocks
