"""What one update of a job that is watched costs, by what lies beside the file that has changed.

Run from the root of the repository: `python -m benchmarks.beside`. Processor time of assembling, analysing and making
what the screen shows, in the process that follows the job; reading is told in `benchmarks.update` and `log_speed`. What
is only shown at first is judged later with all the rest: that stands by itself.
"""

from __future__ import annotations

import argparse
import gc
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count, islice, pairwise
from pathlib import Path
from statistics import median
from typing import cast

from benchmarks.log_memory import OPS, collective, fingerprint
from benchmarks.make_dumps import make as make_dumps
from benchmarks.make_traces import make as make_traces
from benchmarks.moving_job import Moving
from benchmarks.results import machine, put, table
from rankscope.parsers.assemble.sources import Source
from rankscope.parsers.files.reader import follow
from rankscope.parsers.logs.growing import Growing
from rankscope.parsers.logs.model import LogContent
from rankscope.tui.live.prepared import Prepared, prepare
from rankscope.watching.job import Job
from rankscope.watching.update import Reading, Update

TIMES = 5
LINES = 10
STEP_NS = 20 * 10**9
CHATTER = b"[rank0]: step 1 loss 2.5\n" * LINES
Cost = tuple[float, ...]
"""Seconds: assembled, analysed, prepared."""


class Files:
    """What lies in a directory, as it was read last."""

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}
        self._logs: dict[str, Growing] = {}

    def read(self, path: Path) -> None:
        """Reads a file, or what is new of a log."""
        growing = self._logs.setdefault(path.name, Growing())
        kind, content, problem = "log", None, None
        for one in follow(str(path), growing.start, growing.mark, False):
            if one.stretch is not None:
                growing.add(cast("LogContent", one.decoded), one.stretch)
            elif one.stamp is None:
                kind, content, problem = one.kind, one.decoded, one.problem
        about = path.stat()
        self.sources[path.name] = Source(path.name, kind, about.st_size, about.st_mtime_ns, problem, content)
        if kind == "log":
            self._tell(path.name)

    def _tell(self, name: str) -> None:
        growing = self._logs[name]
        content, more = growing.told()
        in_full = growing.content if more is not None else None
        self.sources[name] = replace(self.sources[name], content=content, more=more, in_full=in_full)

    def all(self) -> list[Source]:
        """Them in order; those of logs that were told in full since, as they are now."""
        for name in [name for name, source in self.sources.items() if source.more is not None]:
            self._tell(name)
        return [self.sources[name] for name in sorted(self.sources)]


