"""Matching of two runs' groups, and alignment of their operation codes: where they part, and where they meet again.

The sequences are placed by their numbers from the start of the run. If that does not fit, equal stretches serve as
anchors. Cost is linear in their lengths: `MOST_PARTINGS` bounds the number of passes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

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


Placement = Literal["number", "content", "none"]
"""Sequences are placed by number, by equal stretches, or not at all."""
MOST_PARTINGS = 20
"""Most partings that are searched for in one pair of sequences."""
_ANCHORS = (32, 8, 1)
"""Operations of an anchor; shorter ones count only if no longer one is found. Powers of two."""
_FIT = 8
"""Operations that are equal at the beginning of a placement by number that fits."""
_MOST_OFFSETS = 64
"""Most anchors that are tried."""
_MEETINGS = (8, 4, 1)
"""Equal operations that count as a meeting; shorter ones count only if there is no longer one. Powers of two."""
_REACHES = (64, 4096)
"""Operations after a parting among which a meeting is searched, first the near ones."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
Hashes = NDArray[np.uint64]


class Parting(NamedTuple):
    """One place where the sequences part."""

    at_a: int
    at_b: int
    length_a: int
    """Operations of A up to the meeting, or up to its end."""
    length_b: int
    meets: bool
    """Whether the sequences meet again behind it."""


class Alignment(NamedTuple):
    """Two sequences side by side."""

    placed: Placement
    equal: int
    """Number of equal operations."""
    partings: tuple[Parting, ...] = ()
    left_a: int = 0
    """Operations of A behind the last one of B."""
    left_b: int = 0
    start: tuple[int, int] = (0, 0)
    """The first operations that are compared."""
    shift: int = 0
    """How many operations more B issued before; 0 also if it is unknown."""


class _Start(NamedTuple):
    """The first operations that are compared, and the kind of their placement."""

    placed: Placement
    at: tuple[int, int] = (0, 0)
    shift: int = 0


def align(a: Ints, b: Ints, numbers_a: Ints | None = None, numbers_b: Ints | None = None) -> Alignment:
    """The alignment of two sequences of codes; numbers count operations from the start of the run and ascend."""
    start = _start(a, b, numbers_a, numbers_b)
    if start.placed == "none":
        return Alignment("none", 0)
    partings = tuple(_partings(a, b, *start.at))
    return _measured(start, partings, len(a), len(b))


def _measured(start: _Start, partings: tuple[Parting, ...], size_a: int, size_b: int) -> Alignment:
    """The alignment with the number of equal operations, and of those that one side has behind the end."""
    equal, (i, j) = 0, start.at
    for one in partings:
        equal += one.at_a - i
        i, j = one.at_a + one.length_a, one.at_b + one.length_b
    left_a, left_b = size_a - i, size_b - j
    common = min(left_a, left_b) if not partings or partings[-1].meets else 0
    return Alignment(start.placed, equal + common, partings, left_a - common, left_b - common, start.at, start.shift)


def _start(a: Ints, b: Ints, numbers_a: Ints | None, numbers_b: Ints | None) -> _Start:
    """The placement by number if that fits at its beginning, else the one with the most equal operations."""
    if not len(a) or not len(b):
        return _Start("none")
    if numbers_a is None or numbers_b is None:
        return _by_content(a, b, 0)
    low = max(int(numbers_a[0]), int(numbers_b[0]))
    i, j = int(np.searchsorted(numbers_a, low)), int(np.searchsorted(numbers_b, low))
    size = min(len(a) - i, len(b) - j)
    if size <= 0:
        return _by_content(a, b, 0)
    equal = a[i : i + size] == b[j : j + size]
    if low == 0 or equal[:_FIT].all():
        return _Start("number", (i, j))
    other = _by_content(a, b, i - j)
    if other.placed == "none" or _equal(a, b, *other.at) <= int(np.count_nonzero(equal)):
        return _Start("number", (i, j))
    return other._replace(shift=int(numbers_b[other.at[1]] - numbers_a[other.at[0]]))


