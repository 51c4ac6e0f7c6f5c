"""What repeats in the operations of all dumps, worked out once for each distinct value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

import polars as pl

from rankscope.assemble.groups import Groups
from rankscope.assemble.op_names import (
    P2P_OPS,
    is_closer_name,
    library_of,
    op_of,
    p2p_ranks,
)
from rankscope.assemble.recorders import records_no_states
from rankscope.assemble.sources import Source
from rankscope.parsers.flight_recorder.model import Call, Dump
from rankscope.schema import BLIND_HOOK, STATES


class Meaning(NamedTuple):
    """A call in the words of the frame; columns of `call_table` in this order."""

    group: int
    library: str
    op: str
    is_p2p: bool
    peer: int | None
    thread: str | None
    timeout_ms: int | None
    state: str
    retired: bool | None
    names_closer: bool


SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "group": pl.UInt32, "library": pl.Categorical, "op": pl.Categorical, "is_p2p": pl.Boolean, "peer": pl.Int32,
    "thread": pl.Categorical, "timeout_ms": pl.Int64, "state": pl.Enum(STATES), "retired": pl.Boolean,
    "names_closer": pl.Boolean,
}  # fmt: skip


def call_table(sources: list[Source], groups: Groups) -> pl.DataFrame:
    """The meaning of every call of every source, one after the other."""
    rows: list[Meaning] = []
    for i, source in enumerate(sources):
        dump = source.dump or Dump()
        threads = _thread_names(dump.calls)
        state = _states(source, dump)
        for call, group in zip(dump.calls, groups.by_call.get(i, []), strict=True):
            rows.append(_meaning(call, group, groups, threads, state(call)))
    columns = zip(*rows, strict=True) if rows else ([] for _ in SCHEMA)
    return pl.DataFrame(dict(zip(SCHEMA, map(list, columns), strict=True)), schema=SCHEMA)


def _states(source: Source, dump: Dump) -> Callable[[Call], str]:
    """The state of a call of a dump, as its recorder means it."""
    if source.recorder == BLIND_HOOK:
        return lambda _: "unknown"
    return _by_retirement if records_no_states(dump) else _as_written


def _meaning(
    call: Call, group: int, groups: Groups, threads: dict[tuple[str | None, str | None], str], state: str
) -> Meaning:
    op = op_of(call.profiling_name)
    p2p = p2p_ranks(call.profiling_name)
    return Meaning(
        group, library_of(call.profiling_name), op, op in P2P_OPS or bool(call.is_p2p),
        None if p2p is None else _peer(p2p[1], group, groups), threads.get((call.thread_name, call.thread_id)),
        call.timeout_ms, state, call.retired, is_closer_name(op),
    )  # fmt: skip


def _peer(place: int | None, group: int, groups: Groups) -> int | None:
    """The global rank at a place of a group. Inferred members may lack some, and then places tell nothing."""
    if place is None:
        return None
    members = groups.members[group]
    stated = groups.rows[group].key.members is not None or members == tuple(range(len(members)))
    return members[place] if stated and place < len(members) else None


def _by_retirement(call: Call) -> str:
    return "unknown" if call.retired is None else "completed" if call.retired else "scheduled"


def _as_written(call: Call) -> str:
    return call.state if call.state in STATES else "unknown"


def _thread_names(calls: Iterable[Call]) -> dict[tuple[str | None, str | None], str]:
    """What to call each thread: its name, with its id where two have the same."""
    ids: dict[str | None, set[str | None]] = defaultdict(set)
    for call in calls:
        ids[call.thread_name].add(call.thread_id)
    labels = {}
    for name, members in ids.items():
        for thread_id in members:
            text = name if name and len(members) == 1 else " ".join(x for x in (name, thread_id) if x)
            labels[name, thread_id] = text
    return {key: text for key, text in labels.items() if text}
