"""The events of a log that are kept: the first ones, and behind them of each kind the last."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rankscope.parsers.logs.event import Event

MOST_EVENTS = 200_000
"""Half of them are the first; behind them of each kind the last are kept."""
MOST_LATE = 5_000


class Kept:
    """A kind that fills the log must not push out the line that is the cause."""

    def __init__(self) -> None:
        self.seen = 0
        """All there were."""
        self._first: list[Event] = []
        self._late: dict[str, deque[Event]] = {}

    def add(self, events: Sequence[Event]) -> None:
        """Takes events in the order of the log."""
        self.seen += len(events)
        room = max(0, MOST_EVENTS // 2 - len(self._first))
        self._first += events[:room]
        for event in events[room:]:
            key = f"{event.kind} {event.values.get('id', '')}"
            if key not in self._late:
                self._late[key] = deque(maxlen=MOST_LATE)
            self._late[key].append(event)

    def done(self) -> list[Event]:
        """Those that are kept, by their place in the log."""
        late = (event for kept in self._late.values() for event in kept)
        return sorted([*self._first, *late], key=lambda event: event.offset)
