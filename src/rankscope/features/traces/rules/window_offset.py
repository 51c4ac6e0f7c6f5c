"""Offset between the operation orders of two ranks, whose windows begin at different calls.

In a repeating program every shift by a whole step matches the order. Time tells them apart: members of a collective end
it together, so at the true shift the ends differ by a constant, the clock difference, which is small.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rankscope.analysis.arrays import Ints

NEAR, REACH = 8, 256
"""Shifts tried to either side of the one by clocks and of none: first, and if the result is not clear."""
SAMPLE, FIRST_SAMPLE = 4000, 256
"""Operations compared at a shift; the second at the first pass over all shifts."""
MOST_FULL_SHIFTS = 8
"""Most shifts that are compared in full."""
OFFSET_WEIGHT = 1 / 10
"""Weight of the clock difference against the spread, if ends agree nowhere; clocks differ by milliseconds at most."""
CLEAR_RATIO = 1.5
"""Smallest ratio of the second best score to the best."""
SHARP_SHARE = 0.75
"""Smallest share of agreeing ends that determines a shift."""
EQUAL_SHARE = 0.1
"""Difference of the shares of agreeing ends of two shifts that may be chance."""
TIGHT, TIGHT_NS = 4, 2_000
"""Ratio and nanoseconds within which ends agree as tightly as at the best shift."""
SHARP_COUNT = 3
"""Fewer agreeing ends may be chance."""
UNCORRECTED_SHARE = 0.98
"""Share of operations in which cause and effect must hold on uncorrected clocks to keep them."""
AGREEMENT_NS = 50_000
"""Ends this close agree; 1-7 us are seen between devices of one host."""
AGREEMENT_SHARE = 0.01
"""Allowed difference of ends as a share of the length of the operation."""


@dataclass(frozen=True)
class ChannelSequence:
    """The operations of one file in one channel, in order."""

    tokens: npt.NDArray[np.int64]
    starts: Ints
    ends: Ints
    blocking: npt.NDArray[np.bool_]

    def cut(self, at: int, count: int) -> ChannelSequence:
        """`count` operations from `at` on."""
        part = slice(at, at + count)
        return ChannelSequence(self.tokens[part], self.starts[part], self.ends[part], self.blocking[part])

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class WindowShift:
    """A match of two sequences: operation i of the other is i + by of the reference."""

    by: int
    count: int
    offset_ns: int
    """Median of the reference's ends minus the other's."""
    spread_ns: int
    """Median distance of these differences to `offset_ns`."""
    agree: float
    """Share of ends that agree after `offset_ns` is added."""
    causal: float
    """Share of blocking operations that no member ended before the other began; of all if none blocks."""
    causal_as_is: bool
    """The same holds for nearly all of them on uncorrected clocks."""
    clear: bool
    """No other shift matches nearly as well."""

    @property
    def sharp(self) -> bool:
        """Whether ends show that the shift is right."""
        return self.agree >= SHARP_SHARE and self.count >= SHARP_COUNT

    @property
    def score(self) -> float:
        """Badness of the shift if ends agree at no shift."""
        return self.spread_ns + abs(self.offset_ns) * OFFSET_WEIGHT + 1


def best_shift(reference: ChannelSequence, other: ChannelSequence) -> WindowShift | None:
    """The shift with the best agreement; None if the order of operations agrees nowhere."""
    near = _best(reference, other, NEAR)
    # a tight match at the shift by clocks, and not beside it, needs no search
    if near is not None and near.sharp and near.clear and near.spread_ns < AGREEMENT_NS // 10:
        return near
    return _best(reference, other, REACH)


def _best(reference: ChannelSequence, other: ChannelSequence, reach: int) -> WindowShift | None:
    candidates = _candidates(reference, other, reach)
    tried = [s for by in candidates if (s := _try(reference, other, by, FIRST_SAMPLE)) is not None]
    promising = sorted(tried, key=lambda s: (not s.sharp, s.spread_ns if s.sharp else s.score))[:MOST_FULL_SHIFTS]
    found = [shift for s in promising if (shift := _try(reference, other, s.by, SAMPLE)) is not None]
    if not found:
        return None
    sharp = [shift for shift in found if shift.sharp]
    tightest = min((shift.spread_ns for shift in sharp), default=0)
    # equal steps match at every shift, but less tightly; equally tight ones are told apart by the offset
    tight = [shift for shift in sharp if shift.spread_ns <= TIGHT * tightest + TIGHT_NS]
    # a shift by a part of a step fails wherever steps meet
    most = max((shift.agree for shift in tight), default=0.0)
    tight = [shift for shift in tight if shift.agree >= most - EQUAL_SHARE]
    best, *rest = sorted(tight, key=lambda s: abs(s.offset_ns)) or sorted(found, key=lambda s: s.score)
    clear = not rest or rest[0].score > CLEAR_RATIO * best.score
    return replace(best, clear=clear)


def at_shift(reference: ChannelSequence, other: ChannelSequence, by: int) -> WindowShift | None:
    """The properties of one given shift, as from sequence numbers."""
    return _try(reference, other, by, SAMPLE)


def _candidates(reference: ChannelSequence, other: ChannelSequence, reach: int) -> Iterator[int]:
    """Shifts near none or near the one by clocks that match at least half of the shorter sequence."""
    least = (min(len(reference), len(other)) + 1) // 2
    middle = len(other) // 2
    by_clock = int(np.searchsorted(reference.ends, other.ends[middle])) - middle
    low, high = least - len(other), len(reference) - least
    near = {by for centre in (0, by_clock) for by in range(centre - reach, centre + reach + 1)}
    yield from sorted(by for by in near if low <= by <= high)


def _try(reference: ChannelSequence, other: ChannelSequence, by: int, sample: int) -> WindowShift | None:
    count = min(len(reference) - max(by, 0), len(other) - max(-by, 0))
    if count < 1:
        return None
    a, b = reference.cut(max(by, 0), min(count, sample)), other.cut(max(-by, 0), min(count, sample))
    if not np.array_equal(a.tokens, b.tokens):
        return None
    apart = a.ends - b.ends
    offset = int(np.median(apart))
    off = np.abs(apart - offset)
    allowed = AGREEMENT_NS + AGREEMENT_SHARE * np.minimum(a.ends - a.starts, b.ends - b.starts)
    as_is = _causal(a, b, 0)
    agree, causal = float(np.mean(off <= allowed)), max(as_is, _causal(a, b, offset))
    return WindowShift(by, count, offset, int(np.median(off)), agree, causal, as_is >= UNCORRECTED_SHARE, True)


def _causal(a: ChannelSequence, b: ChannelSequence, offset: int) -> float:
    held = (a.starts <= b.ends + offset + AGREEMENT_NS) & (b.starts + offset <= a.ends + AGREEMENT_NS)
    both = a.blocking & b.blocking
    return float(np.mean(held[both] if both.any() else held))
