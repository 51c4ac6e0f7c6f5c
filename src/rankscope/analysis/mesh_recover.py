"""From the process groups of a job to its device mesh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from rankscope.analysis.mesh import Dimension, Mesh, Misfit
from rankscope.analysis.mesh_families import Ints, Partition, partition
from rankscope.analysis.mesh_grid import REST, Grid, choose, distinct, stride_of
from rankscope.analysis.mesh_names import EXPERT, UNNAMED, kinds
from rankscope.schema import Dataset, Group

SURE = 3
"""Groups that must fit for each odd one, where no other groups speak for the grid."""


def recover_mesh(dataset: Dataset) -> Mesh | None:
    """The grid that the groups form; None where they do not clearly form one of two dimensions or more."""
    families = list(kinds(dataset.group_list).values())
    seen = frozenset(dataset.seen_ranks)
    for ranks in _worlds(dataset, families):
        found = [p for groups in families if (p := partition(groups, ranks, seen)) is not None]
        grid = choose(distinct(found), len(ranks))
        if grid is not None:
            return _mesh(grid, found, ranks, dataset.world_size)
    return None


def _worlds(dataset: Dataset, families: Sequence[Sequence[Group]]) -> list[Ints]:
    """The ranks that may be the grid: all of them, or those that two kinds of groups or more agree to be in."""
    whole = np.arange(dataset.world_size)
    unions = Counter(_union(groups) for groups in families if len(groups) > 1)
    parts = [ranks for ranks, times in unions.most_common() if times > 1 and 4 <= len(ranks) < len(whole)]
    return [whole, *(np.array(ranks, np.int64) for ranks in parts[:1])] if len(whole) > 1 else []


def _union(groups: Sequence[Group]) -> tuple[int, ...]:
    return tuple(sorted({rank for group in groups for rank in group.ranks}))


def _mesh(grid: Grid, found: list[Partition], ranks: Ints, world_size: int) -> Mesh:
    ordered = sorted(grid.dimensions, key=lambda d: -int(ranks[d.classes[0, 1]] - ranks[d.classes[0, 0]]))
    names = _names(ordered, found)
    places = np.stack([d.place for d in ordered], axis=1).tolist()
    return Mesh(
        dimensions=tuple(
            Dimension(name, d.size, stride_of(d.classes, ranks)) for name, d in zip(names, ordered, strict=True)
        ),
        places=dict(zip(ranks.tolist(), map(tuple, places), strict=True)),
        world_size=world_size,
        also=_also(grid, found, ranks),
        misfits=_misfits(grid, found),
    )


def _names(ordered: Sequence[Partition], found: Sequence[Partition]) -> list[str]:
    """The names of the dimensions, each once; dp_cp is dp where nothing is parted along cp.

    What no group runs along are replicas of what the groups form, if it is outermost.
    """
    without_cp = not any(p.name == "cp" for p in found)
    names: list[str] = []
    for at, dimension in enumerate(ordered):
        name = dimension.name if dimension.name != UNNAMED else f"dim{at}"
        name = "replica" if name == REST and at == 0 else name
        name = "dp" if name == "dp_cp" and without_cp and not any(d.name == "dp" for d in ordered) else name
        names.append(name if name not in names else f"{name}_{at}")
    return names


def _also(grid: Grid, found: Sequence[Partition], ranks: Ints) -> tuple[tuple[Dimension, dict[int, int]], ...]:
    """Expert parallel dimensions, which run across those of the grid."""
    there = {d.name for d in grid.dimensions}
    across = distinct([p for p in found if p.name in EXPERT and p.name not in there])
    return tuple((Dimension(p.name, p.size, stride_of(p.classes, ranks)), _placed(p, ranks)) for p in across)


def _placed(one: Partition, ranks: Ints) -> dict[int, int]:
    return dict(zip(ranks.tolist(), one.place.tolist(), strict=True))


def _misfits(grid: Grid, found: Sequence[Partition]) -> tuple[Misfit, ...]:
    """What does not fit into a grid that is clear without it."""
    own = [p for p in found if p.misfits and grid.holds(p)]
    sure = [p for p in own if not grid.rest or p.fitting >= SURE * len(p.misfits)]
    return tuple(misfit for p in sure for misfit in p.misfits)
