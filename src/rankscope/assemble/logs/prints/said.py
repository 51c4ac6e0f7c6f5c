"""What ranks say of the collective that failed: whom they missed at its barrier, and what another member called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from rankscope.assemble.logs.prints.lanes import Calls, Lanes, Print
from rankscope.assemble.logs.prints.last import Quote, Reports
from rankscope.assemble.logs.prints.rows import Told


def read_reports(said: Iterable[Told], lanes: Lanes, calls: Calls) -> Reports:
    """Only of the last operation of each rank: what is printed in front of its line is of another."""
    quotes: defaultdict[int, list[Quote]] = defaultdict(list)
    absent: defaultdict[int, set[int]] = defaultdict(set)
    for told in said:
        lane = lanes.get(told.rank)
        if lane is None or not of_last(told, lanes):
            continue
        values, last = told.event.values, lane.prints[-1]
        if told.event.kind == "monitored-barrier":
            missed = [place for place in values["failed_ranks"] if place != last.place]
            if missed and values.get("reporter") == last.place:
                absent[told.rank].update(missed)
        elif (quote := _quote(told, last, calls)) is not None:
            quotes[told.rank].append(quote)
    return Reports(dict(quotes), {rank: frozenset(places) for rank, places in absent.items()})


def of_last(told: Told, lanes: Lanes) -> bool:
    """Whether a line stands behind the last fingerprint of its rank."""
    log, event = lanes[told.rank].events[-1]
    return log == told.log and event.offset < told.event.offset


def _quote(told: Told, last: Print, calls: Calls) -> Quote | None:
    places, prints = told.event.values["ranks"], told.event.values["fingerprints"]
    if len(places) != 2 or len(prints) != 2:
        return None
    (seq, *own), (other_seq, *other) = prints
    if (places[0], seq, calls.number(own)) != (last.place, last.seq, last.call):
        return None
    return Quote(places[1], other_seq, calls.number(other))
