"""How fast logs are read: COLL lines of NCCL, against Python's own regular expressions, and the output of programs.

Run from the root of the repository: `python -m benchmarks.log_speed [--mb 256] [--write]`.
"""

from __future__ import annotations

import io
import mmap
import random
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

from benchmarks.child_processes import run_program
from benchmarks.results import machine, program_parser, publish, table
from rankscope.features.logs.read import log_decoder
from rankscope.features.logs.read.decode import decode_log
from rankscope.parsers.contents import DecodedFile
from rankscope.parsers.files.directory_walk import walk_paths
from rankscope.parsers.workers.byte_ranges import FileRanges
from rankscope.parsers.workers.pool import Pool

RANKS = 8
OPS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")
PLAIN = re.compile(
    rb"(?P<host>[\w.\-]+):(?P<pid>\d+):(?P<tid>\d+) \[(?P<device>\d+)\] NCCL INFO (?P<op>\w+): "
    rb"opCount (?P<op_count>[0-9a-f]+) sendbuff (?P<send>\S+) recvbuff (?P<recv>\S+) count (?P<count>\d+) "
    rb"datatype (?P<datatype>\d+) op (?P<reduction>\d+) root (?P<root>\d+) comm (?P<comm>\S+) "
    rb"\[nranks=(?P<nranks>\d+)\] stream (?P<stream>\S+)"
)


def write_log(path: Path, megabytes: int) -> int:
    """A log of 8 processes in one file; returns the number of lines."""
    rng, written, count = random.Random(0), 0, 0
    with path.open("w") as file:
        while written < megabytes * 1_000_000:
            written += file.write(_line(rng, count % RANKS, count // RANKS, RANKS))
            count += 1
    return count


def write_logs(folder: Path, ranks: int, lines: int) -> None:
    """A log of so many lines for each rank."""
    rng = random.Random(0)
    folder.mkdir(parents=True)
    for rank in range(ranks):
        text = "".join(_line(rng, rank, step, ranks) for step in range(lines))
        (folder / f"rank_{rank}.log").write_text(text)


def _line(rng: random.Random, rank: int, step: int, ranks: int) -> str:
    return (
        f"worker-{rank // 8}:{41_000 + rank}:{41_000 + rank + step % 3 * 7} [{rank % 8}] NCCL INFO "
        f"{OPS[step * 7 % 4]}: opCount {step:x} sendbuff 0x7f{rng.getrandbits(40):010x} "
        f"recvbuff 0x7f{rng.getrandbits(40):010x} count {step * 7919 % 30_000_000} datatype {step % 10} op 0 "
        f"root 0 comm 0x55be{rank:08x} [nranks={ranks}] stream 0x55bef0208bd0\n"
    )


TRACEBACK = (
    "Traceback (most recent call last):", '  File "/job/train.py", line 31, in main', "    step(batch)",
    "ValueError: bad sample index 17",
)  # fmt: skip


def program_log(megabytes: int, tracebacks: int) -> bytes:
    """The output of a program on 8 ranks, with so many tracebacks at equal distances that the program survives."""
    lines: list[str] = []
    count = megabytes * 1_000_000 // 110
    for i in range(count):
        front = f"{i % RANKS}: "
        text = f"trainer: item {i // RANKS} of the epoch, {i * 7919 % 1000 / 1000:.3f} left, {i * 31 % 9999} tokens/s"
        lines.append(f"{front}2026-11-26 06:50:{i % 60:02d} {text}, gradient norm {i % 17}")
        if tracebacks and i % (count // tracebacks) == count // tracebacks // 2:
            lines += [f"{front}{line}" for line in TRACEBACK]
    return "\n".join([*lines, ""]).encode()


def program_rows(megabytes: int, times: int) -> list[list[str]]:
    """Rows of the output of a program without and with tracebacks."""
    rows = []
    for tracebacks in (0, 20):
        data, took = program_log(megabytes, tracebacks), []
        for _ in range(times):
            begin = time.perf_counter()
            decode_log(io.BytesIO(data))
            took.append(time.perf_counter() - begin)
        rows.append([f"{tracebacks} tracebacks", f"{min(took):.2f}", f"{megabytes / min(took):.0f}"])
    return rows


def plain(path: Path) -> int:
    """Every match of one regular expression with named groups over the mapped file, and nothing done with it."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return sum(1 for _ in PLAIN.finditer(mapped))


def one_process(path: Path) -> int:
    """The whole decoder in this process."""
    with path.open("rb") as file:
        return decode_log(file).rows


def all_processes(path: Path) -> int:
    """As the program does it: with the start of the workers, ranges, and joining them."""
    pool, ranges = Pool(walk_paths([path]), None), FileRanges()
    whole = [found for result in pool.run() if (found := ranges.add(result)) is not None]
    decoded: list[DecodedFile] = [found.decoded for found in whole if found.decoded is not None]
    return sum(one.rows for one in decoded)


def line_by_line(path: Path) -> int:
    """The decoder without its columns of whole blocks: each line by a regular expression."""
    with patch.object(log_decoder, "coll_rows", lambda _: None):
        return one_process(path)


WAYS: dict[str, Callable[[Path], int]] = {
    "re.finditer": plain,
    "rankscope, one process": one_process,
    "rankscope, all cores": all_processes,
}
EXPLANATION = """A log of {lines:,} COLL lines of 8 processes, {mb} MB. *re.finditer*: one compiled expression with
named groups over the mapped file, matches counted and thrown away. *rankscope*: the whole decoder, with ordinals for
each communicator, tails and fingerprints; on all cores with the start of the worker processes and the joining of
their ranges. Best of {times} runs, all ways in turn; *ratio* is speed over that of re.finditer. *Line by line*: the
same decoder without its columns of whole blocks, each line by a regular expression, on a sixteenth of the log, once.
Below: the output of a program, plain and with tracebacks, of a sixteenth of the size, in one process."""


def seconds(path: Path, lines: int, times: int) -> dict[str, float]:
    """Wall time of the best run of each way: others of a machine only ever make one longer."""
    took: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(times):
        for name, way in WAYS.items():
            begin = time.perf_counter()
            if way(path) != lines:
                raise SystemExit(f"{name} does not find all lines")
            took[name].append(time.perf_counter() - begin)
    return {name: min(all_) for name, all_ in took.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the section."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--mb", type=int, default=256)
    parser.add_argument("--times", type=int, default=5)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary) / "job.log"
        lines = write_log(path, args.mb)
        took = seconds(path, lines, args.times)
        few = write_log(path, args.mb // 16)
        begin = time.perf_counter()
        if line_by_line(path) != few:
            raise SystemExit("line by line does not find all lines")
        took["rankscope, line by line"] = 16 * (time.perf_counter() - begin)
    base = took["re.finditer"]
    rows = [[name, f"{s:.2f}", f"{args.mb / s:.0f}", f"{base / s:.2f}"] for name, s in took.items()]
    shown = table(["", "s", "MB/s", "ratio"], rows)
    more = table(["", "s", "MB/s"], program_rows(args.mb // 16, args.times))
    text = f"{EXPLANATION.format(lines=lines, mb=args.mb, times=args.times)}\n\n{machine()}\n\n{shown}\n\n{more}"
    publish("Speed of logs", text, write=args.write)


if __name__ == "__main__":
    run_program(main)
