"""What reading costs from 8 ranks to thousands: dumps, logs and traces, beside what others take for the same files.

Run from the root of the repository: `python -m benchmarks.scale [--ranks 8,64,256,1024,4096] [--huge 16384]`. Jobs
are written to the temporary directory one after the other and taken away again; `--keep DIR` keeps them for the next
run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.child_processes import run_program
from benchmarks.make_dumps import ENTRIES, WRITERS
from benchmarks.make_traces import make as make_traces
from benchmarks.results import machine, program_parser, publish, table
from benchmarks.scale_files import count_calls, unrelated_tree
from benchmarks.scale_rows import HEADER, Job, Measured, measured, row_of
from benchmarks.screen import first_screen

RUNNER = (sys.executable, "-m", "rankscope")
EXPLANATION = """Jobs that are tensor, pipeline and data parallel (benchmarks/make_dumps.py), 11 to 20 frames an
entry, one rank stuck, in the layout of the recorder's own pickler; NCCL COLL lines in a log of each rank; traces as of
torch 2.13.
*report*: the whole process `rankscope report DIR --format json`, on the clock and by the processor time of all its
processes. *base*: one process that does nothing but `pickle.loads` the same dumps with the garbage collector off,
`re.finditer` with one expression over the same logs, or HTA that loads the same traces. *x base*: time of the report
over it, below 1 is faster; *CPU x base* likewise by processor time, which others on the machine disturb less: two cores
that share the work without loss take half of it on the clock. *stages*: processor time to import, read, assemble and
analyse. *paint*: from the shell until the app shows the verdict. *peak*: memory of all processes together (PSS).
Medians of 3 up to {few:,} ranks, one run beyond. Made by `python -m benchmarks.scale {again}`; load of the machine
{load}."""
FEW = 256


def jobs(args: argparse.Namespace) -> list[Job]:
    """The jobs to measure."""
    found = [Job("dumps", ranks, args.entries) for ranks in args.ranks]
    found += [Job("dumps", args.small, entries) for entries in args.rings if entries != args.entries]
    found += [Job("dumps", args.middle, args.entries, writer) for writer in WRITERS if writer != "legacy"]
    found += [Job("dumps", args.middle, args.entries, tp=2)]
    found += [Job("dumps", ranks, 200) for ranks in args.huge]
    found += [Job("logs", ranks, args.entries) for ranks in args.ranks if ranks <= args.logs_up_to]
    found += [Job("traces", ranks, 1000) for ranks in args.ranks if ranks <= args.traces_up_to]
    return found


def exponent(points: Sequence[tuple[float, float]]) -> str:
    """The power of x with which y grows, by least squares in logarithms."""
    if len({x for x, _ in points}) < 2:
        return "-"
    x, y = np.log(np.array(points)).T
    return f"{np.polyfit(x, y, 1)[0]:.2f}"


def growth(found: Sequence[Measured]) -> str:
    """Exponents of the processor time of the report, without its start."""
    dumps = [one for one in found if one.job.kind == "dumps"]
    base = dumps[0].job.entries
    ranks = [(one.job.ranks, one.cost) for one in dumps if one.job.plain and one.job.entries == base]
    small = [one for one in dumps if one.job.entries != base and one.job.ranks < 1024]
    sizes = {one.job.ranks for one in small}
    entries = [(one.job.entries, one.cost) for one in dumps if one.job.ranks in sizes and one.job.plain]
    pairs = [(one, other) for one in dumps for other in dumps if one.job.tp == 8 and other.job == one.job.with_tp(2)]
    groups = [(other.job.groups / one.job.groups, other.cost / one.cost) for one, other in pairs]
    logs = [(one.job.ranks, one.cost) for one in found if one.job.kind == "logs"]
    rows = [
        ["ranks, from 64 on", exponent([p for p in ranks if p[0] >= 64])],
        ["entries of each rank", exponent(entries)],
        [
            "groups, same ranks and entries",
            "; ".join(f"{more:.1f} times as many cost {cost:.2f} times" for more, cost in groups) or "-",
        ],
        ["ranks, logs", exponent([p for p in logs if p[0] >= 64])],
    ]
    return table(["processor time grows with", "power"], rows)


def by_writer(folder: Path) -> str:
    """A table for a dump as others write it; in a process of its own, for this one has to stay small."""
    command = [sys.executable, "-m", "benchmarks.dump_ways", str(min(folder.iterdir()))]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _all(args: argparse.Namespace, root: Path) -> tuple[list[Measured], str, str]:
    found, ways = [], ""
    for job in jobs(args):
        folder = job.made(root, make_traces)
        found.append(measured(job, folder, 3 if job.ranks <= FEW else 1, args))
        print("|", *(" | ".join(map(str, row_of(found[-1]))),), "|", flush=True)
        if job.kind == "dumps" and not ways:
            screen = first_screen(folder, RUNNER)
            ways = f"{screen}\n\n{by_writer(folder)}"
        if not args.keep:
            shutil.rmtree(folder)
    calls = f"{count_calls(root / 'calls', RUNNER)}\n\n{unrelated_tree(root / 'tree', RUNNER, args.tree)}"
    return found, ways, calls


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def parser() -> argparse.ArgumentParser:
    """The arguments of the program."""
    own = program_parser(__spec__.name, __doc__, writes=True)
    own.add_argument("--ranks", type=_numbers, default=[8, 64, 256, 1024, 4096])
    own.add_argument("--entries", type=int, default=ENTRIES)
    own.add_argument("--rings", type=_numbers, default=[200, 20_000], help="other sizes of rings, on --small ranks")
    own.add_argument("--small", type=int, default=64)
    own.add_argument("--middle", type=int, default=256, help="ranks of the job with other writers and more groups")
    own.add_argument("--huge", type=_numbers, default=[], help="ranks of jobs of 200 entries each")
    own.add_argument("--logs-up-to", type=int, default=1024)
    own.add_argument("--traces-up-to", type=int, default=64)
    own.add_argument("--torch-up-to", type=int, default=64)
    own.add_argument("--tree", type=int, default=100_000, help="files of a tree that are not of the job")
    own.add_argument("--hta", metavar="PYTHON", help="an interpreter that has HolisticTraceAnalysis and pandas < 3")
    own.add_argument("--keep", type=Path, help="where jobs lie that are used again")
    return own


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures everything, and prints the section."""
    args = parser().parse_args(arguments)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as temporary:
        found, ways, calls = _all(args, args.keep or Path(temporary))
    again = " ".join(
        word
        for word in (sys.argv[1:] if arguments is None else arguments)
        if "/" not in word and word not in ("--write", "--keep", "--hta")
    )
    about = EXPLANATION.format(few=FEW, again=again, load=f"{os.getloadavg()[0]:.0f}")
    text = "\n\n".join([about, machine(), table(HEADER, [row_of(one) for one in found]), growth(found), calls, ways])
    publish("Reading at scale", text, write=args.write)


if __name__ == "__main__":
    run_program(main)
