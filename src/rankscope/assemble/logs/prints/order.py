"""In which order lines of different ranks were printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rankscope.assemble.logs.prints.lanes import Lane, Lanes, timed
from rankscope.assemble.logs.times import moment
from rankscope.assemble.logs.works import not_before

_FINE_NS = 1_000_000
"""Coarser times order nothing."""


def orders(lanes: Lanes, written: Mapping[int, int | None]) -> Iterator[dict[int, Lane]]:
    """The lanes with times, the most telling first: as lines stand in one log, as they were stamped, without any.

    None is to be believed before all ranks fit to it: launchers mix lines, and hosts have clocks of their own.
    `written` has by log the time it was last written.
    """
    if len({log for lane in lanes.values() for log, _ in lane.events}) == 1:
        yield timed(lanes, {rank: [event.offset + 1 for _, event in lane.events] for rank, lane in lanes.items()})
    stamped = {rank: list(_stamped(lane, written)) for rank, lane in lanes.items()}
    if all(None not in times for times in stamped.values()):
        yield timed(lanes, {rank: [t for t in times if t is not None] for rank, times in stamped.items()})
    yield dict(lanes)


def _stamped(lane: Lane, written: Mapping[int, int | None]) -> Iterator[int | None]:
    before: int | None = None
    for log, event in lane.events:
        fine = event.stamp is not None and event.stamp.resolution_ns <= _FINE_NS
        before = not_before(moment(event.stamp, written[log]) if fine else None, before)
        yield before
