"""Alignment of two sequences of operation codes: where they part, where they meet again, which one goes on.

The sequences are placed by their numbers from the start of the run. If that does not fit, equal stretches serve as
anchors. Cost is linear in their lengths: `MOST_PARTINGS` bounds the number of passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankscope.analysis.arrays import Ints

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
