"""Writes samples of memory as the capture does, for jobs with and without a fault."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rankscope.assemble.assembly import assemble
from rankscope.assemble.sources import SourceFile
from rankscope.features.memory.memory_samples import decode_samples
from rankscope.features.memory.snapshots.decode import decode_bytes
from rankscope.schema import Dataset

MIB, GIB = 1 << 20, 1 << 30
BEGIN_NS = 1_700_000_000_000_000_000


def sample_file(rank: int, rows: Sequence[Mapping[str, Any]], started_ns: int = 1) -> bytes:
    """The file of a rank; each row needs its device and sizes."""
    head = {"rankscope_memory": 1, "rank": rank, "world_size": None, "host": "node1", "started_ns": started_ns}
    times = ({"time_ns": BEGIN_NS + at * 1_000_000_000, "step": at} for at in range(len(rows)))
    return b"".join(
        json.dumps(line).encode() + b"\n"
        for line in [head, *({**place, **row} for place, row in zip(times, rows, strict=True))]
    )


def sampled_job(
    held: Callable[[int, int], float],
    ranks: int = 4,
    samples: int = 120,
    device: str = "cuda",
    capacity: int = 80 * GIB,
) -> Dataset:
    """The Dataset of a job whose rank `r` holds `held(r, step)` bytes, read from its files."""
    sources = []
    for rank in range(ranks):
        name = "host" if device == "host" else f"{device}:{rank % 8}"
        sizes = [int(held(rank, step)) for step in range(samples)]
        most = [max(sizes[: at + 1]) for at in range(samples)] if device == "host" else sizes
        key, more = ("reserved", {}) if device == "host" else ("allocated", {"capacity": capacity})
        rows = [{"device": name, key: size, "peak": peak, **more} for size, peak in zip(sizes, most, strict=True)]
        data = sample_file(rank, rows)
        sources.append(SourceFile(f"memory_rank_{rank}.jsonl", "memory", len(data), 0, None, decode_samples(data)))
    return assemble(sources, "", None, None, None)


def snapshot_job(held: Callable[[int], Mapping[str, int]], ranks: int = 4, history: bool = True) -> Dataset:
    """The Dataset of a job in whose snapshots rank `r` holds `held(r)`: bytes by the function that allocated them."""
    sources = []
    for rank in range(ranks):
        data = pickle.dumps(_snapshot(rank, held(rank), history))
        name = f"snapshot_rank_{rank}.pickle"
        sources.append(SourceFile(name, "memory-snapshot", len(data), 0, None, decode_bytes(data)))
    return assemble(sources, "", None, None, None)


def _snapshot(rank: int, held: Mapping[str, int], history: bool) -> dict[str, Any]:
    """A snapshot of one device: each block is followed by a gap of an eighth, and a segment is unused."""
    events: list[dict[str, Any]] = []
    blocks: list[dict[str, Any]] = []
    for line, (function, size) in enumerate(held.items(), 7):
        frames = [
            {"name": function, "filename": "/job/model/parts.py", "line": line},
            {"name": "train_step", "filename": "/job/train.py", "line": 81},
        ]
        live = {"address": line << 40, "size": size, "requested_size": size, "frames": frames}
        blocks += [{**live, "state": "active_allocated"}, {"address": 1, "size": size // 8, "state": "inactive"}]
        events.append({"action": "alloc", "addr": line << 40, "size": size, "frames": frames, "time_us": line})
    used = {"device": rank, "address": 0, "total_size": sum(block["size"] for block in blocks), "blocks": blocks}
    free = {"address": 9, "size": GIB, "state": "inactive"}
    segments = [used, {"device": rank, "address": 9, "total_size": GIB, "blocks": [free]}]
    return {"segments": segments, "device_traces": [*([[]] * rank), events] if history else []}
