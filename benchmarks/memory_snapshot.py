"""Time and memory of reading a large memory snapshot: `python -m benchmarks.memory_snapshot [MEGABYTES]`.

Keys, frames and stacks are shared objects as in `torch._C._cuda_memorySnapshot`, so the pickle has torch's form.
"""

from __future__ import annotations

import os
import pickle
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.child_processes import run_program
from benchmarks.results import program_parser

SEGMENT = 2 << 20
DEPTH = 40
"""Frames of a stack."""
BYTES_PER_ENTRY = 134
"""Bytes of an entry in the pickle, with its share of stacks."""


def snapshot(entries: int, seed: int = 0) -> dict[str, Any]:
    """A snapshot of one device whose history has about so many entries; half of them allocate."""
    chance = random.Random(seed)
    frames = [{"name": f"f{n}", "filename": f"/job/src/part{n % 40}.py", "line": n} for n in range(3_000)]
    history: list[dict[str, Any]] = []
    live: list[tuple[int, int, list[Any]]] = []
    for step in range(entries // 3):
        address, size = 0x7F00_0000_0000 + step * SEGMENT, 512 * chance.randrange(1, 4_000)
        stack = chance.sample(frames, DEPTH)
        same = {"size": size, "stream": 0, "segment_pool_id": (0, 0)}
        history.append({"action": "alloc", "addr": address, **same, "time_us": step * 30, "frames": stack})
        live.append((address, size, stack))
        if len(live) > 4_000:
            address, size, stack = live.pop(chance.randrange(len(live)))
            for action in ("free_requested", "free_completed"):
                entry = {"action": action, "addr": address, "size": size, "stream": 0, "segment_pool_id": (0, 0)}
                history.append({**entry, "time_us": step * 30, "frames": stack})
    segments = [_segment(*block) for block in live]
    return {"segments": segments, "device_traces": [history], "allocator_settings": {"expandable_segments": False}}


def _segment(address: int, size: int, stack: list[Any]) -> dict[str, Any]:
    """A segment with one block that lives."""
    live = {"address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": stack}
    free = {"address": address + size, "size": SEGMENT - size, "requested_size": 0, "state": "inactive", "frames": []}
    kind = {"segment_type": "large", "is_expandable": False}
    return {"device": 0, "address": address, "total_size": SEGMENT, **kind, "blocks": [live, free]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints seconds of clock and processor of the report on memory, and the most memory of one of its processes."""
    parser = program_parser(__spec__.name, __doc__)
    parser.add_argument("megabytes", type=float, nargs="?", default=300)
    parser.add_argument("--write-to", type=Path, metavar="FILE", help="only write the snapshot")
    parser.add_argument("--read", type=Path, metavar="FILE", help="only read a snapshot")
    given = parser.parse_args(arguments)
    if given.write_to:
        with given.write_to.open("wb") as sink:
            pickle.dump(snapshot(int(given.megabytes * 1_000_000) // BYTES_PER_ENTRY), sink)
    elif given.read:
        read(given.read)
    else:
        measure(given.megabytes)


def measure(megabytes: float) -> None:
    """Writes and reads a snapshot, each in a process of its own: what it costs is that of all its children."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "snapshot_rank_0.pickle"
        subprocess.run([sys.executable, "-m", __spec__.name, str(megabytes), "--write-to", str(path)], check=True)
        print(f"{path.stat().st_size / 1e6:.0f} MB, load {os.getloadavg()[0]:.1f}")
        subprocess.run([sys.executable, "-m", __spec__.name, "--read", str(path)], check=True)


def read(path: Path) -> None:
    """Runs the command on a file, and prints its cost."""
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "rankscope", "report", "--only", "memory", str(path)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = f"{time.monotonic() - began:.1f} s, {used.ru_utime + used.ru_stime:.1f} s of processor"
    print(f"{seconds}, {used.ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    run_program(main)
