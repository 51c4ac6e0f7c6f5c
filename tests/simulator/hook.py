"""Writes what FlightRecorderHook of torch 2.15 would write of a rank: other meanings under the keys of version 2.10.

Sources: torch 2.15.0, FlightRecorderHook.hpp and what it writes over a backend with and without completion hook.

- One entry for each call of the dispatcher: coalesced collectives are one entry, batches have no closer, a barrier no
  sizes, a send no output and a receive no input. Names are those of the calls (`all_to_all_single`).
- `op_id` counts both kinds of operations of a group from 0, `p2p_seq_id` every send and receive, also in a batch:
  op_id = collective_seq_id + p2p_seq_id - 1. `pg_status` counts op_id; nothing is ever seen to start.
- An operation is scheduled, then completed and retired at the moment its end is noticed, which is its start time, too.
  What is in a batch is answered by a work that is completed: it reads so some microseconds after its issue, always.
- Without a completion hook everything reads scheduled and retired from its issue on, and nothing else.
- `pg_config` names every group of the process, used or not; `pg_status` those with operations.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulator.dump import View, config
from tests.simulator.instructions import Shapes
from tests.simulator.notices import CALL_NS, noticed
from tests.simulator.record import Record
from tests.simulator.stacks import STACKS
from tests.simulator.topology import WORLD

COALESCED = {
    "_all_gather_base": "all_gather_into_tensor_coalesced", "_reduce_scatter_base": "reduce_scatter_tensor_coalesced",
    "all_reduce": "allreduce_coalesced",
}  # fmt: skip
NEVER = (-1, False, -1)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation as the hook counts it."""

    record: Record
    created_ns: int
    """True time of its issue: those of a batch are issued one after the other."""
    name: str
    inputs: Shapes
    outputs: Shapes
    dtype: str
    seq: int
    p2p_seq: int
    noticed_ns: int | None
    """True time at which its end is noticed."""

    @property
    def op_id(self) -> int:
        """Its number in the group, from 0."""
        return self.seq + self.p2p_seq - 1


def operations(records: Sequence[Record], phase_ns: int) -> Iterator[Operation]:
    """What the hook records of the operations of a rank, in the order of issue."""
    ends = noticed(records, phase_ns)
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    inner: list[Record] = []
    for place, record in enumerate(records):
        count = counts[record.group]
        if record.role == "inner":
            inner.append(record)
        if record.is_p2p and record.role != "closer":
            count[1] += 1
            yield _message(record, (count[0], count[1]), len(inner), ends.get(place))
        elif record.role != "inner" and not record.is_p2p:
            count[0] += 1
            yield _collective(record, inner or [record], (count[0], count[1]), ends.get(place))
        if record.role == "closer":
            inner = []


def _message(record: Record, count: tuple[int, int], turn: int, end: int | None) -> Operation:
    """A send or receive; `turn` is its place in its batch from 1, 0 if it is in none."""
    inputs, outputs = (record.inputs, ()) if record.op == "send" else ((), record.outputs)
    created = record.created + max(0, turn - 1) * CALL_NS
    answered = created + CALL_NS // 2 if turn else end
    return Operation(record, created, record.name, inputs, outputs, record.dtype, *count, answered)


def _collective(record: Record, parts: list[Record], count: tuple[int, int], end: int | None) -> Operation:
    inputs, outputs = (tuple(s for p in parts for s in sizes(p)) for sizes in (_inputs, _outputs))
    return Operation(record, record.created, _name(parts), inputs, outputs, parts[0].dtype, *count, end)


def _name(parts: list[Record]) -> str:
    op = parts[0].op
    if len(parts) > 1:
        return COALESCED[op]
    if op == "all_to_all" and len(parts[0].inputs) == 1:
        return "all_to_all_single"
    return "barrier" if op == "all_reduce_barrier" else op


def _inputs(part: Record) -> Shapes:
    return () if part.op == "all_reduce_barrier" else part.inputs


def _outputs(part: Record) -> Shapes:
    return () if part.op == "all_reduce_barrier" else part.outputs


