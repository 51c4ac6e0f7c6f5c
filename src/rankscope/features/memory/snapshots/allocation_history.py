"""History of allocations of a device: columns of its entries, and the moment at which most memory was held.

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

ALLOC, FREE, FAILED = range(3)
_ACTIONS = {"alloc": ALLOC, "free_completed": FREE, "oom": FAILED}
NO_ROW = -1
_LOW = (1 << 63) - 1
_NEVER = np.iinfo(np.int64).max


class HistoryRows:
    """Columns of entries of all devices, in the order in which they are added."""

    def __init__(self) -> None:
        self.actions = bytearray()
        self.addresses, self.sizes, self.times = array("q"), array("q"), array("q")
        """Of a failed request the address is the number of free bytes."""
        self.stacks: list[Any] = []
        """None for memory that is freed."""

    def add(self, entry: Any) -> int:
        """The number of a new row, NO_ROW for an action that changes nothing. Raises NotThisKindError for a value that
        is no entry."""
        try:
            action = _ACTIONS.get(entry["action"])
            if action is None:
                return NO_ROW
            place = entry["addr"] if action != FAILED else entry.get("device_free", 0)
            self.addresses.append(place & _LOW)
            self.sizes.append(entry["size"])
            self.times.append(entry.get("time_us", 0))
        except (AttributeError, KeyError, TypeError, OverflowError) as error:
            raise NotThisKindError("a memory snapshot with an entry of its history that is none") from error
        self.stacks.append(None if action == FREE else stack_of(entry))
        self.actions.append(action)
        return len(self.actions) - 1


class HistoryPeak(NamedTuple):
    """The moment of a history at which most bytes were held."""

    held: int
    place: int
    """Index of its entry among those of the device; -1 for its begin."""
    rows: Numbers
    """Indices of allocations of the history that live then."""
    older: npt.NDArray[np.bool_]
    """Of the blocks of the dump: allocated before the history begins."""
    unknown: int
    """Bytes that were allocated before the history begins, and are freed behind this moment."""


def find_peak(
    actions: npt.NDArray[np.uint8], addresses: Numbers, sizes: Numbers, blocks: Numbers, held: Numbers
) -> HistoryPeak:
    """The peak of a history, with addresses and sizes of the blocks that live at the dump.

    All arrays have one dimension: the first three one value for each entry, the others one for each block.
    """
    at = np.flatnonzero((actions == ALLOC) | (actions == FREE))
    order = at[np.argsort(addresses[at], kind="stable")]
    same = addresses[order][1:] == addresses[order][:-1]
    begins = actions[order] == ALLOC
    ends = np.full(len(actions), _NEVER, np.int64)
    ends[order[:-1][same]] = order[1:][same]
    allocs = order[begins]
    first = np.append(True, ~same)[: len(order)]
    orphans = order[first & ~begins]
    older = ~np.isin(blocks, addresses[allocs[ends[allocs] == _NEVER]])
    base = int(sizes[orphans].sum() + held[older].sum())
    deltas = np.zeros(len(actions) + 1, np.int64)
    np.add.at(deltas, allocs, sizes[allocs])
    closed = allocs[ends[allocs] != _NEVER]
    np.subtract.at(deltas, ends[closed], sizes[closed])
    np.subtract.at(deltas, orphans, sizes[orphans])
    running = base + np.cumsum(deltas[:-1])
    place = int(np.argmax(running)) if len(running) and running.max() > base else -1
    alive = allocs[(allocs <= place) & (ends[allocs] > place)]
    most = base if place < 0 else int(running[place])
    return HistoryPeak(most, place, alive, older, int(sizes[orphans[orphans > place]].sum()))
