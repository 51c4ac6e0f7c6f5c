"""What `init_process_group` prints while it waits for the other ranks. Source: torch's distributed_c10d.py."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rankscope.parsers.logs.c10d.event_builder import number, tell
from rankscope.parsers.logs.event import Event
from rankscope.parsers.logs.record import Record

LITERALS = ("in store based barrier ", " is setting up NCCL communicator")
_UNIQUE_ID = re.compile(
    r"\[(\d{1,7})\] is setting up NCCL communicator and retr\w{1,8} ncclUniqueId from \[(\d{1,7})\]"
)
_BARRIER = re.compile(
    r"(Timed out initializing process group|[Ww]aiting) in store based barrier .{0,60}?rank: (\d{1,7}), (?:for )?"
    r"key: \S{0,80}?store_based_barrier_key:(\S{1,80}) \(world_size=(\d{1,7}), "
    r"(?:worker_count|num_workers_joined)=(\d{1,7})"
)


def events(record: Record) -> Iterator[Event]:
    """The events in a record.

    Values of a barrier: `timed_out`, `key`, `world_size`, and `came`, how many had come; of who asks the first rank
    of its group for the id of a communicator: `rank_in_group` and `waits_for`, ranks of the group.
    """
    if (asked := _UNIQUE_ID.search(record.text)) is not None:
        made = tell("unique-id", record)
        inside = {"rank_in_group": int(asked[1]), "waits_for": int(asked[2])}
        yield made._replace(values={**made.values, **inside})
    found = _BARRIER.search(record.text)
    if found is None:
        return
    made = tell(
        "store-barrier", record, timed_out=found[1].startswith("Timed"), key=found[3],
        world_size=number(record, found, 4), came=number(record, found, 5),
    )  # fmt: skip
    yield made._replace(rank=int(found[2])) if made.rank is None else made
