"""When nccl2 notices that something has ended: what a dump can say lags behind what happened.

Source: torch 2.15, c10d/nccl2: ProcessGroupNCCL keeps a queue of works for each stream (one for what is asynchronous
and for sends and receives, one for what runs on the current stream) and looks at them from the front: its watchdog does
once a second, and so does every call that issues something in that group. A work that has not ended hides those behind
it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tests.simulator.instructions import SECOND, US
from tests.simulator.record import Record

WATCH_NS = SECOND
"""How often the watchdog of a group looks."""
CALL_NS = 2 * US
"""What one call in a batch takes; the batch itself is issued after them, and looks at what has ended only then."""
_APART_NS = 137_000_003


def noticed(records: Sequence[Record], phase_ns: int) -> dict[int, int]:
    """For each work whose end is noticed at some time, its place in `records` and that true time."""
    by_group: defaultdict[str, list[int]] = defaultdict(list)
    issued: defaultdict[str, list[int]] = defaultdict(list)
    batched = 0
    for place, record in enumerate(records):
        if record.role == "inner":
            batched += record.is_p2p
            continue
        by_group[record.channel].append(place)
        issued[record.channel].append(record.created + batched * CALL_NS)
        batched = 0
    out: dict[int, int] = {}
    for group, places in by_group.items():
        for place, ready in _ready(records, places):
            later = bisect_right(issued[group], ready)
            out[place] = min([next_look(ready, phase_ns, group), *issued[group][later : later + 1]])
    return out


def next_look(when: int, phase_ns: int, group: str) -> int:
    """When the watchdog of a group looks for the first time from `when` on."""
    phase = phase_ns + _APART_NS * sum(group.encode())
    return when + (phase - when) % WATCH_NS


def _ready(records: Sequence[Record], places: Iterable[int]) -> Iterable[tuple[int, int]]:
    """The places of what has ended, with everything before it in its queue, and since when that is so."""
    fronts: dict[bool, int | None] = {True: 0, False: 0}
    for place in places:
        record = records[place]
        front = fronts[record.sync]
        if front is None or record.done is None:
            fronts[record.sync] = None
        else:
            fronts[record.sync] = max(front, record.done)
            yield place, max(front, record.done)
