"""The rows of the screen: orders of the lanes, and ranks with equal cells folded into one row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.places import Places
from rankscope.schema import Dataset
from rankscope.tui.letters import Codes, find
from rankscope.tui.model import Model

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Rows:
    """Rows of the screen, each of one or more lanes."""

    order: Ints
    """Lanes in their order."""
    starts: Ints
    """Row i holds lanes `order[starts[i]:starts[i+1]]`."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    def lanes(self, row: int) -> Ints:
        """The lanes of a row."""
        found: Ints = self.order[self.starts[row] : self.starts[row + 1]]
        return found

    def leads(self, first: int, last: int) -> Ints:
        """The lane that stands for each of the rows from `first` up to `last`."""
        found: Ints = self.order[self.starts[first : min(last, len(self))]]
        return found

    def row_of(self, lane: int) -> int:
        """The row of a lane; 0 if it is in none."""
        place = np.flatnonzero(self.order == lane)
        return int(np.searchsorted(self.starts, place[0], side="right")) - 1 if len(place) else 0


def running_looks(codes: Codes, columns: NDArray[np.int32]) -> Hashes:
    """Sums of a hash of the look and the column of each item, with a 0 before the first.

    The difference of two sums identifies the items between them, so a window of a lane costs two look-ups.
    """
    with np.errstate(over="ignore"):
        mixed = _mix(codes.astype(np.uint64) + (columns.astype(np.uint64) << np.uint64(8)))
        return np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])


def _mix(values: Hashes) -> Hashes:
    """Spreads the bits of numbers (the finalizer of splitmix64, Steele et al. 2014)."""
    values = (values + np.uint64(0x9E3779B97F4A7C15)) & np.uint64(2**64 - 1)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def window_looks(
    sums: Hashes, columns: NDArray[np.int32], bounds: Ints, until: Ints, window: tuple[int, int]
) -> Hashes:
    """A number for each lane that identifies its look in the columns of `window` (first, one after the last)."""
    first, last = window
    low, high = bounds[:-1], bounds[1:]
    begin = find(columns, low, high, np.full(len(low), first))
    end = find(columns, low, high, np.full(len(low), last))
    gap = np.clip(until, first, last).astype(np.uint64)
    with np.errstate(over="ignore"):
        return sums[end] - sums[begin] + _mix(gap)


def cell_looks(cells: Codes) -> Hashes:
    """A number for each lane that identifies its cells."""
    with np.errstate(over="ignore"):
        weights = _mix(np.arange(cells.shape[1], dtype=np.uint64))
        looks: Hashes = _mix(cells.astype(np.uint64) + weights[None, :]).sum(axis=1, dtype=np.uint64)
    return looks


def fold(order: Ints, looks: Hashes, alone: NDArray[np.bool_]) -> Rows:
    """Neighbours in `order` with one look share a row; lanes in `alone` share no row."""
    if not len(order):
        return Rows(order, np.zeros(1, np.int64))
    look, apart = looks[order], alone[order]
    breaks = (look[1:] != look[:-1]) | apart[1:] | apart[:-1]
    return Rows(order, np.concatenate([[0], np.flatnonzero(breaks) + 1, [len(order)]]).astype(np.int64))


Ordering = Literal["rank", "distance", "group", "host", "stage", "alike"]

ORDERINGS: dict[Ordering, str] = {
    "rank": "by rank",
    "distance": "by distance from the root",
    "group": "by process group",
    "host": "by host",
    "stage": "by pipeline stage",
    "alike": "culprits first, then alike",
}
"""Orderings and their names."""


STAGE = "pp"
"""The name of the pipeline dimension in the mesh."""


def orderings(model: Model) -> list[Ordering]:
    """The possible orderings of these lanes: by stage only if the mesh has a pipeline."""
    mesh = model.analysis.mesh
    staged = mesh is not None and any(d.name == STAGE for d in mesh.dimensions)
    return [name for name in ORDERINGS if staged or name != "stage"]


