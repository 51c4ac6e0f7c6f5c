"""A process that rewrites the dumps of a job again and again, as if it went on: `python -m benchmarks.moving_job ...`.

Each round all numbers of operations and all times are moved on, in the bytes themselves: pickling a thousand dumps
would take longer.
"""

from __future__ import annotations

import pickle
import pickletools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.child_processes import run_program
from benchmarks.results import program_parser

FAR = 1 << 20
"""Added to numbers, so that all of them are written as four bytes."""
_NUMBERS = ("record_id", "collective_seq_id", "op_id")
TIMES = (1 << 60, 1 << 62)


class Moving:
    """One dump: its bytes, and where numbers and times stand in them."""

    def __init__(self, path: Path, varied: bool = False) -> None:
        dump = pickle.loads(path.read_bytes())
        if varied:
            _vary(dump)
        _raise(dump)
        self.entries = len(dump["entries"])
        # without the memo entries nobody asks for, as the recorder writes
        self.data = bytearray(pickletools.optimize(pickle.dumps(dump, protocol=2)))
        written = [(code.name, value, at) for code, value, at in pickletools.genops(bytes(self.data))]
        self._numbers = _places(written, "BININT", 1, FAR, 1 << 30)
        self._times = _places(written, "LONG1", 2, *TIMES)

    def move(self, numbers: int, nanoseconds: int) -> None:
        """Moves the job on."""
        _add(self.data, self._numbers, np.int32, numbers)
        _add(self.data, self._times, np.int64, nanoseconds)


def _vary(dump: dict[str, Any]) -> None:
    """Gives every operation sizes of its own, the same on all its ranks, that move on with its number."""
    for entry in dump["entries"]:
        entry["input_sizes"] = entry["output_sizes"] = [[FAR + entry["collective_seq_id"], 4096]]


def _raise(dump: dict[str, Any]) -> None:
    for entry in dump["entries"]:
        for name in _NUMBERS:
            entry[name] += FAR
        entry["state"], entry["retired"] = "completed", True
        entry["time_discovered_completed_ns"] = entry["time_discovered_completed_ns"] or entry["time_created_ns"] + 1000
    for status in dump["pg_status"].values():
        status.update({name: value + FAR for name, value in status.items()})
    for status in dump["pg_status"].values():
        status.update(dict.fromkeys(status, max(status.values())))


def _places(written: list[tuple[str, Any, int | None]], name: str, skip: int, low: int, high: int) -> Any:
    """Where the bytes of numbers between two others stand that were written by an instruction."""
    return np.array([(at or 0) + skip for code, value, at in written if code == name and low <= value < high], np.int64)


def _add(data: bytearray, places: Any, kind: Any, amount: int) -> None:
    size = np.dtype(kind).itemsize
    cells = places[:, None] + np.arange(size)
    raw = np.frombuffer(data, np.uint8)
    values = np.ascontiguousarray(raw[cells]).view(kind) + kind(amount)
    raw[cells] = values.view(np.uint8)


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes all dumps every so many seconds; the first round at once."""
    parser = program_parser(__spec__.name, __doc__)
    parser.add_argument("source", type=Path, help="a folder of dumps")
    parser.add_argument("target", type=Path, help="the folder to write to")
    parser.add_argument("every", type=float, help="seconds between two rounds")
    parser.add_argument("rounds", type=int)
    parser.add_argument("--varied", action="store_true", help="sizes that are others in every operation")
    given = parser.parse_args(arguments)
    given.target.mkdir(parents=True, exist_ok=True)
    dumps = {path.name: Moving(path, given.varied) for path in sorted(given.source.iterdir())}
    step = max(one.entries for one in dumps.values())
    begin_ns = time.time_ns() - 1_700_000_000_000_000_000
    for one in dumps.values():
        one.move(0, begin_ns - (1_760_000_000_000_000_000 - 1_700_000_000_000_000_000))
    print("ready", flush=True)
    for number in range(given.rounds):
        began = time.monotonic()
        for name, one in dumps.items():
            part = given.target / f".{name}.part"
            part.write_bytes(one.data)
            part.rename(given.target / name)
            one.move(step, round(given.every * 1e9))
        if sys.stdout.isatty():
            # a pipe that nobody reads is full after some thousand lines
            print(f"round {number + 1} {time.monotonic() - began:.2f} s", flush=True)
        time.sleep(max(0.0, given.every - (time.monotonic() - began)))


if __name__ == "__main__":
    run_program(main)
