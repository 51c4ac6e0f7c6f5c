"""Sizes of a snapshot: of each device its segments, its peak, and the stacks that hold most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankscope.features.memory.snapshots.allocation_history import FAILED, NO_ROW, HistoryPeak, HistoryRows, find_peak
from rankscope.features.memory.snapshots.allocation_stacks import AllocationStacks, stack_of
from rankscope.features.memory.snapshots.model import MemorySnapshot, SnapshotDevice
from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.matrices import Numbers

MOST_DEVICES = 1 << 10
MOST_ENTRIES, MOST_BLOCKS = 1 << 25, 1 << 22
"""Most entries and blocks: a pickle can name one list a million times."""
MOST_SIZE = 1 << 50
"""Largest size of a block or segment, in bytes."""
_HELD = {"active_allocated": True, "active_awaiting_free": False, "active_pending_free": False}
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
        self.expandable = False
        self.blocks: list[LiveBlock] = []

    def add(self, segment: Mapping[str, Any]) -> None:
        """Adds a segment."""
        self.segments += 1
        self.reserved += _size(segment.get("total_size"))
        self.expandable |= segment.get("is_expandable") is True
        begin, free, live = segment.get("address") or 0, 0, False
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
        self.blocks.append(LiveBlock(address & (1 << 63) - 1, _size(asked), stack_of(older)))


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
        own.expandable |= grows
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
    trace = trace[trace != NO_ROW]
    own = columns.at(trace)
    blocks = np.array([block.address for block in sums.blocks], np.int64)
    asked = np.array([block.asked for block in sums.blocks], np.int64)
    peak = find_peak(own.actions, own.addresses, own.sizes, blocks, asked)
    for block, older in zip(sums.blocks, peak.older.tolist(), strict=True):
        stacks.add(device, block.stack, block.asked if older else 0, block.asked)
    for number, size in zip(trace[peak.rows].tolist(), own.sizes[peak.rows].tolist(), strict=True):
        stacks.add(device, rows.stacks[number], size, 0)
    failed = np.flatnonzero(own.actions == FAILED)
    last = failed[-1] if len(failed) else None
    return SnapshotDevice(
        device, sums.segments, sums.reserved, sums.allocated, sums.pending, sums.gaps, sums.cached, sums.largest,
        sums.expandable, events, peak.held if events else None, _ago_ns(own.times, peak), peak.unknown, len(failed),
        None if last is None else int(own.sizes[last]), None if last is None else int(own.addresses[last]),
    )  # fmt: skip


def _ago_ns(times: Numbers, peak: HistoryPeak) -> int | None:
    """The time from the peak to the last entry; None if nothing tells."""
    if not len(times) or times[-1] <= 0:
        return None
    ago = 1_000 * int(times[-1] - times[max(0, peak.place)])
    return ago if 0 <= ago < 1 << 62 else None
