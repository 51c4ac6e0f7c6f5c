"""Content of a memory snapshot: sizes of each device, and the stacks that hold most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rankscope.parsers.contents import StackFrame


class Holes(NamedTuple):
    """Use of the reserved memory at a moment, in bytes."""

    reserved: int
    gaps: int
    """Free, in segments that are partly held."""
    cached: int
    """In segments without a held block."""
    largest: int
    """The largest free piece."""


class FailedRequest(NamedTuple):
    """The last request of a history that found no memory, and what was held at that moment; sizes are bytes."""

    asked: int
    free: int
    """Of the device, by its driver."""
    held: int
    """In tensors."""
    holes: Holes | None
    """Use of the reserved memory; None where the history does not tell."""
    later: int
    """Allocations behind it in the history: the program went on."""
    later_bytes: int
    frames: tuple[int, ...]
    """Indices into `MemorySnapshot.frames`: who asked."""


class SnapshotDevice(NamedTuple):
    """Memory of one device; sizes are bytes."""

    device: int
    segments: int
    reserved: int
    """Sum of all segments."""
    allocated: int
    """In blocks that tensors hold."""
    pending: int
    """In blocks that are freed, and wait for a stream."""
    gaps: int
    """In free blocks of segments that are partly held: no other process or size class can have them."""
    cached: int
    """In segments without any held block: `empty_cache` gives them back."""
    largest: int
    """The largest free block."""
    expandable: bool | None
    """Segments can grow: `expandable_segments` is set; None in snapshots of a torch that has no such segments."""
    events: int
    """Entries of its recorded history."""
    peak: int | None
    """Most bytes that tensors held in the history; None without a history of several entries."""
    ago_ns: int | None
    """Time from that peak to the last entry; None in snapshots without times."""
    end_ns: int | None
    """Time of that entry since the epoch."""
    unknown: int
    """Bytes at the peak that were allocated before the history begins, and freed in it."""
    failures: int
    """Failed requests in the history."""
    last_failure: FailedRequest | None
    peak_holes: Holes | None
    """Use of the reserved memory at the peak; None where the history does not tell."""


class HeldStack(NamedTuple):
    """Memory that was allocated by one stack."""

    device: int
    frames: tuple[int, ...]
    """Indices into `MemorySnapshot.frames`, innermost first; () if no stack was recorded."""
    at_peak: int
    """Bytes, as the program asked for them."""
    at_failure: int
    """At the last failed request; 0 without one."""
    at_dump: int
    blocks: int
    """Live allocations at the dump."""


@dataclass
class MemorySnapshot:
    """One snapshot of one process."""

    devices: list[SnapshotDevice] = field(default_factory=list)
    frames: list[StackFrame] = field(default_factory=list)
    stacks: list[HeldStack] = field(default_factory=list)
    """Stacks that held most at the peak or at the dump, of each device the largest first."""
    problem: str | None = None

    @property
    def rows(self) -> int:
        """Number of entries of its history."""
        return sum(one.events for one in self.devices)

    def header(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return {
            "devices": [_values(one) for one in self.devices], "frames": [list(one) for one in self.frames],
            "stacks": [list(one) for one in self.stacks], "problem": self.problem,
        }  # fmt: skip

    def body(self) -> list[memoryview]:
        """Nothing: a snapshot has few rows here."""
        return []


def snapshot_from(header: dict[str, Any], *_: object) -> MemorySnapshot:
    """The snapshot whose `header()` this is."""
    return MemorySnapshot(
        [_device(one) for one in header["devices"]],
        [StackFrame(*one) for one in header["frames"]],
        [HeldStack(device, tuple(frames), *rest) for device, frames, *rest in header["stacks"]],
        header["problem"],
    )


def _values(row: Any) -> Any:
    """A row with those in it as lists."""
    return [_values(value) for value in row] if isinstance(row, tuple) else row


def _device(values: Sequence[Any]) -> SnapshotDevice:
    *sizes, failure, peak = values
    if failure is not None:
        asked, free, held, holes, later, later_bytes, frames = failure
        failure = FailedRequest(asked, free, held, holes and Holes(*holes), later, later_bytes, tuple(frames))
    return SnapshotDevice._make([*sizes, failure, peak and Holes(*peak)])
