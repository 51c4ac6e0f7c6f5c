"""Rows of `snapshots` and `allocations` from memory snapshots; their stacks stand behind those of the dumps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from rankscope.assemble.gathering import RunChoice
from rankscope.assemble.operations import LaterStacks
from rankscope.assemble.rank_files import FileOwner, rank_files
from rankscope.assemble.sources import SourceFile
from rankscope.features.memory.snapshots.model import MemorySnapshot, SnapshotDevice
from rankscope.schema.tables import ALLOCATIONS, SNAPSHOTS


def add_snapshots(tables: dict[str, pl.DataFrame], sources: Sequence[SourceFile], run: RunChoice) -> int:
    """Adds the snapshots of the chosen attempt; returns the number of ranks, 0 if no name has one."""
    chosen, pattern = run.attempt, run.pattern
    stacks = LaterStacks(tables)
    devices: list[dict[str, Any]] = []
    held: list[tuple[Any, ...]] = []
    for place, source, content in rank_files(sources, MemorySnapshot, chosen, pattern, lambda *_: FileOwner()):
        source.used = True
        devices += [
            {"rank": source.rank, "file": place, **_device_row(device, content, stacks)} for device in content.devices
        ]
        held += _allocations(content, source.rank, place, stacks)
    found = pl.DataFrame(devices, schema=dict(SNAPSHOTS))
    tables["snapshots"] = found.sort("rank", "file", "device", nulls_last=True, maintain_order=True)
    tables["allocations"] = pl.DataFrame(held, schema=ALLOCATIONS, orient="row")
    tables["stacks"] = stacks.table()
    last = found["rank"].max()
    return 1 + last if isinstance(last, int) else 0


def _device_row(device: SnapshotDevice, content: MemorySnapshot, stacks: LaterStacks) -> dict[str, Any]:
    """Columns of `snapshots` of a device, but for its rank and file."""
    row = {name: value for name, value in device._asdict().items() if name in SNAPSHOTS}
    failure = device.last_failure
    if failure is not None:
        numbers = failure.frames
        row |= {
            "asked": failure.asked, "free": failure.free, "held_then": failure.held, "later": failure.later,
            "later_bytes": failure.later_bytes,
            "asked_by": stacks.number(content.frames[at] for at in numbers) if numbers else None,
        }  # fmt: skip
        if failure.holes is not None:
            row |= {f"{name}_then": value for name, value in failure.holes._asdict().items()}
    if device.peak_holes is not None:
        row |= {f"peak_{name}": getattr(device.peak_holes, name) for name in ("reserved", "gaps", "cached")}
    return row


def _allocations(
    content: MemorySnapshot, rank: int | None, place: int, stacks: LaterStacks
) -> Iterator[tuple[Any, ...]]:
    """Rows of `allocations` of one file."""
    for one in content.stacks:
        number = stacks.number(content.frames[at] for at in one.frames) if one.frames else None
        yield rank, place, one.device, number, one.at_peak, one.at_failure, one.at_dump, one.blocks
