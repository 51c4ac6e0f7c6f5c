"""Writes what the recorder of a rank would write: versions 2.2 to 2.10, pickle protocol 2 or JSON."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from tests.simulator.options import DumpOptions
from tests.simulator.record import Record
from tests.simulator.stacks import STACKS
from tests.simulator.topology import Topology
from tests.simulator.watchdog import Seen, Watchdog, seen, status

COALESCED_INNER = (2, 7)
PG_STATUS = (2, 3)
LIBRARY_VERSION = (2, 6)
THREADS = (2, 9)
NEW_NAME = (2, 10)
LIBRARY = "2.27.3"


@dataclass(frozen=True)
class View:
    """One rank at the true time `at`: what it had issued by then, through the eyes of its watchdog."""

    topology: Topology
    rank: int
    records: Sequence[Record]
    watchdog: Watchdog
    at: int
    skew: int
    options: DumpOptions

    @cached_property
    def ids(self) -> dict[str, int]:
        """Each process counts the groups it belongs to, in the order in which they were made."""
        own = sorted((name for name, ranks in self.topology.groups.items() if self.rank in ranks), key=int)
        return {name: i for i, name in enumerate(own)}

    def shift(self, when: int | None) -> int | None:
        """A true time by the clock of the host."""
        return None if when is None else when + self.skew


def content(view: View) -> dict[str, Any]:
    """The dump of a rank."""
    names, ids, release = sorted({r.group for r in view.records}, key=int), view.ids, view.options.release
    out: dict[str, Any] = {"version": view.options.version, "pg_config": config(view.topology, names)}
    if release >= LIBRARY_VERSION:
        out["comm_lib_version" if release >= NEW_NAME else "nccl_version"] = LIBRARY
    if release >= PG_STATUS:
        counters = status(view.records, view.watchdog, view.at, view.options.timing)
        out["pg_status"] = {str(ids[name]): counters[name] for name in names if name in counters}
    out["entries"] = entries(view)
    return out


def config(topology: Topology, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """pg_config of these groups."""
    return {
        n: {"name": n, "desc": topology.descriptions[n], "ranks": str(list(topology.groups[n]))} for n in sorted(names)
    }


def entries(view: View) -> list[dict[str, Any]]:
    """The entries still in the ring, oldest first."""
    ids, options = view.ids, view.options
    kept = [r for r in view.records if options.release >= COALESCED_INNER or r.role != "inner" or r.is_p2p]
    first = max(0, len(kept) - options.ring)
    rows = []
    for record_id, record in enumerate(islice(kept, first, None), first):
        known = seen(record, view.watchdog, view.at, options.timing)
        if not (options.only_active and known.completed_ns is not None):
            rows.append(_entry(record_id, record, known, ids[record.group], view))
    return rows


def _entry(record_id: int, record: Record, known: Seen, pg_id: int, view: View) -> dict[str, Any]:
    options = view.options
    row: dict[str, Any] = {"frames": list(STACKS[record.stack])} if options.stacks and not options.json else {}
    row.update(record_id=record_id, pg_id=pg_id, process_group=(record.group, view.topology.descriptions[record.group]))
    if options.release >= THREADS:
        row.update(thread_name="python3", thread_id="140361079475072")
    row.update(
        collective_seq_id=record.seq, p2p_seq_id=record.p2p_seq, op_id=record.op_id,
        profiling_name=sys.intern(f"nccl:{record.name}"), time_created_ns=view.shift(record.created),
    )  # fmt: skip
    if options.timing and known.retired and record.done is not None and record.arrived is not None:
        row["duration_ms"] = (record.done - record.arrived) / 1e6
    row.update(
        input_sizes=[list(s) for s in record.inputs], input_dtypes=[record.dtype] * len(record.inputs),
        output_sizes=[list(s) for s in record.outputs], output_dtypes=[record.dtype] * len(record.outputs),
        state=known.state, time_discovered_started_ns=view.shift(known.started_ns),
        time_discovered_completed_ns=view.shift(known.completed_ns), retired=known.retired,
        timeout_ms=options.timeout_ns // 1_000_000,
        # a closer never says so, whatever it closes; pg_status counts it with the sends and receives (torch 2.11)
        is_p2p=record.is_p2p and record.role != "closer",
    )  # fmt: skip
    return row


def encode(dump: dict[str, Any], options: DumpOptions) -> bytes:
    """The bytes of a dump; in JSON as its own writer has it."""
    if not options.json:
        return pickle.dumps(dump, protocol=2)
    out = dict(dump, pg_status={k: {n: str(v) for n, v in row.items()} for k, row in dump["pg_status"].items()})
    out["nccl_comm_state"] = {}
    for row in out["entries"]:
        for name in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            row[name] = row[name] or 0
    if not out["entries"]:
        del out["entries"]
    return json.dumps(out, sort_keys=True, separators=(",", ":")).encode()
