"""What a dump left out: overwritten by the ring, or filtered because it had completed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankscope.assemble.calls import records_no_states
from rankscope.parsers.columnar import NULL
from rankscope.parsers.flight_recorder.model import Dump
from rankscope.schema import BLIND_HOOK, HOOK, HOOKS


@dataclass(frozen=True)
class Completeness:
    """What is known of the entries that a dump does not have."""

    wrapped: bool | None
    """Older entries were overwritten; None: cannot be told."""
    filtered: str
    """One of schema.FILTERS."""


def completeness(dump: Dump, recorder: str | None) -> Completeness:
    """Looks at the record numbers, which count every entry of the process, and at what has completed.

    `recorder` is how the dump was made, one of schema.RECORDERS; None where nothing tells.
    """
    if not dump.rows and not dump.truncated and dump.status == []:
        return Completeness(False, "none")  # nothing was ever recorded
    filtered = _filtered(dump, recorder)
    records = dump.column("record_id")
    if not dump.rows or filtered != "none" or records.min() == NULL:
        return Completeness(None, filtered)
    return Completeness(bool(records[0] > 0), filtered)


def _filtered(dump: Dump, recorder: str | None) -> str:
    first = 0 if recorder == HOOK else 1  # the lowest number that each gives
    done = dump.status is not None and any(s.completed >= first for s in dump.status)
    if not dump.rows:
        return _filtered_empty(dump, recorder)
    records = dump.column("record_id")
    numbered = records.min() != NULL
    if numbered and np.any(np.diff(records) != 1):
        return "only-active"
    if recorder == BLIND_HOOK or records_no_states(dump) or _any_completed(dump):
        return "none"
    if done:
        return "only-active"
    return "none" if numbered and records[0] == 0 else "unknown"


def _filtered_empty(dump: Dump, recorder: str | None) -> str:
    if dump.status and not dump.truncated and recorder in HOOKS:
        return "only-active"
    if dump.truncated or not dump.status or dump.library_version == "":
        return "unknown"
    # entries that are active would be there, unless all entries were left out
    return "only-active" if all(s.enqueued <= s.completed for s in dump.status) else "unknown"


def _any_completed(dump: Dump) -> bool:
    states = [call.state == "completed" for call in dump.calls]
    return bool(np.array(states)[dump.code("call")].any())
