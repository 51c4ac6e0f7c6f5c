"""Recorders of dumps: the backend's own, or the hook that torch 2.15 attaches to all others.

Both write version 2.10 with the same keys but other meanings (torch/csrc/distributed/c10d/FlightRecorderHook.cpp of
2.15): the hook counts `op_id` from 0 in each group, where recorders count from 1, and every send and receive increases
it, also inside a batch; `pg_status` holds these numbers. A backend that reports no completions to the hook has entries
that are retired and scheduled from their issue on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.assemble.op_names import DEVICE_LIBRARIES, STATELESS_LIBRARIES, library_of
from rankscope.parsers.flight_recorder.model import Dump
from rankscope.parsers.matrices import NULL, Numbers
from rankscope.schema.tables import BLIND_HOOK, HOOK, HOOKS, NATIVE

HOOK_LIBRARIES = frozenset({"nccl2", "nccl-lazy"})
"""Libraries without a recorder of their own."""
AT_ISSUE_NS = 1_000_000
"""Duration below which a send or receive was part of a batch: the hook marks it as completed at the issue."""


def recorder_of(dump: Dump) -> str | None:
    """One of schema.RECORDERS; None for a dump without operations, which nothing distinguishes."""
    if not dump.rows:
        return None
    if not _hooked(dump):
        return NATIVE
    return BLIND_HOOK if any(call.retired and call.state == "scheduled" for call in dump.calls) else HOOK


def records_no_states(dump: Dump) -> bool:
    """Whether the recorder of a backend never observes states, so that only `retired` shows an end."""
    libraries = {library_of(call.profiling_name) for call in dump.calls}
    if not libraries or libraries <= STATELESS_LIBRARIES:
        return bool(libraries)
    seen = {call.state for call in dump.calls} - {"scheduled", None}
    return not seen and not libraries & DEVICE_LIBRARIES and any(call.retired for call in dump.calls)


def uncounted_libraries(dump: Dump) -> Numbers:
    """For each entry of a hook, the number of operations of its group before it without entry and sequence number.

    Operations under CUDA graph capture count in `op_id` and are not recorded; all others count in the sequence numbers,
    too: op_id = seq + p2p_seq - 1 + the returned number.
    """
    return dump.column("op_id") - dump.column("seq") - dump.column("p2p_seq") + 1


def _hooked(dump: Dump) -> bool:
    if any(library_of(call.profiling_name) in HOOK_LIBRARIES for call in dump.calls):
        return True
    if any((dump.column(name) == NULL).any() for name in ("op_id", "seq", "p2p_seq")) or is_torchcomms(dump):
        return False
    # a recorder counts from 1, so none of its entries has so low a number
    return bool(np.any(uncounted_libraries(dump) == 0) and (dump.column("seq") + dump.column("p2p_seq")).min() > 0)


# Missing entries of a dump: overwritten in the ring, or filtered because they had completed.


@dataclass(frozen=True)
class Completeness:
    """Facts on the missing entries of a dump."""

    wrapped: bool | None
    """Older entries were overwritten; None if unknown."""
    filtered: str
    """One of schema.FILTERS."""


def completeness(dump: Dump, recorder: str | None) -> Completeness:
    """The completeness of a dump, from record numbers, which count every entry of the process, and from completions.

    `recorder` is one of schema.RECORDERS; None if unknown.
    """
    if not dump.rows and not dump.truncated and dump.status == []:
        return Completeness(False, "none")  # nothing was ever recorded
    filtered = _filtered(dump, recorder)
    if dump.omitted is not None and filtered == "none":
        return Completeness(True, filtered)  # as if the ring had been short
    records = dump.column("record_id")
    if not dump.rows or filtered != "none" or records.min() == NULL:
        return Completeness(None, filtered)
    return Completeness(bool(records[0] > 0), filtered)


def _filtered(dump: Dump, recorder: str | None) -> str:
    first = 0 if recorder == HOOK else 1  # the lowest number of each
    done = dump.status is not None and any(s.completed >= first for s in dump.status)
    if not dump.rows:
        return _filtered_empty(dump, recorder)
    records = dump.column("record_id")
    numbered = records.min() != NULL
    if dump.omitted.has_gaps if dump.omitted is not None else numbered and np.any(np.diff(records) != 1):
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
    # active entries would be there, unless all entries were left out
    return "only-active" if all(s.enqueued <= s.completed for s in dump.status) else "unknown"


def _any_completed(dump: Dump) -> bool:
    if dump.omitted is not None:
        return dump.omitted.any_completed
    states = [call.state == "completed" for call in dump.calls]
    return bool(np.array(states)[dump.code("call")].any())


# torchcomms counts all groups of a recorder together: the ordinal within the group replaces its number.


def is_torchcomms(dump: Dump) -> bool:
    """Whether a dump is of torchcomms: groups described by their backend, one counter from 0 parallel to record_id.

    c10d counts each group from 1, separates sends and receives, and describes groups by their purpose.
    """
    if not dump.rows or any(call.is_p2p for call in dump.calls) or dump.column("p2p_seq").any():
        return False
    backends = DEVICE_LIBRARIES | STATELESS_LIBRARIES | {library_of(c.profiling_name) for c in dump.calls}
    if any(call.description not in backends for call in dump.calls):
        return False
    ahead = dump.column("seq") - dump.column("record_id")
    return bool(np.all(ahead == ahead[0]) and ahead[0] <= 0)


def renumber_groups(ops: pl.DataFrame, files: Sequence[int]) -> pl.DataFrame:
    """Counts collectives within each group from 1 in dumps of torchcomms; null if the first ones are gone."""
    if not files:
        return ops
    mine = pl.col("file").is_in(list(files))
    ordinal = (~pl.col("is_p2p")).cast(pl.Int64).cum_sum().over("file", "group")
    whole = (pl.col("seq").min() == 0).over("file")
    return ops.with_columns(
        pl.when(mine & whole).then(ordinal).when(mine).then(None).otherwise(pl.col("seq")).alias("seq")
    )
