"""The rows of the lanes of traces: ranks that look nearly alike share one, an unfolded rank has several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankscope.features.traces.page.lanes import KINDS, TraceLanes, activities_of
from rankscope.features.traces.page.trace_cells import Asked
from rankscope.tui.letters import Codes

FOLDED, SINGLE, PARTS, STRANDS = range(4)
"""Levels of unfolding: a row that others may share, a row of its own, a row for each of host, compute, communication
and memory, or one for each thread and stream."""
ALIKE = 0.08
"""Ranks share a row where at most this share of their cells differs."""


class Row(NamedTuple):
    """A row of the screen."""

    lanes: tuple[int, ...]
    """Lanes of the ranks that share it, the drawn one first."""
    kind: str = ""
    """One of KINDS; "" for all activities of a rank, or a strand."""
    strand: int = -1
    """Index in `TraceLanes.strands`."""
    first: bool = True
    """Whether it is the first row of its rank."""


def asked(lanes: TraceLanes, row: Row) -> Asked:
    """The activities that a row shows."""
    if row.strand >= 0:
        return Asked(len(lanes.ranks) + row.strand)
    return Asked(row.lanes[0], activities_of(row.kind)) if row.kind else Asked(row.lanes[0])


def parts_of(lanes: TraceLanes, lane: int) -> list[Row]:
    """The rows of a rank unfolded to its parts."""
    kinds = [kind for kind in KINDS if lanes.has(lane, kind) and (kind != "memory" or lanes.copies_much(lane))]
    return [Row((lane,), kind, first=at == 0) for at, kind in enumerate(kinds)] or [Row((lane,))]


def strands_of(lanes: TraceLanes, lane: int) -> list[Row]:
    """The rows of a rank unfolded to its threads and streams."""
    busy = [s for s in lanes.strands_of[lane] if (lanes.key_of[len(lanes.ranks) + s, 1:] >= 0).any()]
    return [Row((lane,), strand=s, first=at == 0) for at, s in enumerate(busy)] or [Row((lane,))]


def build_rows(
    lanes: TraceLanes, order: Sequence[int], levels: Mapping[int, int], codes: Codes | None, alone: frozenset[int]
) -> list[Row]:
    """The rows of lanes in `order`.

    `codes` are the cells of each lane of all ranks, by lane; without them no two share a row. Lanes in `alone` share no
    row.
    """
    out: list[Row] = []
    lead: int | None = None
    for lane in order:
        level = levels.get(lane, FOLDED)
        single = level == SINGLE or lane in alone
        if level in (PARTS, STRANDS):
            out += parts_of(lanes, lane) if level == PARTS else strands_of(lanes, lane)
            lead = None
        elif lead is not None and codes is not None and not single and alike(codes[lead], codes[lane]):
            out[-1] = out[-1]._replace(lanes=(*out[-1].lanes, lane))
        else:
            out.append(Row((lane,)))
            lead = None if single else lane
    return out


def alike(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> bool:
    """Whether two lanes look nearly alike."""
    return bool((one != other).mean() <= ALIKE) if len(one) else True
