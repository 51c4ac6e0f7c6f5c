"""Lining up: the same collective on every member, each moved so that all of them arrive in one column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rankscope.tui.traces.lanes import TraceLanes


@dataclass(frozen=True)
class LineUp:
    """A collective under which all members stand."""

    match: int
    arrived: Mapping[int, int]
    """By lane, when its rank came."""
    spans: Mapping[int, int]
    """By lane, its span."""
    low: int
    """When the first came, and when the last ended."""
    high: int
    anchor: int
    """The lane whose times are those of the axis."""
    last: int
    """The lane that came last."""

    def shift(self, lane: int) -> int:
        """What to add to a time of the axis for the time of a lane."""
        return self.arrived.get(lane, self.arrived[self.anchor]) - self.arrived[self.anchor]

    def late(self, lane: int) -> int:
        """How long after the first a lane came, in nanoseconds."""
        return self.arrived[lane] - min(self.arrived.values())

    @property
    def lanes(self) -> tuple[int, ...]:
        """The lanes of the members, rising."""
        return tuple(sorted(self.arrived))


def line_up(lanes: TraceLanes, span: int) -> LineUp | None:
    """The collective that a span is a part of on all its members; None where it was not matched."""
    row = int(lanes.spans.op[span])
    match = int(lanes.match_of[row]) if row >= 0 else -1
    if match < 0:
        return None
    arrived: dict[int, int] = {}
    spans: dict[int, int] = {}
    ends: list[int] = []
    for member in lanes.members(match).iter_rows(named=True):
        lane = lanes.lane_of.get(member["rank"])
        if lane is None or member["arrived_ns"] is None:
            continue
        arrived[lane] = member["arrived_ns"]
        ends.append(member["ended_ns"] or member["arrived_ns"])
        if member["row"] in lanes.span_of_row:
            spans[lane] = lanes.span_of_row[member["row"]]
    anchor = lanes.lane_of[int(lanes.dataset.traced["rank"][row])]
    if anchor not in arrived or len(arrived) < 2:
        return None
    last = max(arrived, key=lambda lane: arrived[lane])
    return LineUp(match, arrived, spans, min(arrived.values()), max(ends), anchor, last)
