"""Which partitions together are the dimensions of a grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from rankscope.analysis.mesh_families import Ints, Partition
from rankscope.analysis.mesh_names import EXPERT, UNNAMED, score

MOST = 24
"""Partitions that are tried."""
REST = "rest"
"""The name of a dimension that no group runs along, but that must be there."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Partitions whose places together say which rank it is."""

    dimensions: tuple[Partition, ...]

    @property
    def rest(self) -> bool:
        """Whether a dimension is there that no group names."""
        return any(d.name == REST for d in self.dimensions)

    def holds(self, partition: Partition) -> bool:
        """Whether the classes of a partition are the products of some dimensions, or one of them."""
        vary = [d for d in self.dimensions if not _same_place(d, partition)]
        return prod(d.size for d in vary) == partition.size


def _same_place(dimension: Partition, partition: Partition) -> bool:
    rows = dimension.place[partition.classes]
    return bool((rows == rows[:, :1]).all())


def distinct(partitions: Sequence[Partition]) -> list[Partition]:
    """One of those that are alike: the one whose name says most; what does not fit is kept with it."""
    best: dict[bytes, Partition] = {}
    for one in sorted(partitions, key=lambda p: (score(p.name), p.name)):
        key = one.index.tobytes() + one.place.tobytes()
        kept = best.setdefault(key, one)
        if kept is not one:
            best[key] = replace(kept, misfits=kept.misfits + one.misfits)
    return list(best.values())


def choose(partitions: Sequence[Partition], count: int) -> Grid | None:
    """The grid of `count` ranks with the most dimensions; those of its own names before experts and left-overs."""
    candidates = sorted(partitions, key=lambda p: (score(p.name), -p.size, p.name))[:MOST]
    fitting = [[a is not b and a.across(b) for b in candidates] for a in candidates]
    grids = [
        grid for chosen in _cliques(candidates, fitting, count)
        if (grid := _grid([candidates[i] for i in chosen], partitions, count)) is not None
    ]  # fmt: skip
    return min(grids, key=_preference, default=None)


def _preference(grid: Grid) -> tuple[bool, bool, int, int]:
    names = [d.name for d in grid.dimensions]
    return (
        grid.rest,
        any(name in EXPERT or "embedding" in name for name in names),
        -len(names),
        sum(score(name) for name in names),
    )


def _cliques(
    candidates: Sequence[Partition], fitting: list[list[bool]], count: int, chosen: tuple[int, ...] = ()
) -> Iterator[tuple[int, ...]]:
    if chosen:
        yield chosen
    size = prod(candidates[i].size for i in chosen)
    for i in range(chosen[-1] + 1 if chosen else 0, len(candidates)):
        if count % (size * candidates[i].size) == 0 and all(fitting[i][j] for j in chosen):
            yield from _cliques(candidates, fitting, count, (*chosen, i))


def _grid(chosen: list[Partition], partitions: Sequence[Partition], count: int) -> Grid | None:
    """The chosen ones as a grid, with what is left as one more dimension; None if they are none."""
    key = np.zeros(count, np.int64)
    for one in chosen:
        key = key * one.size + one.place
    left = count // prod(one.size for one in chosen)
    if (np.bincount(key) != left).any():
        return None
    if left == 1:
        return Grid(tuple(chosen)) if len(chosen) > 1 else None
    rest = Partition(REST, np.argsort(key, kind="stable").reshape(-1, left))
    if not all(rest.across(one) for one in chosen):
        return None
    name = _name_of_rest(rest, chosen, partitions)
    if name is None and all(score(one.name) or one.misfits for one in chosen):
        return None
    return Grid((*chosen, replace(rest, name=name or REST)))


def _name_of_rest(rest: Partition, chosen: Sequence[Partition], partitions: Sequence[Partition]) -> str | None:
    """What the rest is called if a product of dimensions is there: "dp" in "dp_cp", next to "cp"."""
    known = {one.name: one.size for one in chosen}
    for product in partitions:
        parts = product.name.split("_")
        unknown = [part for part in parts if part not in known]
        size = prod(known[part] for part in parts if part in known)
        if len(parts) > 1 and len(unknown) == 1 and product.size == size * rest.size and unknown[0] != UNNAMED:
            rows = product.index[rest.classes]
            if (rows == rows[:, :1]).all():
                return unknown[0]
    return None


def stride_of(classes: Ints, ranks: Ints) -> int | None:
    """The distance from one place to the next, in ranks; None if it is not the same everywhere."""
    steps = np.unique(np.diff(ranks[classes], axis=1))
    return int(steps[0]) if len(steps) == 1 else None
