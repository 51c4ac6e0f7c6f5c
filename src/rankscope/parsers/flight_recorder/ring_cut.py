"""Cut of a ring: the user wants the last entries of each rank only, or those of some groups.

The end of a dump stays whole, from its first unfinished operation on, as in a shorter ring that has wrapped: who waits
for whom, and where, does not depend on the cut.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from rankscope.parsers.contents import RINGS_VARIABLE
from rankscope.parsers.flight_recorder.model import Dump, OmittedEntries
from rankscope.parsers.matrices import NULL, Mask, row_keys

LEAST_ENTRIES = 64
"""Last entries of a dump that are read of all groups, chosen or not: they show how it came to the end."""


class RingChoice(NamedTuple):
    """The entries of a dump that the user wants; None for all."""

    last: int | None = None
    groups: frozenset[str] | None = None
    """Names or descriptions of groups."""


def cut_as_chosen(dump: Dump) -> Dump:
    """The dump with the entries that RINGS_VARIABLE asks for; all without it."""
    return cut_ring(dump, _choice(os.environ.get(RINGS_VARIABLE, "")))


@cache
def _choice(text: str) -> RingChoice:
    if not text:
        return RingChoice()
    told: dict[str, Any] = json.loads(text)
    groups = told["groups"]
    return RingChoice(told["last"], None if groups is None else frozenset(groups))


def cut_ring(dump: Dump, choice: RingChoice) -> Dump:
    """The dump without entries that are finished and not chosen; the same dump if it has none.

    Its end is whole, as that of a shorter ring; entries of the chosen groups may stand before it. Its arrays are
    copies: nothing holds the message that the dump came in. A dump that was cut may be cut again.
    """
    if not dump.rows or choice == RingChoice():
        return dump
    wanted = _wanted(dump, choice)
    least = LEAST_ENTRIES if choice.groups is not None else choice.last or dump.rows
    begin = _first_unfinished(dump, max(0, dump.rows - least))
    kept: Mask = wanted | (np.arange(dump.rows) >= begin)
    if kept.all():
        return dump
    omitted = _omitted(dump, int(dump.rows - kept.sum()))
    return replace(dump, omitted=omitted, numbers=dump.numbers[:, kept], codes=dump.codes[:, kept])


def _wanted(dump: Dump, choice: RingChoice) -> Mask:
    """The entries of the chosen groups, and the last ones of these."""
    groups = choice.groups
    chosen = [groups is None or bool(groups & {c.name or str(c.pg_id), c.description}) for c in dump.calls]
    wanted: Mask = np.array(chosen, np.bool_)[dump.code("call")]
    if choice.last is not None:
        wanted &= np.cumsum(wanted[::-1])[::-1] <= choice.last
    return wanted


def _first_unfinished(dump: Dump, before: int) -> int:
    """The first entry that somebody may wait in, or `before`; those of a coalesced group are finished with its
    closer."""
    done = [call.state == "completed" or call.retired is True for call in dump.calls]
    finished: Mask = np.array(done, np.bool_)[dump.code("call")] & ~_aborted(dump)
    if finished[:before].all():
        return before
    names = [call.name if call.name is not None else call.pg_id for call in dump.calls]
    index = {name: number for number, name in enumerate(dict.fromkeys(names))}
    group = np.array([index[name] for name in names], np.int64)[dump.code("call")]
    keys = row_keys(group, dump.column("seq"), dump.column("p2p_seq"))
    _, number = np.unique(keys, return_inverse=True)
    latest = np.full(int(number.max()) + 1, -1)
    np.maximum.at(latest, number[finished], np.flatnonzero(finished))
    waited = np.flatnonzero(~finished & (np.arange(dump.rows) >= latest[number]))
    return int(waited[0]) if len(waited) and waited[0] < before else before


def _aborted(dump: Dump) -> Mask:
    """The entries that ended at their timeout or later: an abort did it."""
    limits = [NULL if call.timeout_ms is None else call.timeout_ms * 1_000_000 for call in dump.calls]
    limit = np.array(limits, np.int64)[dump.code("call")]
    created, ended = dump.column("created_ns"), dump.column("completed_ns")
    known = (limit != NULL) & (created != NULL) & (ended != NULL)
    aborted: Mask = known & (ended - created >= limit)
    return aborted


def _omitted(dump: Dump, entries: int) -> OmittedEntries:
    """Facts on the whole dump, which a dump that was cut before remembers."""
    if dump.omitted is not None:
        return dump.omitted._replace(entries=dump.omitted.entries + entries)
    records, created = dump.column("record_id"), dump.column("created_ns")
    times = created[created != NULL]
    numbered = records.min() != NULL
    states = np.array([call.state == "completed" for call in dump.calls], np.bool_)
    begun = any((dump.column(name) != NULL).any() for name in ("started_ns", "duration_ns"))
    return OmittedEntries(
        entries,
        has_gaps=bool(numbered and np.any(np.diff(records) != 1)),
        any_completed=bool(states[dump.code("call")].any()),
        any_started=bool(begun),
        begin_ns=int(times.min()) if len(times) else None,
    )
