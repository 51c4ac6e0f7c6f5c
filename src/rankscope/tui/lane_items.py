"""The items of lanes as arrays, cut from the frame: operations, and marks of absent ones between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.arrays import filled_array
from rankscope.analysis.logical_time import drawn_rows
from rankscope.schema import Dataset
from rankscope.tui.letters import Codes

Ints = NDArray[np.int64]
Array = NDArray[Any]
NO_GROUP = 2**32 - 1
"""The number for no group: it is -1 in the 32 bits of `Items`."""


@dataclass(frozen=True)
class Items:
    """The items of lanes, operations and marks of absent ones alike, sorted by lane, then by column.

    The arrays are of one length.
    """

    lane: NDArray[np.int32]
    col: NDArray[np.int32]
    code: Codes
    row: NDArray[np.int32]
    """Index into ops; -1 for a mark."""
    group: NDArray[np.int32]
    """-1 where there is none."""
    p2p: NDArray[np.bool_]
    seq: Ints
    created: Ints
    """Nanoseconds since the epoch; for a mark, the time when its peers issued it. -1 if not known."""
    reason: NDArray[np.uint8]
    """For a mark, its number in REASONS."""


Loose = dict[str, Array]
"""Items before they are sorted into lanes, in any order: `rank` instead of `lane`, and the other fields of `Items`."""


def operations(dataset: Dataset, codes: Codes, columns: Ints) -> Loose:
    """The operations that are drawn, with the code and the column of each row of ops."""
    ops = dataset.ops
    group = filled_array(ops["group"], NO_GROUP).astype(np.int32)
    # also for groups that the table of groups lacks
    group[(group < 0) | (group >= dataset.groups.height)] = -1
    every: Loose = {
        "rank": filled_array(ops["rank"], -1),
        "col": columns.astype(np.int32),
        "code": codes,
        "row": np.arange(ops.height, dtype=np.int32),
        "group": group,
        "p2p": filled_array(ops["is_p2p"], False),
        "seq": filled_array(ops["seq"], -1),
        "created": filled_array(ops["created_ns"], -1),
        "reason": np.zeros(ops.height, np.uint8),
    }
    drawn = drawn_rows(ops) & ops["rank"].is_not_null()
    return every if drawn.all() else _take(every, drawn.arg_true().to_numpy())


def in_lanes(marks: Loose, real: Loose, ranks: NDArray[np.int32]) -> Items:
    """Items with their lane, sorted by lane, then by column; in one column marks first, others in their order."""
    width = 1 + max(int(part["col"].max(initial=0)) for part in (marks, real))
    placed = _placed(real, ranks, width)
    if len(marks["col"]):
        before = _placed(marks, ranks, width)
        placed = {name: np.concatenate([before[name], placed[name]]) for name in placed}
    if (placed["place"][1:] < placed["place"][:-1]).any():
        placed = _take(placed, np.argsort(placed["place"], kind="stable"))
    del placed["place"], placed["rank"]
    return Items(**placed)


def _placed(part: Loose, ranks: NDArray[np.int32], width: int) -> Loose:
    """Items with their lane, and the place of each among all lanes."""
    rank = part["rank"]
    # the items of a rank stand together
    starts = np.flatnonzero(np.diff(rank, prepend=-2))
    lane = np.repeat(np.searchsorted(ranks, rank[starts]), np.diff(starts, append=len(rank)))
    return {**part, "lane": lane.astype(np.int32), "place": lane * width + part["col"]}


def _take(part: Loose, places: Array) -> Loose:
    return {name: values[places] for name, values in part.items()}
