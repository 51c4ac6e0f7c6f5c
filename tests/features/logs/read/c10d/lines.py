"""Records of a log, and the events in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rankscope.features.logs.read.c10d.recogniser import Recogniser
from rankscope.features.logs.read.log_record import Event, Record

_RANK = re.compile(r"\[rank(\d+)\]: ?")


def records(text: str, torn: Iterable[int] = ()) -> list[Record]:
    """A record for each line of a text; `[rankN]:` becomes its rank. `torn`: lines, from 1, whose end is missing."""
    made, offset = [], 0
    for at, line in enumerate(text.split("\n"), 1):
        found = _RANK.match(line)
        rank, label, said = (int(found[1]), found[0], line[found.end() :]) if found else (None, "", line)
        made.append(Record(offset, at, said, rank, label, torn=at in set(torn)))
        offset += len(line.encode()) + 1
    return made


def events(text: str, torn: Iterable[int] = ()) -> list[Event]:
    """All events of a text but known errors, by place."""
    return [event for event in everything(text, torn) if event.kind != "known-error"]


def everything(text: str, torn: Iterable[int] = ()) -> list[Event]:
    """All events of a text, by place."""
    recogniser = Recogniser()
    found = recogniser.feed_all(records(text, torn)) + recogniser.finish()
    return sorted(found, key=lambda event: event.offset)


def only(text: str, torn: Iterable[int] = ()) -> Event:
    """The one event of a text."""
    (event,) = events(text, torn)
    return event


def values(event: Event, *names: str) -> tuple[Any, ...]:
    """Some values of an event."""
    return tuple(event.values[name] for name in names)
