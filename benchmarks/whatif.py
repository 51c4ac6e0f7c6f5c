"""How often the first gain is the planted cause, and how often an innocent rank is accused, in traces of slow jobs.

The jobs are those of benchmarks/whatif_jobs.py, whose docstring says what they do: 60 by default, 12 of each cause
and 12 healthy ones, all of different sizes, layouts, schedules and numbers of steps. They are written as traces of
torch's profiler and read as any others.

A job is *right* if its cause is first (with the planted ranks, or the planted stage) and nobody else is accused; a
healthy one if nobody is accused and no gain names a rank, a stage, lengths or a link. *apart* is the distance between
the gain that is told and that of a simulation of the job without its fault, in points of the step.

Run from the root of the repository: `python -m benchmarks.whatif [--jobs 12] [--write]`.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.child_processes import mapped, run_program
from benchmarks.results import machine, program_parser, publish, table
from benchmarks.whatif_jobs import CAUSES, Job, gain, planned, write
from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load
from rankscope.features.whatif.model import WHAT_IF_RESULTS, Gain


@dataclass(frozen=True)
class Case:
    """What was said about one job."""

    cause: str
    right: bool
    """The planted cause is first, and ranks of no other cause are accused."""
    accused: bool
    """An innocent rank is accused."""
    apart: float | None
    """Distance of the gain from the true one; None where the cause is not first."""
    line: str


def run(job: tuple[str, int]) -> Case:
    """Writes, reads and judges one job."""
    plan = planned(*job)
    with tempfile.TemporaryDirectory() as folder:
        write(plan, Path(folder))
        analysis = analyse(load([Path(folder)]))
    return judged(plan, analysis)


def judged(plan: Job, analysis: Analysis) -> Case:
    """The case of a job with that analysis."""
    answers = WHAT_IF_RESULTS.find(analysis)
    gains = [gain for gain in answers.gains if gain.cause != "launch"] if answers else []
    first = gains[0] if gains else None
    guilty = plan.ranks if plan.cause == "worker" else ()
    accused = not set(analysis.culprits) <= set(guilty)
    right = first is None if plan.cause == "healthy" else first is not None and _names(first, plan)
    true = 0.0 if plan.cause == "healthy" else gain(plan)
    shown = [f"{g.cause} {g.stage if g.cause == 'stage' else list(g.ranks)} {g.share:.3f}" for g in gains[:3]]
    line = (
        f"{plan.cause} {plan.kind} {plan.seed} {plan.ranks} {true:.3f}: {'; '.join(shown)}; "
        f"accused {analysis.culprits}; "
        f"{plan.layout}"
    )
    return Case(plan.cause, right and not accused, accused, abs(first.share - true) if right and first else None, line)


def _names(first: Gain, plan: Job) -> bool:
    """Whether a gain is that of the planted cause."""
    if first.cause != plan.cause:
        return False
    return first.stage == plan.stage if plan.cause == "stage" else plan.cause == "sequence" or first.ranks == plan.ranks


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs all jobs and writes the section."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--jobs", type=int, default=12, help="of each cause")
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--causes", nargs="*", default=list(CAUSES), choices=CAUSES)
    parser.add_argument("--processes", type=int, default=2, help="1: in this process")
    parser.add_argument("--misses", type=Path, help="write every job that is not right to this file")
    args = parser.parse_args(arguments)
    jobs = [(cause, args.first + k) for cause in args.causes for k in range(args.jobs)]
    cases = list(mapped(run, jobs, args.processes))
    rows = [_row(cause, [case for case in cases if case.cause == cause]) for cause in args.causes]
    text = f"{__doc__.split(chr(10) * 2)[2]}\n\nSeeds from {args.first}. {machine()}\n\n"
    publish("Causes of long steps", text + table(_HEAD, [*rows, _row("all", cases)]), write=args.write)
    if args.misses:
        args.misses.write_text("".join(f"{case.line}\n" for case in cases if not case.right))


_HEAD = ["cause", "jobs", "right", "right %", "innocent accused", "apart, median"]


def _row(name: str, cases: list[Case]) -> list[object]:
    right = sum(case.right for case in cases)
    apart = [100 * case.apart for case in cases if case.apart is not None and case.cause != "healthy"]
    median = f"{statistics.median(apart):.1f}" if apart else ""
    return [name, len(cases), right, f"{100 * right / max(1, len(cases)):.0f}", sum(c.accused for c in cases), median]


if __name__ == "__main__":
    run_program(main)
