"""What a log tells, in bounded memory: of each kind the first and the last, as many as there is room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from rankscope.parsers.logs.event import Event
from rankscope.parsers.logs.model import NcclWarning

MOST_EVENTS = 100_000
MOST_WARNINGS = 20_000
STACKS_PER_STREAM = 16
"""So many stacks of one stream of lines are kept, the last: of a process, its workers, and some moments before."""
STACKS = "thread-dump"
MOST_KINDS = 4_000
"""More are told apart by less of what they are."""
LEFT_OUT = "left out: "
LEAST_PER_KIND = 4
"""So many of a kind are kept at least, and of each kind of what MOST_KINDS leaves together."""


class PlacedRow(Protocol):
    """What stands somewhere in a log."""

    @property
    def offset(self) -> int:
        """Of its first byte."""


T = TypeVar("T", bound=PlacedRow)


class BoundedKind(Generic[T]):
    """A kind that fills the log must not push out the line that is the cause.

    All is kept as long as there are no more than `most`. Then each kind gives up its middle, the same number being left
    of each that has more.
    """

    def __init__(
        self, most: int, kind: Callable[[T], tuple[Hashable, ...]], only_last: Callable[[T], bool] | None = None
    ) -> None:
        """`kind` tells a row's by words of falling weight; of those that `only_last` chooses no first are kept."""
        self.seen = 0
        """All there were."""
        self._most, self._kind, self._only_last = most, kind, only_last
        self._each = most
        self._kept = 0
        self._left_out: Counter[tuple[Hashable, ...]] = Counter()
        """By the first two words of a kind."""
        self._first: dict[tuple[Hashable, ...], list[T]] = {}
        self._last: dict[tuple[Hashable, ...], list[T]] = {}

    def add(self, rows: Sequence[T]) -> None:
        """Takes rows in the order of the log."""
        self.seen += len(rows)
        self._kept += len(rows)
        for row in rows:
            kind = self._kind(row)
            key = kind if kind in self._last or len(self._last) < MOST_KINDS else kind[:2]
            if key not in self._last:
                self._first[key], self._last[key] = [], []
            self._last[key].append(row)
            if key[0] == STACKS and len(self._last[key]) > STACKS_PER_STREAM:
                self._last[key].pop(0)
                self._left_out[key[:2]] += 1
                self._kept -= 1
        if self._kept > (self._most if self._each > LEAST_PER_KIND else 2 * self._most):
            self._cut()
            # some room is for what comes, or each would be left less and less of in a long log
            while self._kept > 3 * self._most // 4 and self._each > LEAST_PER_KIND:
                self._each = max(LEAST_PER_KIND, self._each // 2)
                self._cut()

    def done(self) -> list[T]:
        """Those that are kept, by their place in the log."""
        kept = [row for key, last in self._last.items() for row in (*self._first[key], *last)]
        return sorted(kept, key=lambda row: row.offset)

    def left_out(self) -> dict[str, int]:
        """How many are not kept, as counts of a log."""
        return {left_out(*key): count for key, count in self._left_out.items()}

    def copy(self) -> BoundedKind[T]:
        """Another one that goes on from here by itself."""
        other: BoundedKind[T] = BoundedKind(self._most, self._kind, self._only_last)
        other.__dict__.update(self.__dict__, _left_out=self._left_out.copy())
        other._first = {key: list(rows) for key, rows in self._first.items()}
        other._last = {key: list(rows) for key, rows in self._last.items()}
        return other

    def _cut(self) -> None:
        for key, last in self._last.items():
            first = self._first[key]
            if len(first) + len(last) <= self._each:
                continue
            begin = 0 if self._only_last is not None and self._only_last(last[-1]) else self._each // 2
            self._first[key] = [*first, *last[: max(0, begin - len(first))]][:begin]
            kept = last[max(0, begin - len(first)) :][begin - self._each :]
            gone = len(first) + len(last) - len(self._first[key]) - len(kept)
            self._last[key] = kept
            self._left_out[key[:2]] += gone
            self._kept -= gone


def left_out(kind: Hashable, name: Hashable = None) -> str:
    """Under which name a log counts rows of a kind that it does not keep."""
    return f"{LEFT_OUT}{kind} {name or ''}".rstrip()


def bounded_events(most: int = 0) -> BoundedKind[Event]:
    """Of events. Of fingerprints the last are lanes, and the first are of no use."""
    return BoundedKind(most or MOST_EVENTS, _of_event, lambda event: event.kind == "fingerprint")


def bounded_warnings(most: int = 0) -> BoundedKind[NcclWarning]:
    """Of warnings."""
    return BoundedKind(most or MOST_WARNINGS, _of_warning)


def _of_event(event: Event) -> tuple[Hashable, ...]:
    values = event.values
    return event.kind, values.get("id") or values.get("exception"), event.rank, values.get("label")


def _of_warning(row: NcclWarning) -> tuple[Hashable, ...]:
    return row.level, row.place, row.process
