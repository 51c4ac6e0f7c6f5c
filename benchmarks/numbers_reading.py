"""How long a million summaries of tensors take to be read and judged, in how much memory; beside msgspec and orjson
that only decode the same lines.

Run from the root of the repository: `python -m benchmarks.numbers_reading [--ranks 64] [--steps 20]`. The run is
written to the temporary directory and taken away again: 0.7 GB, and 1.6 GB with `--decimal`.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from benchmarks.child_processes import LOOK_S, run_program
from benchmarks.make_numbers import make
from benchmarks.measure import memory_of_tree
from benchmarks.results import machine, program_parser, publish, table
from rankscope.features.numbers.rules.model import number_results

EXPLANATION = """A healthy run of {ranks} ranks and {steps} steps, {rows:,} rows in {size:.0f} MB, files in memory
before; samples are {form}.
*reading* is `load` up to the last file, in worker processes; *assembling* its rest; *judging* all rules. *msgspec*,
*orjson*: one process that decodes every line into a typed struct, or into objects, and does nothing else. *CPU*: of all
processes; *x msgspec*: CPU as a multiple of that of msgspec, in the same minutes. *peak*: memory of all processes
together (PSS). The load of the machine was {load:.0f}: where it is above 2, the clock tells little. Made by
`python -m benchmarks.numbers_reading {again}`."""
Seconds = tuple[float, float]
"""On the clock, and of processors."""


def _now() -> Seconds:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return time.perf_counter(), own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def staged(folder: str) -> list[tuple[str, float, float]]:
    """Reads and judges a run: each stage with its seconds."""
    from rankscope.analysis.facts import Facts
    from rankscope.analysis.model import Analysis
    from rankscope.assemble import assembly
    from rankscope.assemble.load import load
    from rankscope.features.numbers.rules.number_findings import with_numbers

    marks = [_now()]
    assemble = assembly.assemble

    def timed(*arguments: object, **named: object) -> object:
        # workers have been told to end, and count once they are waited for
        marks.append(_now())
        return assemble(*arguments, **named)  # type: ignore[arg-type]

    assembly.assemble = timed  # type: ignore[assignment]
    dataset = load([Path(folder)])
    marks.append(_now())
    analysis = with_numbers(Facts(dataset), Analysis("", "unknown"))
    marks.append(_now())
    if analysis.findings or not number_results(analysis).counts:
        raise SystemExit(f"the run is healthy, and the rules do not say so: {analysis.verdict}")
    names = ("reading", "assembling", "judging")
    pairs = zip(names, marks[:-1], marks[1:], strict=True)
    return [(name, after[0] - before[0], after[1] - before[1]) for name, before, after in pairs]


def decoded(folder: str, way: str) -> list[tuple[str, float, float]]:
    """Decodes all lines and keeps none."""
    one: Callable[[bytes], object] = orjson.loads
    if way == "msgspec":
        import msgspec

        from rankscope.features.numbers.read.numbers_line import NumbersLine

        one = msgspec.json.Decoder(NumbersLine).decode
    begin = _now()
    for path in sorted(Path(folder).iterdir()):
        with path.open("rb") as file:
            for line in file:
                one(line)
    end = _now()
    return [(way, end[0] - begin[0], end[1] - begin[1])]


def measured(folder: Path, way: str) -> tuple[list[tuple[str, float, float]], float]:
    """The stages of a way in a process of its own, and the peak of all of its processes in bytes."""
    command, peak = [sys.executable, "-m", "benchmarks.numbers_reading", "--way", way, str(folder)], 0
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while process.poll() is None:
            peak = max(peak, memory_of_tree(process.pid))
            time.sleep(LOOK_S)
        told = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"{way} fails: exit {process.returncode}")
    return orjson.loads(told), peak


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the section."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("folder", nargs="?", type=Path, help="a run that is there already")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--decimal", action="store_true", help="samples as decimal numbers")
    parser.add_argument("--way", choices=("rankscope", "msgspec", "orjson"), help="one way, in this process, as JSON")
    args = parser.parse_args(arguments)
    if args.way:
        rows = staged(str(args.folder)) if args.way == "rankscope" else decoded(str(args.folder), args.way)
        print(orjson.dumps(rows).decode())
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        if not args.folder:
            make(folder, args.ranks, args.steps, decimal=args.decimal)
        text = _compared(folder, args)
    publish(f"Speed of numbers, samples {'in decimals' if args.decimal else 'packed'}", text, write=args.write)


def _compared(folder: Path, args: argparse.Namespace) -> str:
    os.sync()
    told = {way: measured(folder, way) for way in ("msgspec", "orjson", "rankscope")}
    rows, bare = [], told["msgspec"][0][0][2]
    for way, (stages, peak) in told.items():
        rows += [[name, f"{clock:.1f}", f"{cpu:.1f}", f"{cpu / bare:.2f}", ""] for name, clock, cpu in stages]
        if len(stages) > 1:
            clock, cpu = sum(one[1] for one in stages), sum(one[2] for one in stages)
            rows.append([f"{way}, all", f"{clock:.1f}", f"{cpu:.1f}", f"{cpu / bare:.2f}", ""])
        rows[-1][-1] = f"{peak / 1e6:.0f}"
    about = EXPLANATION.format(
        ranks=args.ranks, steps=args.steps, rows=args.ranks * args.steps * 800,
        size=sum(path.stat().st_size for path in folder.iterdir()) / 1e6,
        form="decimal numbers" if args.decimal else "packed (`samples_f32`)",
        load=os.getloadavg()[0],
        again=f"--ranks {args.ranks} --steps {args.steps}{' --decimal' if args.decimal else ''}",
    )  # fmt: skip
    return f"{about}\n\n{machine()}\n\n{table(['', 'clock, s', 'CPU, s', 'x msgspec', 'peak, MB'], rows)}"


if __name__ == "__main__":
    run_program(main)
