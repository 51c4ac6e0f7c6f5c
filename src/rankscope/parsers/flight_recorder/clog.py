"""Decoder of the log that the hook of torchcomms writes of each rank: a line for each event of each operation.

    V|1|base_timestamp=1714234567.890
    new_comm|comm=world|rank=0|world_size=8
    C1|sig|all_reduce|in_count=1024|out_count=1024|dtype=f32|red_op=sum|async_op=f|comm=world
    C1|Q|work_id=1|+0.001
    C1|S|+0.002
    C1|E|+0.005

`C1` is a signature, which many operations share; Q, S, E and W are the issue, the start, the end, and the wait of the
host. Source: comms/torchcomms/hooks/clog of meta-pytorch/torchcomms, format 1. The content is that of a dump with
numbers counted within each group; replays of CUDA graphs have no issue, and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from rankscope.parsers.flight_recorder import dump_columns
from rankscope.parsers.flight_recorder.model import Dump
from rankscope.parsers.matrices import NULL, Numbers
from rankscope.parsers.members import GroupConfig
from rankscope.parsers.safe_values import RANK_LIMIT, rank_list

LIBRARY = "torchcomms"
MOST_ENTRIES = 100_000
"""Operations that are kept, the newest."""
MOST_TABLES = 1 << 16
"""Most signatures, and most groups."""
NAME_LIMIT = 256
_HEAD = re.compile(rb"(?:\xef\xbb\xbf)?V\|\d{1,3}\|base_timestamp=(\d{1,12}(?:\.\d{1,9})?)\s")
_EVENT = re.compile(
    rb"^(?:G\d{1,19}\|)?C(\d{1,9})\|([QSEW])(?:\|work_id=\d{1,19})?\|\+(\d{1,9}(?:\.\d{1,9})?)\r?$", re.MULTILINE
)
_SIGNATURE = re.compile(rb"^C(\d{1,9})\|sig\|(\w{1,64})\|([^\r\n]{0,65536})\r?$", re.MULTILINE)
_COMM = re.compile(rb"^new_comm\|comm=([^|\n]{0,256})\|rank=(\d{1,7})\|world_size=(\d{1,7})\r?$", re.MULTILINE)
_SPLIT = re.compile(rb"^split\|parent=[^|\n]{0,256}\|child=([^|\n]{0,256})\|ranks=([\d,]{0,1000000})\r?$", re.MULTILINE)
_REPLAY = re.compile(rb"^G\d{1,19}\|R\d", re.MULTILINE)
_OTHER = re.compile(rb"^(?:V\||WARN\||\r?\n)", re.MULTILINE)
_TYPES = {
    "f32": "Float", "f64": "Double", "f16": "Half", "bf16": "BFloat16", "i32": "Int", "i64": "Long", "i16": "Short",
    "i8": "Char", "u8": "Byte", "bool": "Bool", "fp8e4m3": "Float8_e4m3fn", "fp8e5m2": "Float8_e5m2",
}  # fmt: skip
_P2P = ("send", "recv")
_UNEVEN = ("_v", "all_to_all", "scatter", "gather")
"""Operations of such names may have other sizes on each rank."""
_SECOND = 1_000_000_000

_Entry = dict[str, Any]


def looks_like_clog(head: bytes) -> bool:
    """Whether a file begins with the version and the time of such a log."""
    return _HEAD.match(head) is not None


def decode_clog(data: bytes) -> Dump:
    """The operations in a log that looks like one."""
    head = _HEAD.match(data)
    base_ns = round(float(head[1]) * 1000) * 1_000_000 if head is not None else 0
    events = _EVENT.findall(data)
    comms = {_text(name): (int(rank), int(size)) for name, rank, size in _COMM.findall(data)[:MOST_TABLES]}
    comms = {name: (rank, size) for name, (rank, size) in comms.items() if rank < size <= RANK_LIMIT}
    splits = {_text(child): ranks.decode() for child, ranks in _SPLIT.findall(data)[:MOST_TABLES]}
    found = _SIGNATURE.findall(data)[:MOST_TABLES]
    signatures = {int(number): _signed(op.decode(), _text(fields), comms) for number, op, fields in found}
    world = max(comms, key=lambda name: comms[name][1], default=None)
    rank = comms[world][0] if world is not None and world not in splits else None
    torn = data[-1:] != b"\n"
    dump = Dump(version="clog 1", config=_groups(comms, splits, world), truncated=torn, rank=rank)
    dump_columns.fill_columns(dump, _entries(events, signatures, base_ns), len(data))
    strange = {str(number).encode() for number in {int(n) for n, _, _ in events} - signatures.keys()}
    known = (
        sum(n not in strange for n, _, _ in events) + len(found) + len(comms) + len(splits) + len(_OTHER.findall(data))
    )
    dump.problem = _problem(len(_REPLAY.findall(data)), data.count(b"\n") - known)
    return dump


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _problem(replays: int, lines: int) -> str | None:
    notes = [
        f"{replays} events of replays of CUDA graphs left out" if replays else "",
        f"{lines - replays} lines not understood" if lines > replays else "",
    ]
    return "; ".join(filter(None, notes)) or None


def _signed(op: str, fields: str, comms: Mapping[str, tuple[int, int]]) -> _Entry:
    """The values of all operations of a signature."""
    told = dict(part.partition("=")[::2] for part in fields.split("|")[:64])
    comm, peer = told.get("comm", "")[:NAME_LIMIT], told.get("peer", "")
    is_p2p, dtype = op in _P2P, _TYPES.get(told.get("dtype", ""), told.get("dtype", "")[:NAME_LIMIT])
    name = op
    if is_p2p and peer.isdecimal():
        name = f"{op} {comms.get(comm, (0, 0))[0]}{'->' if op == 'send' else '<-'}{int(peer[:7])}"
    even = not is_p2p and not any(part in op for part in _UNEVEN)
    sizes = {side: told.get(f"{side}_count", "")[:18] for side in ("in", "out")}
    return {
        "process_group": (comm, comm), "profiling_name": f"{LIBRARY}:{name}", "is_p2p": is_p2p,
        "input_sizes": [[int(sizes["in"])]] if even and sizes["in"].isdecimal() else None,
        "output_sizes": [[int(sizes["out"])]] if even and sizes["out"].isdecimal() else None,
        "input_dtypes": [dtype] if dtype and even else None, "output_dtypes": [dtype] if dtype and even else None,
    }  # fmt: skip


def _entries(events: list[tuple[bytes, bytes, bytes]], signatures: Mapping[int, _Entry], base_ns: int) -> list[_Entry]:
    """The newest operations as entries of a dump, in the order of their issue."""
    if not events or not signatures:
        return []
    numbers, kinds, seconds = zip(*events, strict=True)
    number, kind = np.array(numbers).astype(np.int64), np.array(kinds)
    times = base_ns + np.round(np.array(seconds).astype(np.float64) * _SECOND).astype(np.int64)
    issued = np.flatnonzero((kind == b"Q") & np.isin(number, list(signatures)))
    keys = _ordinal_keys(number[issued])
    reached = [_times_of(keys, number[kind == what], times[kind == what]) for what in (b"S", b"E")]
    lifecycle = bool(((kind == b"S") | (kind == b"E")).any())
    seq, p2p_seq = _counted([signatures[n] for n in number[issued].tolist()])
    return [
        _entry(
            signatures[int(number[issued[k]])],
            k,
            (int(seq[k]), int(p2p_seq[k])),
            int(times[issued[k]]),
            (int(reached[0][k]), int(reached[1][k])),
            lifecycle,
        )
        for k in range(max(0, len(issued) - MOST_ENTRIES), len(issued))
    ]


def _ordinal_keys(numbers: Numbers) -> Numbers:
    """For each event a key of its signature and its place among the events of that signature."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    firsts = np.flatnonzero(np.diff(ordered, prepend=-1))
    place = np.empty(len(numbers), np.int64)
    place[order] = np.arange(len(numbers)) - np.repeat(firsts, np.diff(firsts, append=len(numbers)))
    return (numbers << 32) + place


