"""What the store prints with TORCH_DISTRIBUTED_DEBUG=DETAIL when ranks of a group meet in it.

Only the keys that helpers of ProcessGroupWrapper write, one for each member of each group. Source: runs of torch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.parsers.logs.c10d.event_builder import tell
from rankscope.parsers.logs.event import Event
from rankscope.parsers.logs.record import Record

LITERALS = ("[c10d - trace] set key:",)
_SEAT = re.compile(
    r"set key:(?:\S{0,200}/)?(?P<device>[a-z]{1,16})//pg_wrapper:(?P<name>[^/\s]{1,200})/\d{1,9}/(?P<place>\d{1,7})"
    r" address:(?P<address>\S{1,100})"
)


def events(record: Record) -> Iterator[Event]:
    """The events in a record: `name` of the group, `device`, `place` in it, and `address` of who took it."""
    if not record.torn and (seat := _SEAT.search(record.text)) is not None:
        yield tell(
            "pg-seat", record, name=seat["name"], device=seat["device"], place=int(seat["place"]),
            address=seat["address"],
        )._replace(rank=None)  # fmt: skip
