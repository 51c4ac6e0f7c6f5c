"""Events of a log in bounded memory: the first and the last of each kind, as many as there is room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from rankscope.parsers.logs.log_record import Event
from rankscope.parsers.logs.model import NcclWarning

MOST_EVENTS = 100_000
MOST_WARNINGS = 20_000
STACKS_PER_STREAM = 16
"""Most stacks of one stream of lines, the last ones: for a process, its workers, and some earlier moments."""
STACKS = "thread-dump"
MOST_KINDS = 4_000
"""Most kinds; more kinds are grouped by fewer words."""
LEFT_OUT = "left out: "
LEAST_PER_KIND = 4
"""Fewest kept rows of each kind, and of each group of kinds beyond MOST_KINDS."""


class PlacedRow(Protocol):
    """A row with a place in a log."""

    @property
    def offset(self) -> int:
        """Offset of its first byte."""


T = TypeVar("T", bound=PlacedRow)


class BoundedKind(Generic[T]):
    """Rows of a log, bounded by kind: a frequent kind must not push out the line of the cause.

    It keeps all rows up to `most`. Beyond that, each kind gives up rows of its middle, down to an equal number.
    """

    def __init__(
        self, most: int, kind: Callable[[T], tuple[Hashable, ...]], only_last: Callable[[T], bool] | None = None
    ) -> None:
        """`kind` gives the words of a row's kind, most important first; of kinds that `only_last` chooses, no first
        rows stay."""
        self.seen = 0
        """The number of all rows."""
        self._most, self._kind, self._only_last = most, kind, only_last
        self._each = most
        self._kept = 0
        self._left_out: Counter[tuple[Hashable, ...]] = Counter()
        """The number of dropped rows, by the first two words of their kind."""
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
            # leaves some room for later rows: without it, every new row would cost another cut
            while self._kept > 3 * self._most // 4 and self._each > LEAST_PER_KIND:
                self._each = max(LEAST_PER_KIND, self._each // 2)
                self._cut()

    def result(self) -> list[T]:
        """The kept rows, in the order of the log."""
        kept = [row for key, last in self._last.items() for row in (*self._first[key], *last)]
        return sorted(kept, key=lambda row: row.offset)

    def left_out(self) -> dict[str, int]:
        """The numbers of dropped rows, as counts of a log."""
        return {left_out(*key): count for key, count in self._left_out.items()}

    def copy(self) -> BoundedKind[T]:
        """A copy that continues independently."""
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
    """The name under which a log counts dropped rows of a kind."""
    return f"{LEFT_OUT}{kind} {name or ''}".rstrip()


def bounded_events(most: int = 0) -> BoundedKind[Event]:
    """A bounded list of events. Fingerprints keep only their last ones, which form lanes."""
    return BoundedKind(most or MOST_EVENTS, _event_kind, lambda event: event.kind == "fingerprint")


def bounded_warnings(most: int = 0) -> BoundedKind[NcclWarning]:
    """A bounded list of warnings."""
    return BoundedKind(most or MOST_WARNINGS, _warning_kind)


def _event_kind(event: Event) -> tuple[Hashable, ...]:
    values = event.values
    return event.kind, values.get("id") or values.get("exception"), event.rank, values.get("label")


def _warning_kind(row: NcclWarning) -> tuple[Hashable, ...]:
    return row.level, row.place, row.process