def _by_content(a: Ints, b: Ints, near: int) -> _Start:
    """The placement with the most equal operations, of those in which an anchor of one lies in the other."""
    best, found = 0, _Start("none")
    for offset in _offsets(a, b, near):
        i, j = max(0, offset), max(0, -offset)
        equal = _equal(a, b, i, j)
        if equal > best:
            best, found = equal, _Start("content", (i, j))
    return found


def _equal(a: Ints, b: Ints, i: int, j: int) -> int:
    """The number of equal operations from these places on."""
    size = min(len(a) - i, len(b) - j)
    return int(np.count_nonzero(a[i : i + size] == b[j : j + size]))


def _offsets(a: Ints, b: Ints, near: int) -> list[int]:
    """Candidates for the place of B's first operation in A; those closest to `near` come first."""
    found = set[int]()
    for size in (one for one in _ANCHORS if one <= min(len(a), len(b))):
        hashes_a, hashes_b = stretch_hashes(a, size), stretch_hashes(b, size)
        for at in {0, len(hashes_b) // 2, len(hashes_b) - 1}:
            found |= {int(i) - at for i in np.flatnonzero(hashes_a == hashes_b[at])}
        for at in {0, len(hashes_a) // 2, len(hashes_a) - 1}:
            found |= {at - int(j) for j in np.flatnonzero(hashes_b == hashes_a[at])}
        if found:
            break
    return sorted(found, key=lambda offset: (abs(offset - near), offset))[:_MOST_OFFSETS]


def stretch_hashes(codes: Ints, size: int) -> Hashes:
    """The hash of each stretch of `size` codes, a power of two; one for each stretch that fits."""
    hashes = codes.astype(np.uint64) + np.uint64(1)
    hashes = (hashes ^ (hashes >> np.uint64(31))) * _FACTOR
    step = 1
    if len(codes) < size:
        return hashes[:0]
    while step < size:
        hashes = (hashes[:-step] * _FACTOR) ^ ((hashes[step:] << np.uint64(1)) + np.uint64(step))
        step *= 2
    return hashes


def _partings(a: Ints, b: Ints, i: int, j: int) -> Iterator[Parting]:
    """The places where the sequences part, from these operations on."""
    for _ in range(MOST_PARTINGS):
        size = min(len(a) - i, len(b) - j)
        unequal = a[i : i + size] != b[j : j + size]
        first = int(unequal.argmax()) if size else 0
        if not size or not unequal[first]:
            return
        i, j = i + first, j + first
        more_a, more_b, meets = _meeting(a[i : i + _REACHES[-1]], b[j : j + _REACHES[-1]])
        if not meets:
            more_a, more_b = len(a) - i, len(b) - j
        yield Parting(i, j, more_a, more_b, meets)
        i, j = i + more_a, j + more_b


def _meeting(a: Ints, b: Ints) -> tuple[int, int, bool]:
    """How many operations of each lie before the nearest meeting, and whether there is one; near ones cost least."""
    for size in _MEETINGS:
        for far in _REACHES:
            found = _nearest(stretch_hashes(a[:far], size), stretch_hashes(b[:far], size))
            if found is not None:
                return (*found, True)
    return 0, 0, False


def _nearest(of_a: Hashes, of_b: Hashes) -> tuple[int, int] | None:
    """The first places of an equal stretch in both; None if there is none."""
    if not len(of_a) or not len(of_b):
        return None
    values, firsts = np.unique(of_b, return_index=True)
    at = np.minimum(np.searchsorted(values, of_a), len(values) - 1)
    places = np.flatnonzero(values[at] == of_a)
    if not len(places):
        return None
    nearest = int(np.argmin(places + firsts[at[places]]))
    return int(places[nearest]), int(firsts[at[places[nearest]]])
