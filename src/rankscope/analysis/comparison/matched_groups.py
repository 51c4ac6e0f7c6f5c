"""Process groups of two runs, matched by members and description: names count up and differ from run to run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import polars as pl

from rankscope.analysis.arrays import Ints
from rankscope.schema import Dataset, Group
from rankscope.text.wording import group_name, rank_ranges

_LONGEST_RANKS = 30


class GroupMatching(NamedTuple):
    """One number for each group of both runs; matched groups share it."""

    of_a: Ints
    """Number by group id of A."""
    of_b: Ints
    only_a: tuple[str, ...]
    """Descriptions of used groups without a counterpart."""
    only_b: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of distinct numbers."""
        return int(max(self.of_a.max(initial=-1), self.of_b.max(initial=-1))) + 1


def match_groups(a: Dataset, b: Dataset) -> GroupMatching:
    """Groups with equal members and description first, then those in which only the members are equal."""
    left_a, left_b = list(a.group_list), list(b.group_list)
    of_a, of_b = _numbers(left_a), _numbers(left_b)
    count = 0
    for key in (_identity, _members):
        for one, other in _pairs(a, b, left_a, left_b, key):
            of_a[one.id] = of_b[other.id] = count
            count += 1
            left_a.remove(one)
            left_b.remove(other)
    for numbers, left in ((of_a, left_a), (of_b, left_b)):
        for group in left:
            numbers[group.id] = count
            count += 1
    return GroupMatching(of_a, of_b, _used(a, left_a), _used(b, left_b))


def _numbers(groups: list[Group]) -> Ints:
    return np.full(max((group.id for group in groups), default=-1) + 1, -1, np.int64)


def _identity(group: Group) -> object:
    return group.ranks, group.description


def _members(group: Group) -> object:
    return tuple(sorted(group.ranks))


def _pairs(
    a: Dataset, b: Dataset, left_a: list[Group], left_b: list[Group], key: Callable[[Group], object]
) -> Iterator[tuple[Group, Group]]:
    """Pairs with an equal key; several of one key pair up in order of their names, or of what they do."""
    by_key: tuple[defaultdict[object, list[Group]], ...] = defaultdict(list), defaultdict(list)
    for found, groups in zip(by_key, (left_a, left_b), strict=True):
        for group in groups:
            found[key(group)].append(group)
    for one, alike in by_key[0].items():
        others = by_key[1].get(one, [])
        yield from list(zip(_ordered(a, alike), _ordered(b, others), strict=False))


def _ordered(dataset: Dataset, alike: list[Group]) -> list[Group]:
    """Groups with the same members in order of their numbers; names that are hashes tell no order."""
    if len(alike) < 2:
        return alike
    if all(group.name.isdecimal() for group in alike):
        return sorted(alike, key=lambda group: int(group.name))
    return sorted(alike, key=lambda group: (_content(dataset, group.id), group.id))


def _content(dataset: Dataset, group: int) -> list[str]:
    """The distinct operations of a group as text."""
    rows = dataset.ops.filter(pl.col("group") == group).select(pl.col("op", "in_sizes", "in_dtypes").cast(pl.String))
    return sorted("|".join(map(str, row)) for row in rows.unique().iter_rows())


def _used(dataset: Dataset, groups: list[Group]) -> tuple[str, ...]:
    """Words for those of the groups that have operations."""
    used = set(dataset.ops["group"].drop_nulls().unique().to_list())
    return tuple(
        f"{group_name(group.name, group.description)} of ranks {rank_ranges(group.ranks, _LONGEST_RANKS)}"
        for group in groups
        if group.id in used
    )
