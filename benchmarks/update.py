"""What one update of a job that is watched costs, by how many of its dumps have changed.

Run from the root of the repository: `python -m benchmarks.update [--ranks 1024] [--entries 200]`. Processor time:
reading what changed, assembling and analysing all there is, making what the screen shows, and both ends of sending it
there.
"""

from __future__ import annotations

import gc
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from multiprocessing import Pipe
from pathlib import Path
from statistics import median

from benchmarks.child_processes import run_program
from benchmarks.make_dumps import make
from benchmarks.moving_job import Moving
from benchmarks.results import machine, program_parser, publish, table
from rankscope.assemble.sources import SourceFile
from rankscope.commands.follower_process import receive, send
from rankscope.parsers.files.reader import follow_log
from rankscope.tui.live.prepared import Prepared, prepare
from rankscope.watching.update import FollowProgress, JobUpdate
from rankscope.watching.watched_job import WatchedJob

Cost = tuple[float, ...]
"""Seconds: read, assembled, analysed, prepared, sent."""


class Watched:
    """A job whose dumps are rewritten, and the updates of it."""

    def __init__(self, folder: Path, ranks: int, entries: int) -> None:
        make(folder / "source", ranks, entries)
        sources = sorted((folder / "source").iterdir())
        self._dumps = [Moving(path) for path in sources]
        self._files = [folder / path.name for path in sources]
        self._sources: list[SourceFile | None] = [None] * ranks
        self._job = WatchedJob(str(folder), None, None, None)
        self._entries, self._at_ns, self._number = entries, 1, 0
        self._here, self._there = Pipe()

    def update(self, changed: Sequence[int]) -> Cost:
        """Has some ranks write their dumps anew; what it costs to show that."""
        for place in changed:
            self._dumps[place].move(self._entries, 10**10)
            self._files[place].write_bytes(self._dumps[place].data)
        self._at_ns += 10**9
        times = [time.process_time()]
        for place in changed:
            self._sources[place] = _read(self._files[place])
        times.append(time.process_time())
        assert self._job.take([source for source in self._sources if source is not None], self._at_ns)
        self._job.assemble()
        times.append(time.process_time())
        said = self._job.judge(self._at_ns, unread=False)
        times.append(time.process_time())
        self._number += 1
        prepared = prepare(JobUpdate(self._number, self._job.dataset, *said, FollowProgress(), len(changed)))
        times.append(time.process_time())
        self._send(prepared)
        times.append(time.process_time())
        return tuple(b - a for a, b in pairwise(times))

    def _send(self, prepared: Prepared) -> None:
        sending = threading.Thread(target=send, args=(self._here, prepared))
        sending.start()
        receive(self._there)
        sending.join()


def _read(path: Path) -> SourceFile:
    (content,) = [one for one in follow_log(str(path), 0, "", False) if one.stamp is None]
    about = path.stat()
    return SourceFile(path.name, content.kind, about.st_size, about.st_mtime_ns, content.problem, content.decoded)


def _costs(ranks: Sequence[int], entries: int, counts: Sequence[int], times: int) -> list[list[object]]:
    """A row for one changed dump of a job of each size, measured in turn, and for each count of the largest."""
    cases = [(size, 1) for size in ranks] + [(ranks[-1], count) for count in counts]
    found: list[list[Cost]] = [[] for _ in cases]
    with ExitStack() as stack:
        jobs: dict[int, Watched] = {}
        for size in ranks:
            jobs[size] = Watched(Path(stack.enter_context(tempfile.TemporaryDirectory())), size, entries)
            for _ in range(2):
                jobs[size].update(range(size))
        for _ in range(times):
            for costs, (size, count) in zip(found, cases, strict=True):
                # of ranks all over the job
                costs.append(jobs[size].update(range(0, size, size // count)))
    rows: list[list[object]] = []
    for costs, (size, count) in zip(found, cases, strict=True):
        parts = [median(part) for part in zip(*costs, strict=True)]
        rows.append([size, count, *(f"{1000 * part:.0f} ms" for part in (*parts, sum(parts)))])
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the section."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--ranks", type=int, default=1024, help="at least 128")
    parser.add_argument("--entries", type=int, default=200)
    parser.add_argument("--times", type=int, default=9)
    args = parser.parse_args(arguments)
    gc.disable()
    try:
        rows = _costs([args.ranks // 16, args.ranks // 4, args.ranks], args.entries, (32, args.ranks), args.times)
    finally:
        gc.enable()
    head = ["dumps", "changed", "read", "assembled", "analysed", "prepared for the screen", "sent there", "together"]
    text = f"Dumps of {args.entries} entries, processor time, medians of {args.times}, in turn. {machine()}\n\n"
    text += table(head, rows)
    publish("An update while watching", text, write=args.write)


if __name__ == "__main__":
    run_program(main)
