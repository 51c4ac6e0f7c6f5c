"""How a dump was made: by a recorder of the backend itself, or by the hook that torch 2.15 attaches to all others.

Both write version 2.10 with the same keys, and mean other things (torch/csrc/distributed/c10d/FlightRecorderHook.cpp
of 2.15): the hook counts `op_id` from 0 in each group, where recorders count from 1, and every send and receive bumps
it, also inside a batch; `pg_status` holds these numbers. A backend that tells the hook of no completion has entries
that are retired and scheduled from the moment of their issue, for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rankscope.assemble import names, torchcomms
from rankscope.parsers.columnar import NULL, Numbers
from rankscope.parsers.flight_recorder.model import Dump
from rankscope.schema import BLIND_HOOK, HOOK, NATIVE

if TYPE_CHECKING:
    from rankscope.assemble.sources import Source

HOOK_LIBRARIES = frozenset({"nccl2", "nccl-lazy"})
"""Libraries that have no recorder of their own."""
AT_ISSUE_NS = 1_000_000
"""A send or receive that completes sooner was part of a batch: the hook is told so when the batch is issued."""


def recorder_of(dump: Dump) -> str | None:
    """One of schema.RECORDERS; None for a dump without operations, which nothing tells apart."""
    if not dump.rows:
        return None
    if not _hooked(dump):
        return NATIVE
    return BLIND_HOOK if any(call.retired and call.state == "scheduled" for call in dump.calls) else HOOK


def settle(sources: Sequence[Source]) -> None:
    """Takes dumps of a job without operations for what all others are.

    Not of a rank that has left another one with operations: the empty one is of another backend.
    """
    known = {source.recorder for source in sources} - {None}
    told = {source.rank for source in sources if source.recorder is not None}
    silent = [s for s in sources if s.recorder is None and s.dump is not None and s.rank not in told]
    if len(known) != 1 or not silent:
        return
    for source in silent:
        source.recorder = min(known, key=str)
        source.__dict__.pop("complete", None)


def uncounted(dump: Dump) -> Numbers:
    """For each entry of a hook how many operations of its group before it have no entry and no sequence number.

    Operations under CUDA graph capture are counted in `op_id` and not recorded; all others are counted in the sequence
    numbers, too: op_id = seq + p2p_seq - 1 + what is returned here.
    """
    return dump.column("op_id") - dump.column("seq") - dump.column("p2p_seq") + 1


def _hooked(dump: Dump) -> bool:
    if any(names.library_of(call.profiling_name) in HOOK_LIBRARIES for call in dump.calls):
        return True
    if any((dump.column(name) == NULL).any() for name in ("op_id", "seq", "p2p_seq")) or torchcomms.wrote(dump):
        return False
    # a recorder counts from 1, so that none of its entries has so low a number
    return bool(np.any(uncounted(dump) == 0) and (dump.column("seq") + dump.column("p2p_seq")).min() > 0)
