"""How fast traces are loaded, against HTA, orjson and msgspec on the same files.

Run from the root of the repository: `python -m benchmarks.trace_speed [--mb 500] [--hta PYTHON]`, where PYTHON is an
interpreter that has HolisticTraceAnalysis and pandas before 3.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import rankscope
from benchmarks.child_processes import run_program
from benchmarks.make_traces import make
from benchmarks.measure import Run, alternate
from benchmarks.results import machine, program_parser, publish, table
from benchmarks.trace_ways import WAYS

READ = 1 << 20
EXPLANATION = """Traces as torch 2.13 writes them with shapes and stacks: one of {mb} MB, and {ranks} of {each} MB.
Every way is a process of its own, from start to end, all in turn; medians of {times} runs, HTA once; files are in
memory before. *orjson*, *msgspec*: the whole file decoded, and a table of name, category, process, thread, times and
correlation made of it. *rankscope, all*: the dataset, with spans in order and nested, and kernels joined to the
operations they run. *first paint*: collectives, steps and threads only. *CPU*: of all processes, which others on the
machine disturb less than the time on the clock. *x msgspec*, *x HTA*: so many times as fast on the clock. *peak*:
resident memory of the largest process."""


def warm(paths: list[Path], pythons: list[str]) -> None:
    """Has files, and what programs import, in memory and nothing left to be written: disks are not what is compared.

    Nor is compiling: what is installed has its bytecode beside it.
    """
    compileall.compile_dir(str(Path(rankscope.__file__).parent), quiet=1)
    os.sync()
    for path in paths:
        with path.open("rb") as file:
            while file.read(READ):
                pass
    for python in pythons:
        modules = "polars, numpy, msgspec" if python == sys.executable else "hta.common.trace"
        subprocess.run([python, "-c", f"import {modules}"], check=True, capture_output=True)


def measured(paths: list[Path], times: int, hta: str | None) -> dict[str, Run]:
    """Every way over some files."""
    warm(paths, [sys.executable] if hta is None else [sys.executable, hta])
    own = {name: _command(sys.executable, name, paths) for name in WAYS if name != "HTA"}
    runs = alternate(own, times)
    if hta is not None:
        runs |= alternate({"HTA": _command(hta, "HTA", paths)}, 1)
    for name, run in runs.items():
        if run.code:
            raise SystemExit(f"{name} fails: exit {run.code}")
    return runs


def _command(python: str, name: str, paths: list[Path]) -> list[str]:
    return [python, "-m", "benchmarks.trace_ways", name, *map(str, paths)]


def rows_of(title: str, megabytes: float, runs: dict[str, Run]) -> list[list[str]]:
    """The lines of the table."""
    typed, hta = runs["msgspec typed, whole file"].seconds, runs.get("HTA")
    return [
        [
            title, name, f"{run.seconds:.2f}", f"{megabytes / run.seconds:.0f}", f"{run.cpu_seconds:.2f}",
            f"{typed / run.seconds:.2f}", f"{hta.seconds / run.seconds:.1f}" if hta else "-", f"{run.peak_mb:.0f}",
        ]
        for name, run in runs.items()
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the section."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--mb", type=float, default=500)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--hta", metavar="PYTHON")
    args = parser.parse_args(arguments)
    each = args.mb / 11
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory() as temporary:
        one = make(Path(temporary) / "one", 1, args.mb)
        rows = rows_of(f"{args.mb:.0f} MB", args.mb, measured(one, args.times, args.hta))
        one[0].unlink()
        many = make(Path(temporary) / "many", args.ranks, each)
        title, total = f"{args.ranks} x {each:.0f} MB", each * args.ranks
        rows += rows_of(title, total, measured(many, args.times, args.hta))
    shown = table(["", "", "s", "MB/s", "CPU s", "x msgspec", "x HTA", "peak MB"], rows)
    about = EXPLANATION.format(mb=f"{args.mb:.0f}", ranks=args.ranks, each=f"{each:.0f}", times=args.times)
    text = f"{about}\n\n{machine()}\n\n{shown}"
    publish("Speed of traces", text, write=args.write)


if __name__ == "__main__":
    run_program(main)
