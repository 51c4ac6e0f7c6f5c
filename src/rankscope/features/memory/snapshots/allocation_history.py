"""History of allocations of a device: columns of its entries, and the memory that lives at any of its moments.

Actions are those of `torch/cuda/memory.py`. torch keeps the newest entries only, so a block may be freed whose
allocation is not there.
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rankscope.features.memory.snapshots.allocation_stacks import stack_of
from rankscope.parsers.contents import NotThisKindError
from rankscope.parsers.matrices import Numbers

ALLOC, FREE, FAILED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP = range(7)
_ACTIONS = {
    "alloc": ALLOC, "free_completed": FREE, "oom": FAILED, "segment_alloc": SEGMENT_ALLOC,
    "segment_free": SEGMENT_FREE, "segment_map": SEGMENT_MAP, "segment_unmap": SEGMENT_UNMAP,
}  # fmt: skip
NO_ROW = -1
LOW = (1 << 62) - 1
"""Addresses are kept below this, so that their sums with sizes are whole numbers of 64 bits."""
_NEVER = np.iinfo(np.int64).max


class HistoryRows:
    """Columns of entries of all devices, in the order in which they are added."""

    def __init__(self) -> None:
        self.actions = bytearray()
        self.addresses, self.sizes, self.times = array("q"), array("q"), array("q")
        """Of a failed request the address is the number of free bytes."""
        self.stacks: list[Any] = []
        """None for memory that is freed, and for segments."""

    def add(self, entry: Any) -> int:
        """The number of a new row, NO_ROW for an action that changes nothing. Raises NotThisKindError for a value that
        is no entry."""
        try:
            action = _ACTIONS.get(entry["action"])
            if action is None:
                return NO_ROW
            place = entry["addr"] if action != FAILED else entry.get("device_free", 0)
            self.addresses.append(place & LOW)
            self.sizes.append(entry["size"])
            self.times.append(entry.get("time_us", 0))
        except (AttributeError, KeyError, TypeError, OverflowError) as error:
            raise NotThisKindError("a memory snapshot with an entry of its history that is none") from error
        self.stacks.append(stack_of(entry) if action in (ALLOC, FAILED) else None)
        self.actions.append(action)
        return len(self.actions) - 1


class LiveMemory(NamedTuple):
    """Memory that is held at one moment of a history."""

    held: int
    """Bytes."""
    rows: Numbers
    """Indices of allocations of the history that live then."""
    orphans: Numbers
    """Indices of later frees, of memory that was allocated before the history begins."""
    unknown: int
    """Bytes of these: by whom is not known."""


class AllocationLives:
    """Begin and end of each allocation of the history of a device.

    All arrays have one dimension: the first three one value for each entry, `blocks` and `held` the addresses and sizes
    of the blocks that live at the dump.
    """

    def __init__(
        self, actions: npt.NDArray[np.uint8], addresses: Numbers, sizes: Numbers, blocks: Numbers, held: Numbers
    ) -> None:
        at = np.flatnonzero((actions == ALLOC) | (actions == FREE))
        order = at[np.argsort(addresses[at], kind="stable")]
        same = addresses[order][1:] == addresses[order][:-1]
        begins = actions[order] == ALLOC
        self._sizes, self._ends = sizes, np.full(len(actions), _NEVER, np.int64)
        self._ends[order[:-1][same]] = order[1:][same]
        self._allocs = allocs = order[begins]
        self._orphans = orphans = order[np.append(True, ~same)[: len(order)] & ~begins]
        self.older: npt.NDArray[np.bool_] = ~np.isin(blocks, addresses[allocs[self._ends[allocs] == _NEVER]])
        """Of the blocks of the dump: allocated before the history begins."""
        self._base = int(sizes[orphans].sum() + held[self.older].sum())
        deltas = np.zeros(len(actions) + 1, np.int64)
        np.add.at(deltas, allocs, sizes[allocs])
        closed = allocs[self._ends[allocs] != _NEVER]
        np.subtract.at(deltas, self._ends[closed], sizes[closed])
        np.subtract.at(deltas, orphans, sizes[orphans])
        self._running = self._base + np.cumsum(deltas[:-1])

    def peak(self) -> int:
        """The index of the entry after which most is held; -1 for the begin of the history."""
        running = self._running
        return int(np.argmax(running)) if len(running) and running.max() > self._base else -1

    def at(self, place: int) -> LiveMemory:
        """The memory that is held behind the entry with this index; -1 for the begin of the history."""
        alive = self._allocs[(self._allocs <= place) & (self._ends[self._allocs] > place)]
        orphans = self._orphans[self._orphans > place]
        held = self._base if place < 0 else int(self._running[place])
        return LiveMemory(held, alive, orphans, int(self._sizes[orphans].sum()))
