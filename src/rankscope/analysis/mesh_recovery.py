"""The device mesh of a job, recovered from its process groups, and the groups that do not fit into it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import prod

import numpy as np

from rankscope.analysis.arrays import Ints
from rankscope.analysis.model import Culprit, Dimension, Evidence, Finding, GroupRef, Mesh, Misfit
from rankscope.schema import Dataset, Group
from rankscope.text.wording import rank_ranges, ranks_text

# Process groups of one kind as a partition of the ranks, with the few groups that do not fit.


@dataclass(frozen=True, eq=False)
class Partition:
    """A partition of ranks into classes of one size. Ranks are numbered by their index among the partitioned ranks."""

    name: str
    classes: Ints
    """One row per class: its members in order."""
    misfits: tuple[Misfit, ...] = ()
    fitting: int = 0
    """Number of groups that equal their class."""

    @property
    def size(self) -> int:
        """Members per class."""
        return int(self.classes.shape[1])

    @cached_property
    def index(self) -> Ints:
        """The class of each rank."""
        return self._spread(np.arange(len(self.classes))[:, None])

    @cached_property
    def place(self) -> Ints:
        """The place of each rank in its class."""
        return self._spread(np.arange(self.size)[None, :])

    def _spread(self, values: Ints) -> Ints:
        out = np.empty(self.classes.size, np.int64)
        out[self.classes] = values
        return out

    def across(self, other: Partition) -> bool:
        """Whether both are dimensions of one grid: moving along one keeps the place in the other."""
        return _constant(self.place[other.classes]) and _constant(other.place[self.classes])


def _constant(rows: Ints) -> bool:
    """Whether each row has one value throughout."""
    return bool((rows == rows[:, :1]).all())


def find_partition(groups: Sequence[Group], ranks: Ints, seen: frozenset[int]) -> Partition | None:
    """The groups of one kind as a partition of `ranks` (sorted); None if they are none.

    A few groups may be odd (see `_Tiling`), or unknown because no member left a dump.
    """
    once = {g.ranks: g for g in groups if len(g.ranks) > 1 or g.membership != "config"}
    own = _among(list(once), ranks)
    if not own:
        return None
    exact = _exact(own, len(ranks))
    name = dimension_name(groups[0].description)
    if exact is not None:
        return Partition(name, exact, fitting=len(own))
    classes = _tiles(own, len(ranks))
    if classes is None:
        return None
    return _Tiling(name, list(once.values()), own, ranks, seen, classes).partition()


def _among(members: Sequence[tuple[int, ...]], ranks: Ints) -> list[Ints]:
    """For each group the indices of its members in `ranks`; empty if one is missing."""
    every = np.fromiter(chain.from_iterable(members), np.int64)
    found = np.searchsorted(ranks, every)
    if (found >= len(ranks)).any() or (ranks[found] != every).any() or not members:
        return []
    return np.split(found, np.cumsum([len(m) for m in members])[:-1])


def _exact(members: Sequence[Ints], count: int) -> Ints | None:
    size = len(members[0])
    if not 1 < size < count or size * len(members) != count or any(len(m) != size for m in members):
        return None
    rows = np.stack(members)
    if len(np.unique(rows)) != count:
        return None
    return rows[np.argsort(rows.min(axis=1))]


def _tiles(members: Sequence[Ints], count: int) -> Ints | None:
    """The classes that most groups agree on, if they have one size and stride and tile all ranks."""
    size = Counter(len(m) for m in members).most_common(1)[0][0]
    steps = [set(np.diff(m).tolist()) for m in members if len(m) == size]
    strides = Counter(min(s) for s in steps if len(s) == 1)
    if not strides:
        return None
    stride = strides.most_common(1)[0][0]
    if size < 2 or stride < 1 or size >= count or count % (size * stride):
        return None
    blocks = np.arange(count).reshape(-1, size, stride)
    return blocks.transpose(0, 2, 1).reshape(-1, size)


@dataclass(frozen=True, eq=False)
class _Tiling:
    """Groups compared with the classes that most of them agree on.

    An odd group must take the place of exactly one class that no other group takes. Groups whose members all have their
    own class elsewhere (pairs of neighbours, ends of a pipeline) are of another kind, so there is no partition. There
    is none either if a rank with a dump has no group although its class is whole.
    """

    name: str
    groups: list[Group]
    members: list[Ints]
    ranks: Ints
    seen: frozenset[int]
    classes: Ints

    @cached_property
    def _class_of(self) -> Ints:
        out = np.empty(self.classes.size, np.int64)
        out[self.classes] = np.arange(len(self.classes))[:, None]
        return out

    @cached_property
    def _fits(self) -> dict[int, int]:
        """By class the group that equals it."""
        out = {}
        for at, own in enumerate(self.members):
            of = self._class_of[own[0]]
            if len(own) == self.classes.shape[1] and np.array_equal(np.sort(own), np.sort(self.classes[of])):
                out[int(of)] = at
        return out

    def partition(self) -> Partition | None:
        fitting = set(self._fits.values())
        odd = [at for at in range(len(self.members)) if at not in fitting]
        if not fitting or len(odd) > len(fitting):
            return None
        places = [self._stands_for(at) for at in odd]
        taken = [c for c in places if c is not None]
        if len(taken) < len(odd) or len(set(taken)) < len(taken) or self._others_seen({*self._fits, *taken}):
            return None
        misfits = [self._misfit(at, of) for at, of in zip(odd, taken, strict=True)]
        return Partition(self.name, self.classes, tuple(m for m in misfits if m is not None), len(fitting))

    def _stands_for(self, at: int) -> int | None:
        """The class that an odd group stands for; None if it is ambiguous."""
        members = self.members[at]
        of = self._class_of[members]
        fresh = {int(c) for c in of if int(c) not in self._fits}
        if len(fresh) != 1:
            return None
        fresh_class = fresh.pop()
        inside = len(np.unique(members[of == fresh_class]))
        if self.groups[at].membership != "config":
            return fresh_class if inside == len(members) else None
        return fresh_class if 2 * inside >= self.classes.shape[1] else None

    def _others_seen(self, known: set[int]) -> bool:
        """Whether a rank that left a dump is in none of the groups, although no odd group explains it."""
        left = [c for c in range(len(self.classes)) if c not in known]
        return any(int(rank) in self.seen for c in left for rank in self.ranks[self.classes[c]])

    def _misfit(self, at: int, of: int) -> Misfit | None:
        group = self.groups[at]
        if group.membership != "config" or not is_told(group.description):
            return None
        expected = tuple(self.ranks[self.classes[of]].tolist())
        counts = Counter(group.ranks)
        duplicated = sorted({r for r in group.ranks if r not in expected or counts[r] > 1})
        missing = sorted(r for r in expected if r not in counts and r in self.seen)
        if not duplicated and not missing:
            return None
        return Misfit(group.id, group.ranks, expected, tuple(duplicated), tuple(missing))


# Names of parallel dimensions, from the descriptions of process groups.

NO_NAME = ""
"""Name of a dimension without a description."""
_WORDS = {
    "tensor": "tp", "tp": "tp", "pipeline": "pp", "pipe": "pp", "pp": "pp", "data": "dp", "dp": "dp",
    "context": "cp", "cp": "cp", "sequence": "sp", "sp": "sp", "ulysses": "sp", "expert": "ep", "ep": "ep",
    "moe": "ep", "edp": "edp", "etp": "etp", "replicate": "dp_replicate", "replica": "dp_replicate",
    "shard": "dp_shard", "fsdp": "dp_shard",
}  # fmt: skip
_EXPERT_NAME_OF = {"tensor": "etp", "tp": "etp", "data": "edp", "dp": "edp", "model": "ep"}
_FILLER_WORDS = {
    "group", "groups", "parallel", "model", "mesh", "comm", "communicator", "pg", "process", "with", "and", "world",
    "ranks", "size",
}  # fmt: skip
LONGEST_NAME = 24
"""Characters kept of a name."""
_EMPTY_DESCRIPTIONS = ("", "undefined", "none")
_PLAIN_NAMES = ("pp", "dp_replicate", "dp_shard", "dp", "cp", "sp", "tp")
EXPERT_NAMES = ("ep", "edp", "etp")
"""Dimensions of a second grid over the same ranks."""


def is_told(description: str) -> bool:
    """Whether a description tells anything."""
    return description.strip().lower() not in _EMPTY_DESCRIPTIONS


def dimension_name(description: str) -> str:
    """The dimension in a description: "tp"; "dp_cp" for a product of two; NO_NAME if there is none."""
    if not is_told(description):
        return NO_NAME
    own = re.fullmatch(r"mesh_(.*[a-zA-Z].*)", description.strip())
    if own:
        return own[1][:LONGEST_NAME]
    words = [w for w in re.split(r"[^a-z]+", description.lower()) if w]
    expert = "expert" in words and {"tensor", "tp", "data", "dp", "model"} & set(words)
    parts = (
        [_EXPERT_NAME_OF.get(w) or _word(w) for w in words if w != "expert"] if expert else [_word(w) for w in words]
    )
    told = [p for p in dict.fromkeys(parts) if p]
    return "_".join(told)[:LONGEST_NAME] if told else "mp" if "model" in words else NO_NAME


def _word(word: str) -> str:
    return "" if word in _FILLER_WORDS else _WORDS.get(word, word)


def name_score(name: str) -> int:
    """Rank of a name as a dimension, the likeliest lowest: tp, then others, experts, products."""
    if name in _PLAIN_NAMES:
        return 0
    if name in EXPERT_NAMES:
        return 2
    if name == NO_NAME:
        return 3
    return 4 if "embedding" in name else 3 if "_" in name or name == "mp" else 1


def groups_by_kind(groups: tuple[Group, ...]) -> dict[str, list[Group]]:
    """Groups by kind: by description, without its number if each group has its own.

    Groups without a description are separated by the strides of their members.
    """
    by_text: dict[str, list[Group]] = {}
    for group in groups:
        by_text.setdefault(group.description if is_told(group.description) else "", []).append(group)
    out: dict[str, list[Group]] = {}
    for text, members in by_text.items():
        alone = len({g.ranks for g in members}) == 1
        for group in members:
            key = text if text and not alone else f"{text.rstrip('0123456789')}\0{_shape(group.ranks)}"
            out.setdefault(key, []).append(group)
    return out


def _shape(ranks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(rank - ranks[0] for rank in ranks)


# The grid that these partitions form.


FITTING_GROUPS = 3
"""Fitting groups that each odd group needs, if no other kind of group supports the grid."""


def recover_mesh(dataset: Dataset) -> Mesh | None:
    """The grid that the groups form; None if they do not clearly form one of two dimensions or more."""
    if dataset.left_out:
        # groups of a replay of some ranks lack members
        return None
    families = list(groups_by_kind(dataset.group_list).values())
    seen = frozenset(dataset.seen_ranks)
    for ranks in _worlds(dataset, families):
        found = [p for groups in families if (p := find_partition(groups, ranks, seen)) is not None]
        grid = choose_grid(distinct_partitions(found), len(ranks))
        if grid is not None:
            return _mesh(grid, found, ranks, dataset.world_size)
    return None


def _worlds(dataset: Dataset, families: Sequence[Sequence[Group]]) -> list[Ints]:
    """The rank sets that may be the grid: all ranks, or those that two kinds of groups or more share."""
    whole = np.arange(dataset.world_size)
    unions = Counter(_union(groups) for groups in families if len(groups) > 1)
    parts = [ranks for ranks, times in unions.most_common() if times > 1 and 4 <= len(ranks) < len(whole)]
    return [whole, *(np.array(ranks, np.int64) for ranks in parts[:1])] if len(whole) > 1 else []


def _union(groups: Sequence[Group]) -> tuple[int, ...]:
    return tuple(sorted({rank for group in groups for rank in group.ranks}))


def _mesh(grid: RankGrid, partitions: list[Partition], ranks: Ints, world_size: int) -> Mesh:
    ordered = sorted(grid.dimensions, key=lambda d: -int(ranks[d.classes[0, 1]] - ranks[d.classes[0, 0]]))
    names = _names(ordered, partitions)
    places = np.stack([d.place for d in ordered], axis=1).tolist()
    # expert parallel dimensions, which cross those of the grid
    there = {d.name for d in grid.dimensions}
    across = distinct_partitions([p for p in partitions if p.name in EXPERT_NAMES and p.name not in there])
    also = tuple(
        (
            Dimension(crossing.name, crossing.size, stride_of(crossing.classes, ranks)),
            dict(zip(ranks.tolist(), crossing.place.tolist(), strict=True)),
        )
        for crossing in across
    )
    # groups that do not fit into a grid that is clear without them
    misfitting = [p for p in partitions if p.misfits and grid.holds(p)]
    sure = [p for p in misfitting if not grid.rest or p.fitting >= FITTING_GROUPS * len(p.misfits)]
    misfits = tuple(misfit for p in sure for misfit in p.misfits)
    return Mesh(
        dimensions=tuple(
            Dimension(name, d.size, stride_of(d.classes, ranks)) for name, d in zip(names, ordered, strict=True)
        ),
        places=dict(zip(ranks.tolist(), map(tuple, places), strict=True)),
        world_size=world_size,
        also=also,
        misfits=misfits,
    )


def _names(ordered: Sequence[Partition], found: Sequence[Partition]) -> list[str]:
    """The names of the dimensions, each once; dp_cp is dp if there is no dimension cp.

    The outermost dimension without groups is the replicas of the others.
    """
    without_cp = not any(p.name == "cp" for p in found)
    names: list[str] = []
    for at, dimension in enumerate(ordered):
        name = dimension.name if dimension.name != NO_NAME else f"dim{at}"
        name = "replica" if name == REST_NAME and at == 0 else name
        name = "dp" if name == "dp_cp" and without_cp and not any(d.name == "dp" for d in ordered) else name
        names.append(name if name not in names else f"{name}_{at}")
    return names


# Choice of the partitions that are together the dimensions of a grid.

MOST_PARTITIONS = 24
"""Most partitions that are tried."""
REST_NAME = "rest"
"""Name of a necessary dimension without groups."""


@dataclass(frozen=True, eq=False)
class RankGrid:
    """Partitions whose places together identify a rank."""

    dimensions: tuple[Partition, ...]

    @property
    def rest(self) -> bool:
        """Whether the grid has a dimension without groups."""
        return any(d.name == REST_NAME for d in self.dimensions)

    def holds(self, partition: Partition) -> bool:
        """Whether the classes of a partition are products of dimensions of the grid, or one of them."""
        vary = [d for d in self.dimensions if not _constant(d.place[partition.classes])]
        return prod(d.size for d in vary) == partition.size


def distinct_partitions(partitions: Sequence[Partition]) -> list[Partition]:
    """One of each set of equal partitions: the one with the clearest name; it keeps the misfits of all."""
    best: dict[bytes, Partition] = {}
    for one in sorted(partitions, key=lambda p: (name_score(p.name), p.name)):
        key = one.index.tobytes() + one.place.tobytes()
        kept = best.setdefault(key, one)
        if kept is not one:
            best[key] = replace(kept, misfits=kept.misfits + one.misfits)
    return list(best.values())


def choose_grid(partitions: Sequence[Partition], count: int) -> RankGrid | None:
    """The grid of `count` ranks with the most dimensions; named dimensions before experts and remainders."""
    candidates = sorted(partitions, key=lambda p: (name_score(p.name), -p.size, p.name))[:MOST_PARTITIONS]
    fitting = [[a is not b and a.across(b) for b in candidates] for a in candidates]
    grids = [
        grid
        for chosen in _cliques(candidates, fitting, count)
        if (grid := _grid([candidates[i] for i in chosen], partitions, count)) is not None
    ]
    return min(grids, key=_preference, default=None)


def _preference(grid: RankGrid) -> tuple[bool, bool, int, int]:
    names = [d.name for d in grid.dimensions]
    return (
        grid.rest,
        any(name in EXPERT_NAMES or "embedding" in name for name in names),
        -len(names),
        sum(name_score(name) for name in names),
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


def _grid(chosen: list[Partition], partitions: Sequence[Partition], count: int) -> RankGrid | None:
    """The chosen partitions as a grid, with one more dimension for the remainder; None if they form no grid."""
    key = np.zeros(count, np.int64)
    for one in chosen:
        key = key * one.size + one.place
    left = count // prod(one.size for one in chosen)
    if (np.bincount(key) != left).any():
        return None
    if left == 1:
        return RankGrid(tuple(chosen)) if len(chosen) > 1 else None
    rest = Partition(REST_NAME, np.argsort(key, kind="stable").reshape(-1, left))
    if not all(rest.across(one) for one in chosen):
        return None
    name = _name_of_rest(rest, chosen, partitions)
    if name is None and all(name_score(one.name) or one.misfits for one in chosen):
        return None
    return RankGrid((*chosen, replace(rest, name=name or REST_NAME)))


def _name_of_rest(rest: Partition, chosen: Sequence[Partition], partitions: Sequence[Partition]) -> str | None:
    """The name of the remainder from a product that is present: "dp" in "dp_cp", next to "cp"."""
    known = {one.name: one.size for one in chosen}
    for product in partitions:
        parts = product.name.split("_")
        unknown = [part for part in parts if part not in known]
        size = prod(known[part] for part in parts if part in known)
        fits = len(parts) > 1 and len(unknown) == 1 and product.size == size * rest.size and unknown[0] != NO_NAME
        if fits and _constant(product.index[rest.classes]):
            return unknown[0]
    return None


def stride_of(classes: Ints, ranks: Ints) -> int | None:
    """The distance in ranks from one place to the next; None if it varies."""
    steps = np.unique(np.diff(ranks[classes], axis=1))
    return int(steps[0]) if len(steps) == 1 else None


# Findings about groups that do not fit into the device mesh of the others.


def find_misfits(dataset: Dataset, mesh: Mesh | None, hosts: Mapping[int, str]) -> list[Finding]:
    """A warning for each group that differs from its place in the grid."""
    groups = dataset.group_list
    return [_finding(groups, misfit, mesh, hosts) for misfit in mesh.misfits] if mesh is not None else []


def _finding(groups: tuple[Group, ...], misfit: Misfit, mesh: Mesh, hosts: Mapping[int, str]) -> Finding:
    group = groups[misfit.group]
    name = f"group {group.name} of {group.description}" if group.name else f"a group of {group.description}"
    listed = ",".join(map(str, group.ranks)) if len(group.ranks) <= 16 else rank_ranges(group.ranks)
    return Finding(
        kind="mesh-misfit",
        severity="warning",
        title=f"{name} does not fit into the mesh: {_what(misfit)}",
        explanation=(
            f"The groups form {mesh}. Its members should then be {rank_ranges(misfit.expected)}; the dumps say "
            f"{listed}. Ranks that disagree about the members of a group do not wait for the ranks that wait for "
            "them."
        ),
        culprit_ranks=misfit.ranks,
        culprits=tuple(Culprit(rank, hosts.get(rank)) for rank in misfit.ranks),
        confidence="medium",
        confidence_reasons=("the mesh is recovered from the other groups; no dump states it",),
        group=GroupRef(group.name, group.description, group.ranks, key=group.id),
        evidence=tuple(_evidence(groups, group, misfit, mesh)),
        next_steps=(
            f"Print the device mesh of {ranks_text(misfit.ranks)} at the start: the ranks it is made of, and RANK, "
            "WORLD_SIZE and the sizes of its dimensions.",
        ),
    )


def _what(misfit: Misfit) -> str:
    twice = [rank for rank in misfit.duplicated if rank in misfit.expected]
    foreign = [rank for rank in misfit.duplicated if rank not in misfit.expected]
    parts = [
        f"{ranks_text(ranks)} {'is' if len(ranks) == 1 else 'are'} {what}"
        for ranks, what in ((foreign, "in another one as well"), (twice, "listed twice"), (misfit.missing, "in none"))
        if ranks
    ]
    return ", ".join(parts)


def _evidence(groups: tuple[Group, ...], group: Group, misfit: Misfit, mesh: Mesh) -> list[Evidence]:
    """For each misplaced rank: its groups of this kind, and its place on the grid."""
    out = []
    for rank in misfit.ranks:
        of = [g for g in groups if g.description == group.description and rank in g.ranks]
        said = (
            " and ".join(f"group {g.name} ({rank_ranges(g.ranks)})" for g in of) or f"no group of {group.description}"
        )
        out.append(Evidence(f"in {said}; its place is {mesh.where(rank)}", rank=rank))
    return out
