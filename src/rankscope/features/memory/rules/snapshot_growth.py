"""Growth between two snapshots of one device of one rank: which places of the program hold more in the later one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from rankscope.features.memory.rules.snapshot_holders import DeviceMemory, Lines, in_order

LEAST_SHARE, LEAST_BYTES = 0.001, 1 << 20
"""Least change of a place that is told: a share of what is in tensors, and bytes."""


class PlaceGrowth(NamedTuple):
    """Bytes that one place of the program holds at the dump, in the first and in the last snapshot."""

    lines: Lines
    """() for memory whose stack was not recorded."""
    before: int
    after: int
    blocks_before: int
    blocks: int
    """Live allocations, in the first and in the last snapshot."""

    @property
    def grown(self) -> int:
        """Bytes, negative for a place that holds less."""
        return self.after - self.before


class SnapshotGrowth(NamedTuple):
    """Two snapshots of one device: the first and the last of several."""

    first: DeviceMemory
    last: DeviceMemory
    snapshots: int
    """Number of snapshots of the device."""
    places: tuple[PlaceGrowth, ...]
    """Those that changed, by their growth, the largest first."""

    @property
    def apart_ns(self) -> int | None:
        """The time between the two; None if a history tells none."""
        begin, end = self.first.facts["end_ns"], self.last.facts["end_ns"]
        return None if begin is None or end is None else end - begin


def snapshot_growths(devices: Sequence[DeviceMemory]) -> tuple[SnapshotGrowth, ...]:
    """The growth of each device of which there are several snapshots, the largest first.

    Files of unknown ranks count as those of one process.
    """
    of_device: defaultdict[tuple[int | None, int], list[DeviceMemory]] = defaultdict(list)
    for device in devices:
        of_device[device.facts["rank"], device.facts["device"]].append(device)
    found = [_growth(in_order(rows)) for rows in of_device.values() if len(rows) > 1]
    return tuple(sorted(found, key=lambda one: one.first.facts["allocated"] - one.last.facts["allocated"]))


def _growth(devices: Sequence[DeviceMemory]) -> SnapshotGrowth:
    first, last = devices[0], devices[-1]
    before = {holder.lines: holder for holder in first.holders}
    after = {holder.lines: holder for holder in last.holders}
    least = max(LEAST_BYTES, LEAST_SHARE * max(first.facts["allocated"], last.facts["allocated"]))
    places = []
    for lines in dict.fromkeys((*before, *after)):
        old, new = before.get(lines), after.get(lines)
        place = PlaceGrowth(
            lines, old.at_dump if old else 0, new.at_dump if new else 0, old.blocks if old else 0,
            new.blocks if new else 0,
        )  # fmt: skip
        if abs(place.grown) >= least:
            places.append(place)
    return SnapshotGrowth(first, last, len(devices), tuple(sorted(places, key=lambda place: -place.grown)))
