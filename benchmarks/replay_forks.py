"""How often the sweep of `rankscope repro fork` finds the change that lets a simulated job run through, by fault.

Run from the root of the repository: `python -m benchmarks.replay_forks [--first SEED] [--seeds 5] [--cases]`. With
`--run` forks of small jobs are played by real processes (`benchmarks.fork_runs`), for half an hour on two busy cores.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulator.loaded import simulated
from tests.simulator.options import MODES
from tests.simulator.scenario import ALL_FAULTS, make

from benchmarks.child_processes import mapped, run_program
from benchmarks.fork_runs import HEADER, fork_rows
from benchmarks.results import machine, program_parser, publish, table
from rankscope.features.replay.edits import Trial, sweep
from rankscope.features.replay.schedule_fit import MOVING, Fit, fit_job

REPAIRABLE = (
    "host-stuck", "lost-dump", "crashed", "compute-hang", "wrong-op", "wrong-size", "wrong-dtype", "extra", "skipped",
    "order", "lost-send", "lost-recv", "lost-batch", "any-source", "wrong-split",
)  # fmt: skip
"""Faults that one change of the schedule can repair; a device or a network that is dead is none, two faults neither."""


@dataclass(frozen=True)
class ForkCase:
    """One job, and what the changes of its sweep do."""

    fault: str
    seed: int
    ranks: int
    waiting: int
    """Ranks that wait without a change."""
    left: int
    """Ranks that wait with the best change of one rank."""
    kind: str
    """The best change."""
    by_right: bool
    """Whether the first change is one of a rank with the fault, or of one that the dumps allow to be named."""
    whole: int
    """Ranks that wait if every rank also issues what its peers wait for."""
    innocents: int
    """Ranks without a fault, and in no answer that the dumps allow, that are tried."""
    helping: tuple[tuple[int, str], ...]
    """Those of them whose change lets all ranks come to the end, with its kind."""
    culprits: tuple[int, ...]
    said: tuple[int, ...]


def measured(job: tuple[str, int]) -> ForkCase | None:
    """A job with a fault and a seed; None where nothing stops, or no job has a place for it."""
    fault, seed = job
    try:
        dataset, analysis = simulated(fault, seed)
    except LookupError:
        return None
    if analysis.status in MOVING:
        return None
    best = fit_job(dataset, analysis)
    if not best.outcome.waiting:
        return None
    truth = make(fault, seed).truth(MODES["full"])
    trials = sweep(best.schedule, best.setting, tuple(analysis.culprits))
    single = [trial for trial in trials if trial.edit.kind != "complete"]
    whole = [trial.waiting for trial in trials if trial.edit.kind == "complete"]
    innocent = [rank for rank in best.schedule.steps if rank not in truth.culprits.union(*truth.also, *truth.within)]
    first = single[0] if single else None
    return ForkCase(
        fault, seed, len(best.schedule.steps), best.outcome.waiting, first.waiting if first else best.outcome.waiting,
        first.edit.kind if first else "-", first is not None and first.edit.rank not in innocent,
        min(whole, default=best.outcome.waiting), len(innocent), _helping(best, tuple(analysis.culprits), innocent),
        tuple(sorted(truth.culprits)), tuple(sorted(analysis.culprits)),
    )  # fmt: skip


def _helping(best: Fit, suspects: tuple[int, ...], ranks: Sequence[int]) -> tuple[tuple[int, str], ...]:
    """Of the ranks those whose own change lets all come to the end, with the kind of it."""
    found: list[tuple[int, str]] = []
    for rank in ranks:
        through = [t for t in sweep(best.schedule, best.setting, suspects, (rank,)) if _repairs(t)]
        if through:
            found.append((rank, through[0].edit.kind))
    return tuple(found)


def _repairs(trial: Trial) -> bool:
    return trial.edit.kind != "complete" and not trial.waiting


def _row(fault: str, cases: Sequence[ForkCase]) -> list[object]:
    kinds = Counter(case.kind for case in cases if not case.left)
    return [
        fault, len(cases), sum(not case.left for case in cases), sum(not case.left or not case.whole for case in cases),
        sum(case.by_right for case in cases if not case.left),
        f"{sum(len(c.helping) for c in cases)} of {sum(c.innocents for c in cases)}",
        ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()) or "-",
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures, prints and keeps the table."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--first", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--faults", nargs="*", default=list(ALL_FAULTS), choices=ALL_FAULTS)
    parser.add_argument("--processes", type=int, default=2, help="1: in this process")
    parser.add_argument("--cases", action="store_true", help="print each job that no change repairs")
    parser.add_argument("--run", action="store_true", help="play forks of the repairable faults over gloo instead")
    parser.add_argument("--whole", action="store_true", help="with --run: all ranks, not only those that matter")
    options = parser.parse_args(arguments)
    if options.run:
        faults = [fault for fault in REPAIRABLE if fault in options.faults]
        _kept(
            "Forks of replays over gloo",
            table(HEADER, fork_rows(faults, options.first, minimize=not options.whole)),
            options.write,
        )
        return
    found: defaultdict[str, list[ForkCase]] = defaultdict(list)
    jobs = [(fault, seed) for fault in options.faults for seed in range(options.first, options.first + options.seeds)]
    for case in filter(None, mapped(measured, jobs, options.processes)):
        found[case.fault].append(case)
        if options.cases and ((case.left and case.fault in REPAIRABLE) or case.helping):
            print(case, flush=True)
    header = ("fault", "jobs", "repaired by one", "or by all", "first: right rank", "innocents help", "by")
    repairable = [case for fault in REPAIRABLE for case in found.get(fault, [])]
    others = [case for fault in found if fault not in REPAIRABLE for case in found[fault]]
    parts = [*found.items(), ("all repairable", repairable), ("all others", others)]
    _kept("Forks of replays", table(header, [_row(name, cases) for name, cases in parts if cases]), options.write)


def _kept(section: str, shown: str, write: bool) -> None:
    publish(section, f"{machine()}\n\n{shown}", write=write)


if __name__ == "__main__":
    run_program(main)
