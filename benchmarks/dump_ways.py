"""How fast one dump is decoded, by who wrote it: kind by kind, against unpickling all of it.

Run from the root of the repository: `python -m benchmarks.dump_ways DUMP`, with a pickled dump of version 2.10.
"""

from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.parsers.dumps import as_version
from tests.parsers.torch_pickle import torch_pickle

from benchmarks.child_processes import run_program
from benchmarks.results import program_parser, table
from rankscope.parsers.flight_recorder import fast_reader
from rankscope.parsers.flight_recorder.decode import decode_whole_dump

HEADER = [
    "written by", "kB", "entries", "kind by kind, ms", "pickle.loads, ms", "x pickle", "unpickled, ms", "x unpickled",
]  # fmt: skip
EXPLANATION = """One of these dumps, as others write it: time of the processor to decode it in a process that reads,
*kind by kind*, by bare `pickle.loads`, and *unpickled* with the columns made of that. Ratios are medians over {times}
rounds, all ways in turn; below 1 is faster."""


def writers(document: Any) -> dict[str, bytes]:
    """The dump as the recorder and others write it, and as other versions have it."""
    recorded = torch_pickle(document)
    again = pickle.loads(recorded)
    return {
        "the recorder": recorded,
        "the recorder, through the hook of nccl2": torch_pickle(_hooked(document)),
        "the recorder, version 2.2": torch_pickle(as_version(document, "2.2")),
        "the recorder, torch 2.2 (a bare list)": torch_pickle(as_version(document, "0")),
        **{f"Python, protocol {n}": pickle.dumps(again, n) for n in (2, 4, 5)},
    }


def _hooked(document: Any) -> dict[str, Any]:
    """As torch 2.15 records by default: it notices begin and end at once, and knows no version of the library."""
    entries = [
        {
            **entry,
            "profiling_name": entry["profiling_name"].replace("nccl:", "nccl2:", 1),
            "time_discovered_started_ns": entry["time_discovered_completed_ns"],
        }
        for entry in document["entries"]
    ]
    return {
        **document,
        "comm_lib_version": "",
        "entries": [{k: e[k] for k in e if k != "duration_ms"} for e in entries],
    }


def row(name: str, data: bytes, times: int) -> list[object]:
    """One line of the table."""
    dump = fast_reader.decode_fast(data)
    ways: tuple[Callable[[bytes], object], ...] = (fast_reader.decode_fast, pickle.loads, decode_whole_dump)
    rounds = [[_seconds(way, data) for way in ways] for _ in range(times)]
    ours, bare, whole = (f"{median(seconds) * 1e3:.1f}" for seconds in zip(*rounds, strict=True))
    ratios = [f"{median(one[0] / one[other] for one in rounds):.2f}" for other in (1, 2)]
    return [name, f"{len(data) / 1e3:.0f}", dump.rows, ours, bare, ratios[0], whole, ratios[1]]


def _seconds(decode: Callable[[bytes], object], data: bytes) -> float:
    begin = time.process_time()
    decode(data)
    return time.process_time() - begin


def compared(path: Path, times: int) -> str:
    """The table for a dump, with what it says. Nobody looks for garbage meanwhile, as in the processes that read."""
    document = pickle.loads(path.read_bytes())
    gc.disable()
    try:
        rows = [row(name, data, times) for name, data in writers(document).items()]
    finally:
        gc.enable()
    return f"{EXPLANATION.format(times=times)}\n\n{table(HEADER, rows)}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table for a dump."""
    parser = program_parser(__spec__.name, __doc__)
    parser.add_argument("dump", type=Path)
    parser.add_argument("--times", type=int, default=25, help="rounds, all ways in turn")
    given = parser.parse_args(arguments)
    print(compared(given.dump, given.times))


if __name__ == "__main__":
    run_program(main)
