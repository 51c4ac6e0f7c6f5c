"""How often a late rank is found in traces, and how often an innocent one is accused.

Run from the root of the repository: `python -m benchmarks.trace_accuracy [--seeds 10] [--write]`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from benchmarks.child_processes import mapped, run_program
from benchmarks.results import machine, program_parser, publish, table
from benchmarks.trace_jobs import CAUSES, FAULTS, MODES, PROGRAMS, hidden, make, plan
from rankscope.analysis import analyse
from rankscope.features.traces.rules.model import TRACE_RESULTS

WORLDS = (4, 8, 16)


@dataclass(frozen=True)
class Case:
    """What was said about one job."""

    fault: str
    program: str
    mode: str
    world: int
    score: str
    """exact, missed (somebody not named, nobody innocent), or accused (an innocent rank)."""
    cause: bool | None
    """Whether the cause is right; None where nobody was named, or nothing was recorded to tell it."""
    line: str


def run(job: tuple[str, int, int, str, str]) -> Case:
    """Judges one job: a fault, a size, a seed, a program and a mode."""
    fault, world, seed, program, mode = job
    planned = plan(fault, world, seed)
    analysis = analyse(make(planned, program, mode))
    truth, said = set(planned.culprits), set(analysis.culprits)
    exact = truth - hidden(planned, program) <= said <= truth
    score = "exact" if exact else "missed" if said < truth else "accused"
    causes = TRACE_RESULTS.of(analysis).causes if TRACE_RESULTS.find(analysis) else {}
    right = [causes[rank].cause == CAUSES[fault] for rank in said & truth if rank in causes]
    known = bool(right) and mode != "first-paint"
    delay = 100 * planned.delay_ns / max(1, 6 * 3_000_000)
    line = f"{fault} {program} {mode} {world} seed {seed}: truth {sorted(truth)} by {delay:.0f} %, said {sorted(said)}"
    return Case(fault, program, mode, world, score, all(right) if known else None, line)


def _rows(cases: list[Case], key: Callable[[Case], object]) -> list[list[object]]:
    by: dict[object, list[Case]] = defaultdict(list)
    for case in cases:
        by[key(case)].append(case)
    return [_row(name, group) for name, group in [*by.items(), ("all", cases)]]


def _row(name: object, cases: list[Case]) -> list[object]:
    shares = [f"{100 * sum(c.score == s for c in cases) / len(cases):.1f}" for s in ("exact", "missed", "accused")]
    known = [c.cause for c in cases if c.cause is not None]
    return [name, len(cases), *shares, f"{100 * sum(known) / len(known):.1f}" if known else ""]


EXPLANATION = """Simulated traces (benchmarks/trace_jobs.py): data, tensor and pipeline parallel jobs of 12 steps, in
which a rank loses 5 to 60 % of a step, or none does. *exact*: the culprits and nobody else; *missed*: somebody not
named, nobody innocent; *accused*: an innocent rank is. *cause*: of those named, how often what made them late is right.
A rank for which nobody waits, since its stage of a pipeline has to wait anyway, may be named or not."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs all cases on two cores and writes the section."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=7000)
    parser.add_argument("--processes", type=int, default=2, help="1: in this process")
    parser.add_argument("--faults", nargs="*", default=list(FAULTS), choices=FAULTS)
    parser.add_argument("--worlds", type=int, nargs="*", default=list(WORLDS))
    parser.add_argument("--programs", nargs="*", default=list(PROGRAMS), choices=PROGRAMS)
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=MODES)
    parser.add_argument("--misses", type=Path, help="write every case that is not exact to this file")
    args = parser.parse_args(arguments)
    seeds = range(args.first, args.first + args.seeds)
    jobs = list(product(args.faults, args.worlds, seeds, args.programs, args.modes))
    cases = list(mapped(run, jobs, args.processes))
    keys: dict[str, Callable[[Case], object]] = {
        "fault": lambda c: c.fault, "program": lambda c: c.program, "recorded": lambda c: c.mode,
        "ranks": lambda c: c.world,
    }  # fmt: skip
    head = ["cases", "exact %", "missed %", "accused %", "cause %"]
    tables = "\n\n".join(table([name, *head], _rows(cases, key)) for name, key in keys.items())
    text = f"{EXPLANATION}\n\n{args.seeds} seeds from {args.first}. {machine()}\n\n{tables}"
    publish("Accuracy of traces", text, write=args.write)
    if args.misses:
        args.misses.write_text("".join(f"{c.score}: {c.line}\n" for c in cases if c.score != "exact"))


if __name__ == "__main__":
    run_program(main)
