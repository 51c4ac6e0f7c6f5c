"""Groups that no line names, from the first operation of each: its members stand in it together.

The first line of each group on each rank has number 0, so there are as many of these as the rank has groups. They are
put together so that each set has every place once, in the order of ranks, that all call the same, and that all stand in
it at one moment. What fits in more than one way is told from later operations, in which the members must meet as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rankscope.parsers.assemble.logs.prints.lanes import NEVER, Lanes, Print, Seat, by_seat

MOST_WAYS = 32
"""More ways to put them together are not tried."""
MOST_STEPS = 20_000
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
    if len({birth.seat for birth in births}) < len(seats):
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
        self._steps = 0
        self._found = 0

    @property
    def given_up(self) -> bool:
        """Whether there were too many ways."""
        return self._steps >= MOST_STEPS or self._found > MOST_WAYS

    def ways(self) -> Iterator[Groups]:
        """Each way to use all first lines."""
        yield from self._rest(0, [])

    def _rest(self, begin: int, done: list[tuple[int, ...]]) -> Iterator[Groups]:
        while begin < len(self._births) and self._used[begin]:
            begin += 1
        if self.given_up:
            return
        if begin == len(self._births):
            self._found += 1
            yield tuple(sorted(done))
            return
        for chosen in self._teams([begin]):
            for i in chosen:
                self._used[i] = True
            members = tuple(self._births[i].seat.rank for i in reversed(chosen))
            yield from self._rest(begin + 1, [*done, members])
            for i in chosen:
                self._used[i] = False

    def _teams(self, chosen: list[int]) -> Iterator[list[int]]:
        """Sets of first lines down to place 0."""
        self._steps += 1
        lowest = self._births[chosen[-1]].seat
        if lowest.place == 0:
            yield chosen
            return
        if self.given_up:
            return
        tried: set[tuple[Seat, int, int]] = set()
        for i in self._by_place[lowest.place - 1]:
            birth = self._births[i]
            alike = (birth.seat, birth.first.came, birth.first.call)
            if not self._used[i] and birth.seat.rank < lowest.rank and alike not in tried and self._joins(i, chosen):
                tried.add(alike)
                yield from self._teams([*chosen, i])

    def _joins(self, i: int, chosen: Sequence[int]) -> bool:
        others = [self._births[j] for j in chosen]
        birth = self._births[i]
        if any(other.first.call != birth.first.call for other in others):
            return False
        if not together([birth.first, *(other.first for other in others)]):
            return False
        return all(self._company.fits(birth.seat, other.seat) for other in others)