class Watched:
    """A job, and what it costs to show it."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.files, self._at_ns, self._number = Files(), 1, 0
        for path in paths:
            self.files.read(path)
        self._job = Job("dumps", None, None, None)
        self._before: Prepared | None = None

    def update(self, change: Callable[[], Path]) -> tuple[Cost, float]:
        """What it costs to show a change, which tells what it has written, and to judge it if that comes later."""
        self.files.read(change())
        self._at_ns += STEP_NS
        self._job.take(self.files.all(), self._at_ns)
        shown, is_judged = self._show(glances=True)
        return shown, 0.0 if is_judged else sum(self._show(glances=False)[0])

    def _show(self, *, glances: bool) -> tuple[Cost, bool]:
        """Seconds, and whether all was judged."""
        times = [time.process_time()]
        glance = self._job.glance(self._at_ns) if glances and self._job.is_there else None
        if glance is None:
            self._job.assemble()
        times.append(time.process_time())
        said = (glance.analysis, glance.live) if glance else self._job.judge(self._at_ns, unread=False)
        times.append(time.process_time())
        self._number += 1
        ranks, kept = (glance.ranks, glance.kept) if glance is not None else (None, None)
        update = Update(self._number, self._job.dataset, *said, Reading(), 1, ranks=ranks, kept=kept)
        self._before = prepare(update, self._before)
        times.append(time.process_time())
        return tuple(b - a for a, b in pairwise(times)), glance is None


def _row(about: str, watched: Watched, change: Callable[[], Path]) -> list[object]:
    first = sum(watched.update(change)[0])
    costs = [watched.update(change) for _ in range(TIMES)]
    parts = [median(part) for part in zip(*(shown for shown, _ in costs), strict=True)]
    later = median(judged for _, judged in costs)
    return [about, *(f"{1000 * part:.0f} ms" for part in (*parts, sum(parts))),
            f"{1000 * later:.0f} ms" if later else "at once", f"{1000 * first:.0f} ms"]  # fmt: skip


def _log_beside_dumps(folder: Path, ranks: int, entries: int) -> list[object]:
    make_dumps(folder / "dumps", ranks, entries)
    log = folder / "job.log"
    log.write_bytes(CHATTER * 10_000)
    about = f"a log by {LINES} lines that tell nothing, beside {ranks} dumps of {entries} entries"
    return _row(about, Watched([*(folder / "dumps").iterdir(), log]), lambda: _append(log, CHATTER))


def _dump_beside_logs(folder: Path, ranks: int, entries: int) -> list[object]:
    make_dumps(folder / "dumps", ranks, entries)
    dumps = sorted((folder / "dumps").iterdir())
    moving = [Moving(path) for path in dumps]
    for rank in range(ranks):
        (folder / f"nccl_{rank}.log").write_text("".join(f"{line}\n" for line in _begins(rank, ranks)))
    _move(dumps, moving)
    watched = Watched([*dumps, *folder.glob("*.log")])
    for _ in range(2):
        _move(dumps, moving)
        for path in dumps:
            watched.files.read(path)
        watched.update(lambda: dumps[0])

    def change() -> Path:
        _move(dumps[:1], moving)
        return dumps[0]

    about = f"one of {ranks} dumps of {entries} entries, beside {ranks} logs of NCCL without operations"
    return _row(about, watched, change)


def _move(dumps: Sequence[Path], moving: Sequence[Moving]) -> None:
    for path, dump in zip(dumps, moving, strict=False):
        dump.move(dump.entries, STEP_NS)
        path.write_bytes(dump.data)


def _begins(rank: int, ranks: int) -> Iterator[str]:
    """How a rank makes its communicators: all ranks, those of its host, and one of each host."""
    head = f"worker-{rank // 8:04d}:{41_000 + rank}:{41_000 + rank} [{rank % 8}] NCCL INFO "
    yield f"{head}NCCL version 2.27.5+cuda12.9"
    yield f"{head}NCCL_IB_TIMEOUT set by environment to 22."
    members = (rank, ranks, "0xfe"), (rank % 8, 8, f"0xab{rank // 8:04x}"), (rank // 8, ranks // 8, f"0xcd{rank % 8}")
    for number, (own, size, name) in enumerate(members):
        comm = f"comm 0x7a{number:02x}{rank:04x} rank {own} nranks {size} cudaDev {rank % 8} nvmlDev {rank % 8}"
        yield f"{head}ncclCommInitRank {comm} busId 1b000 commId {name} - Init START"
        for channel in range(16):
            yield f"{head}Channel {channel:02d}/0 : {own}[{rank % 8}] -> {(own + 1) % size}[0] via P2P/CUMEM"
        yield f"{head}ncclCommInitRank {comm} busId 1b000 commId {name} - Init COMPLETE"


def _dump_beside_traces(folder: Path, ranks: int, megabytes: float) -> list[object]:
    traces = make_traces(folder / "traces", ranks, megabytes)
    make_dumps(folder / "dumps", 8, 200)
    dumps = sorted((folder / "dumps").iterdir())
    moving = Moving(dumps[0])

    def change() -> Path:
        moving.move(moving.entries, STEP_NS)
        dumps[0].write_bytes(moving.data)
        return dumps[0]

    about = f"one of 8 dumps, beside {ranks} traces of {megabytes:g} MB"
    return _row(about, Watched([*traces, *dumps]), change)


def _one_more_trace(folder: Path, others: int, megabytes: float) -> list[object]:
    traces = make_traces(folder, others + TIMES + 1, megabytes)
    coming = iter(traces[others:])
    about = f"a trace of {megabytes:g} MB has come, beside {others} others"
    watched = Watched(traces[:others])
    watched.update(lambda: traces[0])
    return _row(about, watched, lambda: next(coming))


def _operations_in_a_log(folder: Path, megabytes: int) -> list[object]:
    begin = (f"{line}\n" for rank in range(64) for line in _begins(rank, 64))
    about = f"a log of NCCL of {megabytes} MB by {LINES} operations"
    return _going_on(about, folder / "job.log", chain(begin, _operations(64)), megabytes)


def _fingerprints_in_a_log(folder: Path, megabytes: int) -> list[object]:
    about = f"a log of fingerprints of {megabytes} MB by {LINES} of them"
    return _going_on(about, folder / "job.log", _fingerprints(64), megabytes)


def _going_on(about: str, log: Path, lines: Iterator[str], megabytes: int) -> list[object]:
    with log.open("w") as file:
        while file.tell() < megabytes * 1_000_000:
            file.writelines(islice(lines, 10_000))
    watched = Watched([log])
    for _ in range(3):
        watched.update(lambda: _append(log, "".join(islice(lines, 1_000)).encode()))
    return _row(about, watched, lambda: _append(log, "".join(islice(lines, LINES)).encode()))


def _fingerprints(ranks: int) -> Iterator[str]:
    """Every collective of a job with one group, as TORCH_DISTRIBUTED_DEBUG=DETAIL has it."""
    chance = random.Random(0)
    for step in count(1):
        for rank in chance.sample(range(ranks), ranks):
            yield f"{fingerprint(rank, f'12:{step // 60 % 60:02d}:{step % 60:02d}', str(step))}\n"


def _some_of_many_logs(folder: Path, ranks: int, steps: int) -> list[object]:
    lines, paths = _operations(ranks), [folder / f"nccl_{rank}.log" for rank in range(ranks)]
    for rank, path in enumerate(paths):
        path.write_text("".join(f"{line}\n" for line in _begins(rank, ranks)))

    def say(size: int) -> Path:
        said: dict[int, list[str]] = {}
        for line in islice(lines, size):
            said.setdefault(int(line.split(":")[1]) - 41_000, []).append(line)
        for rank, own in said.items():
            _append(paths[rank], "".join(own).encode())
        for rank in list(said)[1:]:
            watched.files.read(paths[rank])
        return paths[next(iter(said))]

    watched = Watched(paths)
    for size in (3 * ranks * steps, 3 * ranks, 3 * ranks):
        watched.update(partial(say, size))
    about = f"{LINES} of {ranks} logs of NCCL with {3 * steps} operations each by one of these"
    return _row(about, watched, lambda: say(LINES))


def _operations(ranks: int) -> Iterator[str]:
    """What the ranks print that `_begins` tells of: in each step a collective in each of their communicators."""
    chance = random.Random(0)
    for step in count():
        for number, size in enumerate((ranks, 8, ranks // 8)):
            for rank in chance.sample(range(ranks), ranks):
                head = f"worker-{rank // 8:04d}:{41_000 + rank}:{41_000 + rank} [{rank % 8}] NCCL INFO "
                comm, called = f"0x7a{number:02x}{rank:04x} [nranks={size}]", f"{OPS[number]}: opCount {step:x}"
                yield f"{head}{collective(called, chance, step, 7, comm)}\n"


def _append(log: Path, lines: bytes) -> Path:
    with log.open("ab") as file:
        file.write(lines)
    return log


def main() -> None:
    """Measures and writes the section."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="print only, leave results.md alone")
    args = parser.parse_args()
    gc.disable()
    measures: list[Callable[[Path], list[object]]] = [
        lambda folder: _log_beside_dumps(folder, 64, 200),
        lambda folder: _log_beside_dumps(folder, 1024, 200),
        lambda folder: _dump_beside_logs(folder, 64, 200),
        lambda folder: _dump_beside_logs(folder, 1024, 200),
        lambda folder: _dump_beside_traces(folder, 4, 20),
        lambda folder: _dump_beside_traces(folder, 4, 80),
        lambda folder: _one_more_trace(folder, 16, 5),
        lambda folder: _one_more_trace(folder, 64, 5),
        lambda folder: _operations_in_a_log(folder, 20),
        lambda folder: _operations_in_a_log(folder, 100),
        lambda folder: _operations_in_a_log(folder, 400),
        lambda folder: _some_of_many_logs(folder, 64, 100),
        lambda folder: _some_of_many_logs(folder, 1024, 100),
        lambda folder: _fingerprints_in_a_log(folder, 5),
        lambda folder: _fingerprints_in_a_log(folder, 20),
    ]
    rows = []
    for measure in measures:
        with tempfile.TemporaryDirectory() as scratch:
            rows.append(measure(Path(scratch)))
    head = ["what has changed", "assembled", "analysed", "prepared for the screen", "together", "judged"]
    head.append("the first time")
    text = (
        f"Processor time, medians of {TIMES}. *judged*: later, once for all that was shown meanwhile. {machine()}\n\n"
    )
    text += table(head, rows)
    print(text)
    if not args.dry:
        put("An update while watching, by what lies beside", text)


if __name__ == "__main__":
    main()
