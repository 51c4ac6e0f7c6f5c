"""What one update of a job that is watched costs, by how many of its dumps have changed.

Run from the root of the repository: `python -m benchmarks.update [--ranks 1024] [--entries 200]`. Processor time:
reading what changed, assembling, analysing, making what the screen shows, and both ends of sending it there. What few
of many ranks wrote is shown at once and held against what the others issued; all the rest is judged with it once more
of them have written, or after a minute, and what that costs stands by itself.
"""

from __future__ import annotations

import argparse
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

from benchmarks.make_dumps import make
from benchmarks.moving_job import Moving
from benchmarks.results import machine, put, table
from rankscope.commands.crossing import Receiver, Sender
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.files.reader import follow
from rankscope.tui.live.prepared import Prepared, prepare
from rankscope.watching.job import Job
from rankscope.watching.update import Reading, Update

TIMES = 9
Cost = tuple[float, ...]
"""Seconds: read (where something is), assembled, analysed, prepared, sent."""


class Watched:
    """A job whose dumps are rewritten, and the updates of it."""

    def __init__(self, folder: Path, ranks: int, entries: int) -> None:
        make(folder / "source", ranks, entries)
        sources = sorted((folder / "source").iterdir())
        self._dumps = [Moving(path) for path in sources]
        self._files = [folder / path.name for path in sources]
        self._sources: list[Source | None] = [None] * ranks
        self._job = Job(str(folder), None, None, None)
        self._entries, self._at_ns, self._number = entries, 1, 0
        self._prepared: Prepared | None = None
        here, there = Pipe()
        self._sender, self._receiver = Sender(here), Receiver(there)

    def update(self, changed: Sequence[int]) -> tuple[Cost, Cost]:
        """Has some ranks write their dumps anew; what it costs to show that, and to judge it if that comes later."""
        for place in changed:
            self._dumps[place].move(self._entries, 10**10)
            self._files[place].write_bytes(self._dumps[place].data)
        self._at_ns += 10**9
        begin = time.process_time()
        for place in changed:
            self._sources[place] = _read(self._files[place])
        read = time.process_time() - begin
        sources = [source for source in self._sources if source is not None]
        assert self._job.take(sources, self._at_ns)
        shown, is_judged = self._show(changed)
        if is_judged:
            return (read, *shown), (0.0,)
        self._at_ns += 10**10
        return (read, *shown), self._show(())[0]

    def _show(self, changed: Sequence[int]) -> tuple[Cost, bool]:
        """Processor time of assembling, analysing, preparing and sending; and whether all was judged."""
        times = [time.process_time()]
        self._job.assemble()
        times.append(time.process_time())
        glance = self._job.glance(self._at_ns) if changed else None
        shown = (glance.analysis, glance.live) if glance is not None else self._job.judge(self._at_ns, unread=False)
        times.append(time.process_time())
        self._number += 1
        ranks = glance.ranks if glance is not None else None
        update = Update(self._number, self._job.dataset, *shown, Reading(), len(changed), ranks=ranks)
        self._prepared = prepare(update, self._prepared)
        times.append(time.process_time())
        self._send(self._prepared)
        times.append(time.process_time())
        return tuple(b - a for a, b in pairwise(times)), glance is None

    def _send(self, prepared: Prepared) -> None:
        sending = threading.Thread(target=self._sender.send, args=(prepared,))
        sending.start()
        self._receiver.receive()
        sending.join()


def _read(path: Path) -> Source:
    (content,) = [one for one in follow(str(path), 0, "", False) if one.stamp is None]
    about = path.stat()
    return Source(path.name, content.kind, about.st_size, about.st_mtime_ns, content.problem, content.decoded)


def _costs(ranks: Sequence[int], entries: int, counts: Sequence[int]) -> list[list[object]]:
    """A row for one changed dump of a job of each size, measured in turn, and for each count of the largest."""
    cases = [(size, 1) for size in ranks] + [(ranks[-1], count) for count in counts]
    found: list[list[tuple[Cost, Cost]]] = [[] for _ in cases]
    with ExitStack() as stack:
        jobs: dict[int, Watched] = {}
        for size in ranks:
            jobs[size] = Watched(Path(stack.enter_context(tempfile.TemporaryDirectory())), size, entries)
            for _ in range(2):
                jobs[size].update(range(size))
        for _ in range(TIMES):
            for costs, (size, count) in zip(found, cases, strict=True):
                # of ranks all over the job
                costs.append(jobs[size].update(range(0, size, size // count)))
    rows: list[list[object]] = []
    for costs, (size, count) in zip(found, cases, strict=True):
        parts = [median(part) for part in zip(*(shown for shown, _ in costs), strict=True)]
        later = median(sum(cost) for _, cost in costs)
        rows.append([size, count, *(f"{1000 * part:.0f} ms" for part in (*parts, sum(parts)))])
        rows[-1].append(f"{1000 * later:.0f} ms" if later else "at once")
    return rows


def main() -> None:
    """Measures and writes the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--entries", type=int, default=200)
    parser.add_argument("--dry", action="store_true", help="print only, leave results.md alone")
    args = parser.parse_args()
    gc.disable()
    rows = _costs([args.ranks // 16, args.ranks // 4, args.ranks], args.entries, (32, args.ranks))
    head = ["dumps", "changed", "read", "assembled", "analysed", "prepared for the screen", "sent there", "together"]
    head.append("judged")
    text = (
        f"Dumps of {args.entries} entries, processor time, medians of {TIMES}, in turn. *together*: until it is\n"
        "shown. *judged*: analysing, laying out and sending all of it, once for all that was shown meanwhile: when an\n"
        "eighth of the ranks have written, and else after a minute, or a hundred times as long as it takes; where\n"
        f"more than an eighth of the dumps changed that is part of it. {machine()}\n\n"
    )
    text += table(head, rows)
    print(text)
    if not args.dry:
        put("An update while watching", text)


if __name__ == "__main__":
    main()