def content(view: View) -> dict[str, Any]:
    """The dump of a rank by the hook."""
    records = [r for r in view.records if not r.on_host]
    every = list(operations(records, view.watchdog.phase_ns))
    return {
        "version": view.options.version, "pg_config": config(view.topology, list(view.ids)), "comm_lib_version": "",
        "pg_status": _status(every, view), "entries": _entries(every, view),
    }  # fmt: skip


def _end(one: Operation, view: View) -> int | None:
    there = view.options.recorder == "hook" and one.noticed_ns is not None and one.noticed_ns <= view.at
    return one.noticed_ns if there else None


def _status(every: Sequence[Operation], view: View) -> dict[str, dict[str, int]]:
    # one look goes through the queue of the current stream first, and the last it comes to counts
    last: dict[int, int] = {}
    ended: dict[int, tuple[int, bool, int]] = {}
    for one in every:
        pg, end = view.ids[one.record.group], _end(one, view)
        last[pg] = one.op_id
        if end is not None:
            ended[pg] = max(ended.get(pg, NEVER), (end, not one.record.sync, one.op_id))
    return {
        str(pg): {
            "last_enqueued_collective": last[pg], "last_started_collective": -1,
            "last_completed_collective": ended.get(pg, NEVER)[2],
        }
        for pg in sorted(last)
    }  # fmt: skip


def _entries(every: Sequence[Operation], view: View) -> list[dict[str, Any]]:
    first = max(0, len(every) - view.options.ring)
    kept = enumerate(every[first:], first)
    return [_entry(i, one, view) for i, one in kept if not (view.options.only_active and _end(one, view) is not None)]


def _entry(record_id: int, one: Operation, view: View) -> dict[str, Any]:
    options, record, end = view.options, one.record, view.shift(_end(one, view))
    row: dict[str, Any] = {"frames": list(STACKS[record.stack])} if options.stacks and not options.json else {}
    row.update(
        record_id=record_id, pg_id=view.ids[record.group],
        process_group=(record.group, view.topology.descriptions[record.group]),
        thread_name="python3", thread_id="140361079475072",
        collective_seq_id=one.seq, p2p_seq_id=one.p2p_seq, op_id=one.op_id,
        profiling_name=sys.intern(f"{options.backend}:{one.name}"), time_created_ns=view.shift(one.created_ns),
        input_sizes=[list(s) for s in one.inputs], input_dtypes=[one.dtype] * len(one.inputs),
        output_sizes=[list(s) for s in one.outputs], output_dtypes=[one.dtype] * len(one.outputs),
        state="scheduled" if end is None else "completed", time_discovered_started_ns=end,
        time_discovered_completed_ns=end, retired=options.recorder == "fallback" or end is not None,
        timeout_ms=options.timeout_ns // 1_000_000, is_p2p=record.is_p2p,
    )  # fmt: skip
    return row


def host_content(view: View) -> dict[str, Any]:
    """The dump of the gloo half of a job of two backends, by gloo's own recorder of torch 2.15.

    Nothing but `retired` tells an end, op_id counts from 1, and the group's configuration has lost its name.
    """
    records = [r for r in view.records if r.on_host]
    world = str(list(view.topology.groups[WORLD]))
    ended = [r.seq for r in records if r.done is not None and r.done <= view.at]
    row = {
        "last_enqueued_collective": len(records), "last_started_collective": -1,
        "last_completed_collective": max(ended, default=-1),
    }  # fmt: skip
    return {
        "version": view.options.version, "pg_config": {"": {"name": "", "desc": "", "ranks": world}},
        "comm_lib_version": "", "pg_status": {"0": row} if records else {},
        "entries": [_host_entry(i, r, view) for i, r in enumerate(records)],
    }  # fmt: skip


def _host_entry(record_id: int, record: Record, view: View) -> dict[str, Any]:
    one = Operation(record, record.created, record.op, record.inputs, record.outputs, record.dtype, record.seq, 0, None)
    row = _entry(record_id, one, view)
    return {
        **row, "pg_id": 0, "op_id": record.seq, "retired": record.done is not None and record.done <= view.at,
        "timeout_ms": 1_800_000,
    }  # fmt: skip
