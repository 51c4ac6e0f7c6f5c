"""Groups that no line names, from the first operation of each: its members stand in it together.

The first line of each group on each rank has number 0, so there are as many of these as the rank has groups. They are
put together so that each set has every place once, in the order of ranks, that all call the same, and that all stand in
it at one moment. What fits in more than one way is told from later operations, in which the members must meet as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rankscope.assemble.logs.prints.lanes import NEVER, Lanes, Print, Seat, by_seat

MOST_WAYS = 32
"""More ways to put them together are not tried."""
MOST_STEPS = 20_000
MOST_PAIRS = 1_000_000
"""So many times at most two first lines are held against each other; ten seconds."""
SAMPLE = 16_000
"""So many lines of all ranks together are looked at to see whether two seats meet."""
Groups = tuple[tuple[int, ...], ...]


class _Birth(NamedTuple):
    seat: Seat
    first: Print


def ways(lanes: Lanes) -> list[Groups]:
    """All ways to put first lines to groups, as sorted members; none if there are too many, or no first lines."""
    seats = by_seat(lanes)
    births = [_Birth(seat, p) for seat, prints in seats.items() for p in prints if p.seq == 0]
    largest = 1 + max((birth.seat.place for birth in births), default=-1)
    if len({birth.seat for birth in births}) < len(seats) or largest * largest // 2 > MOST_PAIRS:
        return []
    search = _Search(_Company(seats), births)
    found = list(dict.fromkeys(search.ways()))
    return [] if search.given_up else found


class _Company:
    """Which seats can be of one group."""

    def __init__(self, seats: dict[Seat, list[Print]]) -> None:
        self._counts = {seat: sum(p.seq == 0 for p in prints) for seat, prints in seats.items()}
        most = max(8, SAMPLE // max(1, len(seats)))
        self._some = {seat: _sample(prints, most) for seat, prints in seats.items()}
        self._at: defaultdict[tuple[Seat, int, int], list[Print]] = defaultdict(list)
        for seat, prints in seats.items():
            for p in prints:
                self._at[seat, p.seq, p.call].append(p)
        self._known: dict[tuple[Seat, Seat], bool] = {}

    def fits(self, one: Seat, other: Seat) -> bool:
        """Whether all lines of a seat that has one group only meet one of the other's."""
        key = (one, other)
        if key not in self._known:
            self._known[key] = self._meets(one, other) and self._meets(other, one)
        return self._known[key]

    def _meets(self, one: Seat, other: Seat) -> bool:
        if self._counts[one] != 1:
            return True
        return all(any(together([p, q]) for q in self._at.get((other, p.seq, p.call), ())) for p in self._some[one])


def _sample(prints: Sequence[Print], most: int) -> list[Print]:
    went_on = [p for p in prints if p.left < NEVER] or list(prints[:-1])
    return went_on[:: max(1, len(went_on) // most)][:most]


def together(prints: Sequence[Print]) -> bool:
    """Whether there was a moment in which all of them were the last line of their rank."""
    return max(p.came for p in prints) < min(p.left for p in prints)


class _Search:
    """Depth first over the first lines, that of the highest place first: it is the last member of its group."""

    def __init__(self, company: _Company, births: Sequence[_Birth]) -> None:
        self._company = company
        self._births = sorted(births, key=lambda b: (-b.seat.place, b.seat.rank, b.first.came))
        self._by_place: defaultdict[int, list[int]] = defaultdict(list)
        for i, birth in enumerate(self._births):
            self._by_place[birth.seat.place].append(i)
        self._used = [False] * len(births)
        self._steps = self._pairs = self._found = 0

    @property
    def given_up(self) -> bool:
        """Whether there were too many ways."""
        return self._steps >= MOST_STEPS or self._pairs >= MOST_PAIRS or self._found > MOST_WAYS

    # groups can be of thousands of ranks, and there can be as many: nothing here calls itself

    def ways(self) -> Iterator[Groups]:
        """Each way to use all first lines."""
        done: list[list[int]] = []
        levels = [self._teams(0)] if self._births else []
        while levels and not self.given_up:
            chosen = next(levels[-1], None)
            if chosen is None:
                levels.pop()
                self._use(done.pop() if done else [], False)
                continue
            done.append(chosen)
            self._use(chosen, True)
            if False in self._used:
                levels.append(self._teams(self._used.index(False)))
                continue
            self._found += 1
            yield tuple(sorted(self._members(own) for own in done))
            self._use(done.pop(), False)

    def _use(self, chosen: Sequence[int], used: bool) -> None:
        for i in chosen:
            self._used[i] = used

    def _members(self, chosen: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._births[i].seat.rank for i in reversed(chosen))

    def _teams(self, begin: int) -> Iterator[list[int]]:
        """Sets of first lines down to place 0 with the one at `begin`, which is of the highest place."""
        chosen: list[int] = []
        levels: list[Iterator[int]] = [iter([begin])]
        while levels and not self.given_up:
            i = next(levels[-1], None)
            if i is None:
                levels.pop()
                del chosen[-1:]
                continue
            chosen.append(i)
            self._steps += 1
            if self._births[i].seat.place:
                levels.append(self._next(list(chosen)))
                continue
            yield list(chosen)
            chosen.pop()

    def _next(self, chosen: Sequence[int]) -> Iterator[int]:
        """First lines of the place below that can be of the same group."""
        lowest = self._births[chosen[-1]].seat
        tried: set[tuple[Seat, int, int]] = set()
        for i in self._by_place[lowest.place - 1]:
            birth = self._births[i]
            alike = (birth.seat, birth.first.came, birth.first.call)
            if self._used[i] or birth.seat.rank >= lowest.rank or alike in tried:
                continue
            self._pairs += len(chosen)
            if self.given_up:
                return
            if self._joins(i, chosen):
                tried.add(alike)
                yield i

    def _joins(self, i: int, chosen: Sequence[int]) -> bool:
        others = [self._births[j] for j in chosen]
        birth = self._births[i]
        if any(other.first.call != birth.first.call for other in others):
            return False
        if not together([birth.first, *(other.first for other in others)]):
            return False
        return all(self._company.fits(birth.seat, other.seat) for other in others)