def order_lanes(
    model: Model, ordering: Ordering, group: int | None, looks: Hashes, first: Sequence[frozenset[int]] = ()
) -> Ints:
    """Lanes in the given order; equal lanes are ordered by rank.

    `group` is the group under the cursor: ordered by group, the groups with as many members and the same name pattern
    follow each other. `looks` is a number for the look of each lane. Ordered by look, the ranks of each
    of the sets `first` come before the rest, and in each of these parts those that look alike stand together.
    """
    lanes = np.arange(len(model.ranks), dtype=np.int64)
    if ordering == "rank" or not len(lanes):
        return lanes
    if ordering == "distance":
        keys = _distances(model)
    elif ordering == "group":
        keys = _group_places(model, group)
    elif ordering == "stage":
        keys = _stages(model)
    elif ordering == "host":
        keys = _hosts(model)
    else:
        keys = first_seen(looks) + len(lanes) * _parts(model, first)
    return np.argsort(keys, kind="stable").astype(np.int64)


def _distances(model: Model) -> Ints:
    """Steps from each rank to the root that it waits for: culprits 0, ranks that wait for nobody last."""
    far = 2**31
    out = np.full(len(model.ranks), far, np.int64)
    for rank, chain in model.analysis.waits.items():
        if rank in model.lane_of:
            out[model.lane_of[rank]] = len(chain)
    for rank in model.analysis.culprits:
        if rank in model.lane_of:
            out[model.lane_of[rank]] = 0
    return out


def _group_places(model: Model, group: int | None) -> Ints:
    """Place of each rank's group that is like `group`; ranks in no such group come last."""
    far = 2**31
    out = np.full(len(model.ranks), far, np.int64)
    for place, ranks in enumerate(kindred(model.dataset, group)):
        for rank in ranks:
            lane = model.lane_of.get(rank)
            if lane is not None and out[lane] == far:
                out[lane] = place
    return out


def kindred(dataset: Dataset, group: int | None) -> list[tuple[int, ...]]:
    """The members of the groups that are like `group`: equal description and size.

    Descriptions that end in a number (mesh_3, TP_12) count as equal without it. Without a group, the smallest groups
    with at least two members count.
    """
    groups = [g for g in dataset.group_list if len(g.ranks) > 1]
    if not groups:
        return []
    known = [g for g in groups if g.id == group]
    chosen = known[0] if known else min(groups, key=lambda g: (len(g.ranks), g.id))
    same = [
        g.ranks for g in groups if len(g.ranks) == len(chosen.ranks) and stem(g.description) == stem(chosen.description)
    ]
    return sorted(same)


def stem(description: str) -> str:
    """A description without the number at its end, which differs between groups of one kind."""
    return description.rstrip("0123456789")


def _hosts(model: Model) -> Ints:
    """The place of each rank's host among all hosts by name; unknown ones come last."""
    hosts = Places(model.dataset).hosts
    names = sorted(set(hosts.values()))
    place = {name: at for at, name in enumerate(names)}
    return np.array([place.get(hosts.get(rank, ""), len(names)) for rank in model.ranks.tolist()], np.int64)


def _stages(model: Model) -> Ints:
    """The pipeline stage of each rank by the mesh; ranks without one come last."""
    far = 2**31
    stages = (model.analysis.mesh.along(STAGE) if model.analysis.mesh else None) or {}
    return np.array([stages.get(rank, far) for rank in model.ranks.tolist()], np.int64)


def _parts(model: Model, first: Sequence[frozenset[int]]) -> Ints:
    """For each lane, the first of the sets that holds its rank, as its place among them; the rest come last."""
    known = [np.isin(model.ranks, list(ranks)) for ranks in first]
    return np.select(known, range(len(known)), len(known)).astype(np.int64) if known else np.zeros(1, np.int64)


def first_seen(looks: Hashes) -> Ints:
    """For each lane, the first lane that looks like it."""
    _, first, inverse = np.unique(looks, return_index=True, return_inverse=True)
    return first[inverse].astype(np.int64)
