"""Segments of a device at a moment of its history, and the holes between the blocks that live in them.

They are those of the dump, with what the history tells of later segments undone. Sizes in a history are those that the
program asked for: the allocator rounds them up to 512 bytes, and in its large segments leaves less than 1 MiB unsplit
(`c10/cuda/CUDACachingAllocator.cpp`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rankscope.features.memory.snapshots.allocation_history import (
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
)
from rankscope.features.memory.snapshots.model import Holes
from rankscope.parsers.matrices import Numbers

ROUND = 512
UNSPLIT, LARGE = 1 << 20, 2 << 20
"""Most bytes behind a block of a large segment that stay with it, and least bytes of such a segment."""


class DumpSegment(NamedTuple):
    """A segment at the dump."""

    address: int
    size: int
    expandable: bool


def holes_at(
    place: int,
    actions: npt.NDArray[np.uint8],
    addresses: Numbers,
    sizes: Numbers,
    segments: Sequence[DumpSegment],
    live: tuple[Numbers, Numbers],
) -> Holes | None:
    """The holes behind the entry at `place` of a history, with addresses and sizes of what lives then.

    None where the history and the segments of the dump do not fit together, as where the entries of segments were not
    recorded.
    """
    starts, ends = _regions(place, actions, addresses, sizes, segments)
    if not len(starts):
        return None
    order = np.argsort(live[0], kind="stable")
    blocks, lengths = live[0][order], live[1][order]
    region = np.searchsorted(starts, blocks, "right") - 1
    if len(blocks) and (region.min() < 0 or (blocks + lengths > ends[region]).any()):
        return None
    if (blocks[1:] < (blocks + lengths)[:-1]).any():
        return None
    block_ends = np.minimum(blocks + (lengths + ROUND - 1) // ROUND * ROUND, ends[region])
    first = np.append(True, region[1:] != region[:-1])[: len(blocks)]
    before = np.where(first, starts[region], np.roll(block_ends, 1))
    last = np.append(first[1:], True)[: len(blocks)]
    tails = ends[region[last]] - block_ends[last]
    # behind a block: all but the free bytes in front of the first one of a segment
    is_large = np.concatenate([ends[region] - starts[region] > LARGE, (ends - starts)[region[last]] > LARGE])
    follows = np.concatenate([~first, np.ones(len(tails), bool)])
    free = np.maximum(np.concatenate([blocks - before, tails]), 0)
    free[is_large & follows & (free <= UNSPLIT)] = 0
    unused = np.delete(ends - starts, np.unique(region))
    largest = max(int(free.max(initial=0)), int(unused.max(initial=0)))
    return Holes(int((ends - starts).sum()), int(free.sum()), int(unused.sum()), largest)


def _regions(
    place: int, actions: npt.NDArray[np.uint8], addresses: Numbers, sizes: Numbers, segments: Sequence[DumpSegment]
) -> tuple[Numbers, Numbers]:
    """Begins and ends of the segments behind the entry at `place`; none where they contradict each other.

    Pieces of expandable segments that touch are one.
    """
    later = np.arange(len(actions)) > place
    taken = later & ((actions == SEGMENT_ALLOC) | (actions == SEGMENT_MAP))
    given = later & ((actions == SEGMENT_FREE) | (actions == SEGMENT_UNMAP))
    begins = np.concatenate([np.array([s.address for s in segments], np.int64), addresses[given], addresses[taken]])
    lengths = np.concatenate([np.array([s.size for s in segments], np.int64), sizes[given], sizes[taken]])
    signs = np.ones(len(begins), np.int64)
    signs[len(begins) - int(taken.sum()) :] = -1
    points, place_of = np.unique(np.concatenate([begins, begins + lengths]), return_inverse=True)
    steps = np.zeros(len(points), np.int64)
    np.add.at(steps, place_of[: len(begins)], signs)
    np.subtract.at(steps, place_of[len(begins) :], signs)
    cover = np.cumsum(steps)
    none = np.empty(0, np.int64)
    if len(cover) and not 0 <= cover.min() <= cover.max() <= 1:
        return none, none
    fixed = [s for s in segments if not s.expandable]
    whole = (actions == SEGMENT_ALLOC) | (actions == SEGMENT_FREE)
    edges = np.concatenate([
        np.array([s.address for s in fixed], np.int64), np.array([s.address + s.size for s in fixed], np.int64),
        addresses[whole], addresses[whole] + sizes[whole],
    ])  # fmt: skip
    held = np.flatnonzero(cover == 1)
    is_new = np.isin(points[held], edges) | np.append(True, np.diff(held) > 1)[: len(held)]
    first = np.flatnonzero(is_new)
    last = np.append(first[1:] - 1, len(held) - 1)[: len(first)]
    return points[held[first]], points[held[last] + 1]
