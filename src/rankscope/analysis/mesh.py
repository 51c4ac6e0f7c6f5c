"""The device mesh: parallel dimensions that form a grid, and the place of each rank on it. Plain frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Dimension:
    """One parallel dimension of a job."""

    name: str
    """As people call it: "tp", "pp", "dp", "ep", "cp"; what a mesh calls it; "dim0" where no group says."""
    size: int
    stride: int | None
    """Distance in ranks from one place to the next; None where it is not the same everywhere."""

    def __str__(self) -> str:
        return f"{self.name} {self.size}"


@dataclass(frozen=True)
class Misfit:
    """A group that is not what the others of its kind make it out to be."""

    group: int
    """Row of `Dataset.groups`."""
    members: tuple[int, ...]
    expected: tuple[int, ...]
    duplicated: tuple[int, ...]
    """Ranks that are in it, but belong to another group of its kind, or are in it twice."""
    missing: tuple[int, ...]
    """Ranks that belong to it, but are in no group of its kind."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that are out of place, sorted."""
        return tuple(sorted({*self.duplicated, *self.missing}))


@dataclass(frozen=True)
class Mesh:
    """A grid of ranks. Coordinates are in the order of `dimensions`."""

    dimensions: tuple[Dimension, ...]
    """Outermost first: the last one runs fastest over the ranks."""
    places: Mapping[int, tuple[int, ...]]
    """The coordinates of each rank on the grid."""
    world_size: int
    """Ranks of the job; more than there are places where some ranks stand outside."""
    also: tuple[tuple[Dimension, Mapping[int, int]], ...] = ()
    """Dimensions that run across those of the grid (expert parallel), each with the place of every rank in it."""
    misfits: tuple[Misfit, ...] = field(default=())

    def place(self, rank: int) -> tuple[int, ...] | None:
        """The coordinates of a rank; None if it is not on the grid."""
        return self.places.get(rank)

    def along(self, name: str) -> dict[int, int] | None:
        """The place of every rank in one dimension; None if there is no such dimension."""
        for axis, dimension in enumerate(self.dimensions):
            if dimension.name == name:
                return {rank: place[axis] for rank, place in self.places.items()}
        return next((dict(places) for dimension, places in self.also if dimension.name == name), None)

    def where(self, rank: int) -> str:
        """The place of a rank in words: "pp 1, dp 2, tp 0"; "" if it has none."""
        place = self.places.get(rank)
        if place is None:
            return ""
        parts = [f"{d.name} {at}" for d, at in zip(self.dimensions, place, strict=True)]
        parts += [f"{d.name} {places[rank]}" for d, places in self.also if rank in places]
        return ", ".join(parts)

    def __str__(self) -> str:
        """The grid in words: "pp 2 x dp 4 x tp 2, tp innermost"."""
        text = " x ".join(str(d) for d in self.dimensions)
        if self.dimensions and self.dimensions[-1].stride == 1:
            text += f", {self.dimensions[-1].name} innermost"
        if self.also:
            text += "; also " + ", ".join(str(d) for d, _ in self.also)
        if len(self.places) < self.world_size:
            text += f"; {len(self.places)} of {self.world_size} ranks are on it"
        return text
