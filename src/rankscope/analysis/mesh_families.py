"""Process groups of one kind as a partition of the ranks, with the few groups that do not fit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from rankscope.analysis.arrays import Ints
from rankscope.analysis.model import Misfit
from rankscope.schema import Group


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
        own = self.members[at]
        of = self._class_of[own]
        fresh = {int(c) for c in of if int(c) not in self._fits}
        if len(fresh) != 1:
            return None
        found = fresh.pop()
        inside = len(np.unique(own[of == found]))
        if self.groups[at].membership != "config":
            return found if inside == len(own) else None
        return found if 2 * inside >= self.classes.shape[1] else None

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