def _times_of(keys: Numbers, numbers: Numbers, times: Numbers) -> Numbers:
    """The time of the event of each operation: operations of one signature run in the order of their issue."""
    if not len(numbers):
        return np.full(len(keys), NULL, np.int64)
    own = _ordinal_keys(numbers)
    order = np.argsort(own)
    at = np.minimum(np.searchsorted(own[order], keys), len(own) - 1)
    found = order[at]
    return np.where(own[found] == keys, times[found], NULL)


def _counted(signatures: list[_Entry]) -> tuple[Numbers, Numbers]:
    """For each operation the collectives, and the sends and receives, of its group up to it."""
    names: dict[str, int] = {}
    group = np.array([names.setdefault(one["process_group"][0], len(names)) for one in signatures], np.int64)
    p2p = np.array([one["is_p2p"] for one in signatures], np.bool_)
    seq, p2p_seq = np.zeros(len(group), np.int64), np.zeros(len(group), np.int64)
    for at in range(len(names)):
        own = group == at
        seq[own], p2p_seq[own] = np.cumsum(~p2p[own]), np.cumsum(p2p[own])
    return seq, p2p_seq


def _entry(
    signature: _Entry, record: int, counters: tuple[int, int], issued_ns: int, reached: tuple[int, int], lifecycle: bool
) -> _Entry:
    """One operation; `reached` are the times of its start and end, `lifecycle` whether the log has any such time.

    A log of issues alone counts as the hook of torch does where the backend tells of no ends.
    """
    started, ended = (None if time == NULL else time for time in reached)
    state = "completed" if ended is not None else "started" if started is not None else "scheduled"
    return {
        **signature, "record_id": record, "pg_id": None, "collective_seq_id": counters[0], "p2p_seq_id": counters[1],
        "op_id": sum(counters) - (not lifecycle), "time_created_ns": issued_ns, "time_discovered_started_ns": started,
        "time_discovered_completed_ns": ended, "state": state, "retired": ended is not None or not lifecycle,
    }  # fmt: skip


def _groups(comms: Mapping[str, tuple[int, int]], splits: Mapping[str, str], world: str | None) -> list[GroupConfig]:
    """The groups; only those that were split off have written members, and the largest has all ranks."""
    found = []
    for name, (_, size) in comms.items():
        members = [int(rank[:7]) for rank in splits.get(name, "").split(",") if rank]
        if name == world and not members:
            members = list(range(size))
        found.append(GroupConfig(name[:NAME_LIMIT], name[:NAME_LIMIT], rank_list(members) if members else None))
    return found
