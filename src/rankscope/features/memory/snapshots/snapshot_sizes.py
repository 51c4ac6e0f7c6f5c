"""Sizes of a snapshot: of each device its segments, its peak, and the stacks that hold most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankscope.features.memory.snapshots.allocation_history import (
    ALLOC,
    FAILED,
    LOW,
    NO_ROW,
    AllocationLives,
    HistoryRows,
    LiveMemory,
)
from rankscope.features.memory.snapshots.allocation_stacks import AllocationStacks, stack_of
from rankscope.features.memory.snapshots.model import FailedRequest, Holes, MemorySnapshot, SnapshotDevice
from rankscope.features.memory.snapshots.segment_history import DumpSegment, holes_at
from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.matrices import Numbers

MOST_DEVICES = 1 << 10
MOST_ENTRIES, MOST_BLOCKS = 1 << 25, 1 << 22
"""Most entries and blocks: a pickle can name one list a million times."""
MOST_SIZE = 1 << 50
"""Largest size of a block or segment, in bytes."""
_HELD = {"active_allocated": True, "active_awaiting_free": False, "active_pending_free": False}
FEWEST_EVENTS = 2
"""Fewest entries of a history: torch keeps one where it records the state alone."""
_LATEST_US = 1 << 52
_ODD = "a memory snapshot with a segment or block that is none"


class LiveBlock(NamedTuple):
    """A block that is held at the dump."""

    address: int
    asked: int
    stack: Any


class SegmentSums:
    """Sums over the segments of one device."""

    def __init__(self) -> None:
        self.segments = self.reserved = self.allocated = self.pending = self.gaps = self.cached = self.largest = 0
        self.expandable: bool | None = None
        self.blocks: list[LiveBlock] = []
        self.places: list[DumpSegment] = []

    def add(self, segment: Mapping[str, Any]) -> None:
        """Adds a segment."""
        whole, grows = _size(segment.get("total_size")), segment.get("is_expandable") is True
        if "is_expandable" in segment:
            self.expandable = bool(self.expandable) or grows
        if whole and not segment.get("blocks"):
            # each segment has one free block at least
            raise TypeError
        self.segments += 1
        self.reserved += whole
        begin, free, live = segment.get("address") or 0, 0, False
        self.places.append(DumpSegment(begin & LOW, whole, grows))
        for block in segment.get("blocks") or ():
            size, state = _size(block.get("size")), block.get("state")
            if state in _HELD:
                live = True
                self._add_live(block, size, block.get("address", begin), _HELD[state])
            else:
                free += size
                self.largest = max(self.largest, size)
            begin += size
        if live:
            self.gaps += free
        else:
            self.cached += free

    def _add_live(self, block: Mapping[str, Any], size: int, address: int, allocated: bool) -> None:
        if allocated:
            self.allocated += size
        else:
            self.pending += size
        older = block["history"][0] if block.get("history") else block
        asked = older.get("real_size", block.get("requested_size", size))
        self.blocks.append(LiveBlock(address & LOW, _size(asked), stack_of(older)))


def snapshot_of(document: Mapping[str, Any], rows: HistoryRows) -> MemorySnapshot:
    """The content of a snapshot; entries of its history are rows already, or are added to them.

    Raises NotThisKindError where the document is none.
    """
    stacks, found = AllocationStacks(), MemorySnapshot()
    try:
        sums = _segment_sums(document.get("segments") or ())
        given = (document.get("device_traces") or [])[:MOST_DEVICES]
        if sum(map(len, given)) > MOST_ENTRIES:
            raise NotThisKindError(f"a memory snapshot of more than {MOST_ENTRIES:,} entries: refused")
        traces = [_rows_of(trace, rows) for trace in given]
        settings = document.get("allocator_settings") or {}
        grows = settings.get("expandable_segments") is True
    except (AttributeError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise NotThisKindError(_ODD) from error
    columns = _columns(rows)
    for device in sorted({*sums, *(place for place, trace in enumerate(traces) if len(trace))}):
        own = sums[device]
        if settings:
            own.expandable = bool(own.expandable) or grows
        trace = traces[device] if 0 <= device < len(traces) else np.empty(0, np.int64)
        found.devices.append(_device(device, own, trace, columns, rows, stacks))
    found.stacks, found.frames = stacks.largest(), list(stacks.frames)
    return found


def _segment_sums(segments: Iterable[Mapping[str, Any]]) -> defaultdict[int, SegmentSums]:
    sums: defaultdict[int, SegmentSums] = defaultdict(SegmentSums)
    count = 0
    for segment in segments:
        device = segment.get("device", 0)
        if type(device) is not int or not 0 <= device < MOST_DEVICES:
            raise TypeError
        count += len(segment.get("blocks") or ())
        if count > MOST_BLOCKS:
            raise NotThisKindError(f"a memory snapshot of more than {MOST_BLOCKS:,} blocks: refused")
        sums[device].add(segment)
    return sums


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MOST_SIZE:
        raise TypeError
    return value


def _rows_of(trace: Sequence[Any], rows: HistoryRows) -> Numbers:
    """The rows of the entries of a device: numbers of those that were handed over, else they are added."""
    numbers = np.array([entry if type(entry) is int else rows.add(entry) for entry in trace], np.int64)
    if len(numbers) and not NO_ROW <= numbers.min() <= numbers.max() < len(rows.actions):
        raise TypeError
    return numbers


class _Columns(NamedTuple):
    actions: npt.NDArray[np.uint8]
    addresses: Numbers
    sizes: Numbers
    times: Numbers

    def at(self, rows: Numbers) -> _Columns:
        """The columns of these rows."""
        return _Columns(self.actions[rows], self.addresses[rows], self.sizes[rows], self.times[rows])


def _columns(rows: HistoryRows) -> _Columns:
    sizes = np.array(rows.sizes, np.int64)
    if len(sizes) and not 0 <= sizes.min() <= sizes.max() <= MOST_SIZE:
        raise NotThisKindError(_ODD)
    actions = np.frombuffer(rows.actions, np.uint8)
    return _Columns(actions, np.array(rows.addresses, np.int64), sizes, np.array(rows.times, np.int64))


def _device(
    device: int, sums: SegmentSums, trace: Numbers, columns: _Columns, rows: HistoryRows, stacks: AllocationStacks
) -> SnapshotDevice:
    events = len(trace)
    is_recorded = events >= FEWEST_EVENTS
    trace = trace[trace != NO_ROW]
    own = columns.at(trace)
    blocks = np.array([block.address for block in sums.blocks], np.int64)
    asked = np.array([block.asked for block in sums.blocks], np.int64)
    lives = AllocationLives(own.actions, own.addresses, own.sizes, blocks, asked)
    place, failed = lives.peak(), np.flatnonzero(own.actions == FAILED)
    peak = lives.at(place)
    failure = lives.at(int(failed[-1])) if len(failed) else None
    for block, is_older in zip(sums.blocks, lives.older.tolist(), strict=True):
        early = block.asked if is_older else 0
        stacks.add(device, block.stack, early, early if failure is not None else 0, block.asked)
    for row, size in zip(trace[peak.rows].tolist(), own.sizes[peak.rows].tolist(), strict=True):
        stacks.add(device, rows.stacks[row], size, 0, 0)
    if failure is not None:
        for row, size in zip(trace[failure.rows].tolist(), own.sizes[failure.rows].tolist(), strict=True):
            stacks.add(device, rows.stacks[row], 0, size, 0)

    def holes(at: int, live: LiveMemory) -> Holes | None:
        """The holes at a moment of the history, with the blocks that live then."""
        known = np.concatenate([live.rows, live.orphans])
        held = (
            np.concatenate([own.addresses[known], blocks[lives.older]]),
            np.concatenate([own.sizes[known], asked[lives.older]]),
        )
        return holes_at(at, own.actions, own.addresses, own.sizes, sums.places, held)

    request = None
    if failure is not None:
        last = int(failed[-1])
        later = own.sizes[last + 1 :][own.actions[last + 1 :] == ALLOC]
        request = FailedRequest(
            int(own.sizes[last]), int(own.addresses[last]), failure.held, holes(last, failure), len(later),
            int(later.sum()), stacks.stack(rows.stacks[trace[last]]),
        )  # fmt: skip
    return SnapshotDevice(
        device, sums.segments, sums.reserved, sums.allocated, sums.pending, sums.gaps, sums.cached, sums.largest,
        sums.expandable, events, peak.held if is_recorded else None, *_times(own.times, place),
        peak.unknown if is_recorded else 0, len(failed), request, holes(place, peak) if is_recorded else None,
    )  # fmt: skip


def _times(times: Numbers, place: int) -> tuple[int | None, int | None]:
    """(time from the peak, the entry at `place`, to the last entry, and time of that one); None if nothing tells."""
    if not len(times) or not 0 < times[-1] < _LATEST_US:
        return None, None
    ago = 1_000 * int(times[-1] - times[max(0, place)])
    return (ago if 0 <= ago < 1 << 62 else None), 1_000 * int(times[-1])
