"""Fingerprints that are printed after all were put to their groups: each goes on where its rank's have ended.

Where several groups of a rank are at the same number, it is of the one that such a call was of before, each time that
it followed one of the same group: a training loop does the same again and again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from rankscope.parsers.assemble.logs.log_processes import Log
from rankscope.parsers.assemble.logs.prints.rows import printed_row
from rankscope.parsers.assemble.logs.reports import Claims, Row
from rankscope.parsers.logs.event import Event

Step = tuple[int, str]
"""The group of the fingerprint before, and what is called."""


class Seat(NamedTuple):
    """A rank in a group, and its last fingerprint there."""

    place: int | None
    """Rank in the group; None if lines do not say it."""
    seq: int
    created_ns: int | None


@dataclass(frozen=True)
class End:
    """Where the fingerprints of a rank have ended."""

    log: int
    """Number of the log that has them."""
    seats: Mapping[int, Seat]
    """By row of `groups`; all of them are of one of these."""
    last: int
    """The group of the last one."""
    followed: Mapping[Step, frozenset[int]]
    """Of which groups those were that came after each step; of a rank in one group nothing."""


def end_of(rank: int, own: Mapping[int, list[tuple[int, Event]]], claims: Claims) -> End | None:
    """Where a rank's fingerprints have ended, which are given by group with the number of their log; None if apart."""
    logs = {number for events in own.values() for number, _ in events}
    if len(logs) != 1:
        return None
    seats = {}
    for group, events in own.items():
        values = events[-1][1].values
        last = claims[rank, group].rows.get(values["seq"])
        seats[group] = Seat(values.get("rank_in_group"), values["seq"], last.created_ns if last is not None else None)
    order = sorted((event.offset, group, _call(event)) for group, events in own.items() for _, event in events)
    followed: defaultdict[Step, set[int]] = defaultdict(set)
    for (_, before, _), (_, group, call) in pairwise(order if len(own) > 1 else ()):
        followed[before, call].add(group)
    return End(logs.pop(), seats, order[-1][1], {step: frozenset(groups) for step, groups in followed.items()})


def more_prints(logs: Mapping[int, Log], ends: Mapping[int, End]) -> dict[tuple[int, int], list[Row]] | None:
    """Rows by rank and group of what logs print more, which are given by their number.

    None if it cannot be told of which group one of them is.
    """
    now, found = dict(ends), dict[tuple[int, int], list[Row]]()
    for number, log in logs.items():
        for event in log.content.events:
            rank = event.rank if event.rank is not None else log.source.rank
            end = now.get(rank) if rank is not None else None
            if end is None or rank is None:
                return None
            if end.log != number:
                # another log repeats what it says
                continue
            group = _group_of(event, end)
            if group is None:
                return None
            made = printed_row(log, event, end.seats[group].created_ns)
            seat = Seat(end.seats[group].place, made.seq, made.created_ns)
            now[rank] = replace(end, seats={**end.seats, group: seat}, last=group)
            found.setdefault((rank, group), []).append(made)
    return found


def _group_of(event: Event, end: End) -> int | None:
    """The only group of a rank in which a fingerprint is the next; None without one, or with several."""
    seq, place = event.values.get("seq"), event.values.get("rank_in_group")
    fits = {group for group, seat in end.seats.items() if seat.seq + 1 == seq and seat.place == place}
    if len(fits) > 1:
        fits &= end.followed.get((end.last, _call(event)), frozenset())
    return fits.pop() if len(fits) == 1 else None


def _call(event: Event) -> str:
    """What a fingerprint says is called, as text: it may say anything."""
    return repr([event.values.get(name) for name in ("op", "shape", "dtype", "device")])
