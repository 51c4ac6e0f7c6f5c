"""The lanes of traces with the collectives of one group, or of one operation, alone; what else ranks do stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.tui.letters import letter_number
from rankscope.tui.traces.activity import COMMUNICATION, MOVING, NOTHING, WAITING
from rankscope.tui.traces.cover import Cover
from rankscope.tui.traces.lanes import TraceLanes, covers

Mask = NDArray[np.bool_]


def narrowed(lanes: TraceLanes, group: int | None, letter: int | None) -> TraceLanes:
    """The lanes without collectives of other groups, and other operations; None stands for all.

    Only what communicates is worked out anew: the rest of the cover is taken as it is.
    """
    if group is None and letter is None:
        return lanes
    spans = lanes.spans
    moves = np.isin(spans.activity, list(COMMUNICATION))
    kept = moves & _wanted(lanes, group, letter)
    activity = np.where(moves & ~kept, NOTHING, spans.activity).astype(np.uint8)
    alone = replace(spans, activity=np.where(kept, activity, NOTHING).astype(np.uint8))
    cover, keys = covers(alone, lanes.strands, len(lanes.ranks), lanes.traces)
    columns = list(COMMUNICATION)
    key_of = lanes.key_of.copy()
    before = len(lanes.cover.bounds) - 1
    key_of[:, columns] = np.where(keys[:, columns] >= 0, keys[:, columns] + before, -1)
    return replace(lanes, spans=replace(spans, activity=activity), cover=_both(lanes.cover, cover), key_of=key_of)


def _wanted(lanes: TraceLanes, group: int | None, letter: int | None) -> Mask:
    """Of each span that communicates, whether it is of the group and the operation; of unknown ones the name tells."""
    traced, spans = lanes.dataset.traced, lanes.spans
    known, row = spans.op >= 0, np.maximum(spans.op, 0)
    out: Mask = np.ones(len(spans.op), np.bool_)
    if group is not None:
        of_group = (traced["group"] == group).fill_null(False).to_numpy()
        out &= known & (of_group[row] if len(of_group) else False)
    if letter is not None:
        names = traced["op"].cast(pl.String).to_list()
        of_row = np.array([letter_number(name) == letter for name in names], np.bool_)
        by_name = np.isin(spans.activity, (MOVING + letter, WAITING + letter))
        out &= np.where(known, of_row[row] if len(of_row) else False, by_name)
    return out


def _both(one: Cover, other: Cover) -> Cover:
    """A cover with the keys of another behind its own."""
    return Cover(
        np.concatenate([one.bounds[:-1], other.bounds + len(one.start)]),
        np.concatenate([one.start, other.start]),
        np.concatenate([one.end, other.end]),
    )
