"""Ends of earlier attempts of a job by its logs: one row of `messages` for each attempt before the one that is judged.

The first failure in the lines of an attempt counts that is not the harm of another process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rankscope.assemble.sources import SourceFile
from rankscope.features.logs.read.log_record import Event
from rankscope.features.logs.read.model import LogContent
from rankscope.features.logs.rows.abort_ranks import ABORT
from rankscope.features.logs.rows.log_attempts import run_offsets
from rankscope.features.logs.rows.process_ends import Row, earlier_row, is_harm
from rankscope.kinds.event_kinds import EVENTS


def printed_ends(
    sources: Sequence[SourceFile], homes: Mapping[int, Sequence[int]], attempt: int, errors: str | None
) -> dict[int, Row]:
    """The rows by attempt; `homes` has by row of `files` the attempt of each run in a log.

    `errors` is the path of the user's own table of known errors.
    """
    found: dict[int, Row] = {}
    exits: dict[int, Row] = {}
    for place, numbers in homes.items():
        content = sources[place].content
        if not isinstance(content, LogContent) or min(numbers, default=attempt) >= attempt:
            continue
        starts = [0, *run_offsets(content)]
        for start, end, number in zip(starts, [*starts[1:], 1 << 62], numbers, strict=True):
            if number >= attempt:
                continue
            inside = [event for event in content.events if start <= event.offset < end]
            own = next(_failures(inside, errors), None)
            seen = next((event for event in inside if EVENTS[event.kind].exit_of == "process"), None)
            if own is not None:
                found.setdefault(number, _row(number, place, own))
            elif seen is not None:
                exits.setdefault(number, _row(number, place, seen))
    return {**exits, **found}


def _failures(events: Sequence[Event], errors: str | None) -> Iterator[Event]:
    """Exceptions and errors that are not the harm of another process."""
    for event in events:
        values = event.values
        thrown = event.kind == ABORT or (EVENTS[event.kind].is_exception and not values.get("survived"))
        if thrown and not values.get("launcher"):
            kind, message = str(values.get("exception") or ""), str(values.get("message") or "")
            if kind and not is_harm(f"{kind}: {message}", "", errors):
                yield event
        elif values.get("role") == "root" and values.get("accuses") == "self":
            yield event


def _row(attempt: int, place: int, event: Event) -> Row:
    return earlier_row(attempt, place, event.rank, event.text, line=event.line, offset=event.offset)
