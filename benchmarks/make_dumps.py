"""Writes the dumps the speed is measured on: `python -m benchmarks.make_dumps FOLDER RANKS`."""

from __future__ import annotations

import os
import pickletools
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.simulator.instructions import Host
from tests.simulator.job import plan, run
from tests.simulator.options import DumpOptions
from tests.simulator.programs import Style
from tests.simulator.topology import Layout

ENTRIES = 2000
"""Entries of each rank, as the recorder keeps by default."""
STEPS = 2


def make(folder: Path, ranks: int, entries: int = ENTRIES) -> None:
    """Dumps of a sharded job, rings full of `entries`, in which the host of the last rank stopped.

    No point-to-point operations: torch's own analyzer gives up on those after ten false alarms.
    """
    layout = Layout(tp=min(8, ranks), dp=max(1, ranks // 8))
    job = plan(layout, Style("fsdp", layers=4), STEPS)
    per_step = sum(type(i).__name__ == "Collective" for i in job.steps[0][0])
    job.past = entries // per_step + 1
    last = ranks - 1
    job.replace(last, STEPS - 1, [Host(None), *job.steps[last][STEPS - 1]])
    folder.mkdir(parents=True, exist_ok=True)
    paths = run(job, seed=ranks).write(folder, "timeout", DumpOptions(ring=entries))
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(slim, paths, chunksize=8))


def slim(path: Path) -> None:
    """Drops the memo entries nobody asks for: Python's own pickler writes them, the recorder does not."""
    status = path.stat()
    path.write_bytes(pickletools.optimize(path.read_bytes()))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]))
