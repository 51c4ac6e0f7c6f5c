"""Lines of Megatron-LM about numbers that it checked: hashes of weights, and steps that it ran again."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.parsers.logs.c10d.event_builder import message_event
from rankscope.parsers.logs.log_record import Event, Record

LITERALS = (
    "Hash not matching for", "Weight hashes match after", "rerun: unexpected result is ", "Possible transient error",
    "Possible persistent error", "Correct result (but possible", "Unexpected result ",
)  # fmt: skip
KIND = "numeric-check"
MATCH_KIND = "weights-match"
_HASH = re.compile(r"\[Rank (\d{1,7})\] Hash not matching for (\S{1,512}) in model chunk ?(\d{1,6})")
_MATCH = re.compile(r"Weight hashes match after (\d{1,12}) iterations")
_PLACE = re.compile(r"Rank (\d{1,7}), node ([\w.\-]{1,255}), device (\d{1,4})(?:, iteration #?(\d{1,12}))?: ")
_REFUSED = re.compile(r"Rank \d{1,7}, node .{1,300}?: Unexpected result |invokation #\d{1,9} at iteration #\d")
_ITERATION = re.compile(r"iteration #?(\d{1,12})\b")
OUTCOMES = (
    ("persistent", "Possible persistent error"), ("transient", "Possible transient error"),
    ("correct", "Correct result (but possible"),
    ("elsewhere-other", "Second rerun: unexpected result is not reproducible"),
    ("elsewhere-same", "Second rerun: unexpected result is reproducible"),
    ("here-other", "First rerun: unexpected result is not reproducible"),
    ("here-same", "First rerun: unexpected result is reproducible"), ("refused", ": Unexpected result "),
    ("unexpected", "Unexpected result "),
)  # fmt: skip
"""Outcomes of a step that ran again, and the words of their lines: on the same device ("here") or another one.

"refused" is that of a job that runs no step again, and ends; "unexpected" comes before the first run again.
"""


def events(record: Record) -> Iterator[Event]:
    """The event of a line about a check.

    Values of `numeric-check`: `check`, "weight-hash" or "rerun"; `name` and `chunk` of a parameter; `outcome`, one of
    `OUTCOMES`; `node`, `device` and `iteration` as printed, None if absent. `weights-match` has `iteration`.
    """
    text = record.text
    if (match := _MATCH.search(text)) is not None:
        yield message_event(MATCH_KIND, record, iteration=int(match[1]))
    elif (found := _HASH.search(text)) is not None:
        yield message_event(
            KIND, record._replace(rank=int(found[1])), check="weight-hash", name=found[2], chunk=int(found[3])
        )
    elif (outcome := next((name for name, words in OUTCOMES if words in text), None)) is not None:
        if outcome in ("refused", "unexpected") and _REFUSED.search(text) is None:
            return
        place, step = _PLACE.search(text), _ITERATION.search(text)
        own = record if place is None else record._replace(rank=int(place[1]))
        yield message_event(
            KIND, own, check="rerun", outcome=outcome, node=None if place is None else place[2],
            device=None if place is None else int(place[3]), iteration=None if step is None else int(step[1]),
        )  # fmt: skip
