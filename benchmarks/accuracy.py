"""How often the culprits are found: seeds x faults x kinds of dump, against a simulator that knows the truth.

Run from the root of the repository: `python -m benchmarks.accuracy [--seeds 20] [--size small]`, and to see what is
answered wrongly `--wrong [--kinds hook mixed ...] [--faults host-stuck ...]`; each wrong case is printed with the
command that makes it again and writes its dumps to a folder (`--keep DIR`).
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.simulator.options import ALL_MODES, Job
from tests.simulator.scenario import ALL_FAULTS, ONLY_MODES, SIZES, Scenario, make, modes_of
from tests.simulator.truth import Truth, innocents, score

from benchmarks.child_processes import mapped, run_program
from benchmarks.results import machine, program_parser, publish, table
from rankscope.analysis import analyse
from rankscope.assemble.load import load

SCORES = ("exact", "allowed", "other-kind", "unnamed", "accused")


@dataclass(frozen=True)
class Case:
    """What was said about one folder of dumps."""

    fault: str
    seed: int
    mode: str
    score: str
    innocent: bool
    silent: bool
    """Nothing critical is said of a job that does not go on."""
    line: str

    @property
    def wrong(self) -> bool:
        """Whether the answer is neither right nor fair."""
        return self.score not in ("exact", "allowed")


@dataclass(frozen=True)
class Asked:
    """Which jobs and kinds of dump to run, and where the dumps of each case are kept; None: nowhere."""

    size: str
    kinds: tuple[str, ...]
    keep: Path | None = None


def run_seed(which: tuple[str, int], asked: Asked) -> list[Case]:
    """All kinds of dump of one scenario."""
    fault, seed = which
    kinds = [k for k in asked.kinds if k in ONLY_MODES.get(fault, asked.kinds)]
    jobs: list[Job] = list(dict.fromkeys(ALL_MODES[k].job for k in kinds))
    cases = []
    for job in jobs:
        scenario = make(fault, seed, asked.size, job)
        there = [m for m in modes_of(fault, scenario, job) if m in kinds]
        cases += [judged(scenario, fault, seed, mode, asked.keep) for mode in there]
    return cases


def judged(scenario: Scenario, fault: str, seed: int, mode: str, keep: Path | None) -> Case:
    """What is said about one kind of dump of a scenario; the dumps are kept in a folder of `keep`."""
    with tempfile.TemporaryDirectory() as unkept:
        folder = keep / f"{fault}-{seed}-{mode.replace(' ', '-')}" if keep else Path(unkept)
        folder.mkdir(parents=True, exist_ok=True)
        truth = scenario.write(folder, ALL_MODES[mode])
        try:
            findings = [asdict(f) for f in analyse(load([folder])).findings]
        except Exception as error:  # noqa: BLE001 - a crash is a result, too
            return Case(fault, seed, mode, "crashed", False, False, f"{scenario.name} {mode}: {error!r}")
    silent = scenario.outcome.engine.hung and not any(f["severity"] == "critical" for f in findings)
    return Case(
        fault, seed, mode, score(findings, truth), bool(innocents(findings, truth)), silent,
        _line(scenario, mode, truth, findings),
    )  # fmt: skip


def _line(scenario: Scenario, mode: str, truth: Truth, findings: Iterable[dict[str, Any]]) -> str:
    roots = [f for f in findings if f["root_cause"]]
    said = [(f["kind"], list(f["culprit_ranks"]), f["confidence"]) for f in roots] or "nobody"
    also = [sorted(a) for a in truth.also] + [f"within {sorted(w)}" for w in truth.within]
    return f"{scenario.name} {mode}: truth {sorted(truth.kinds)} {sorted(truth.culprits)} or {also}, said {said}"


def _again(case: Case, size: str) -> str:
    """A case, and the command that makes it again."""
    which = f"--size {size} --faults {case.fault} --first {case.seed} --seeds 1 --kinds '{case.mode}'"
    return f"{case.score}: {case.line}\n    python -m benchmarks.accuracy --wrong {which} --keep cases\n"


def _row(name: str, cases: list[Case]) -> list[object]:
    counts = Counter(c.score for c in cases)
    shares = [f"{100 * counts[s] / len(cases):.1f}" for s in (*SCORES, "crashed")]
    counted = (sum(c.innocent for c in cases), sum(c.silent for c in cases))
    return [name, len(cases), *shares, *(f"{100 * count / len(cases):.1f}" for count in counted)]


def summary(cases: list[Case]) -> str:
    """The tables by fault and by kind of dump, in percent."""
    header = ["", "cases", *(f"{s} %" for s in SCORES), "crashed %", "innocent named %", "silent %"]
    by: dict[str, dict[str, list[Case]]] = {"fault": defaultdict(list), "kind of dump": defaultdict(list)}
    for case in cases:
        by["fault"][case.fault].append(case)
        by["kind of dump"][case.mode].append(case)
    return "\n\n".join(
        table([name, *header[1:]], [*(_row(k, v) for k, v in groups.items()), _row("all", cases)])
        for name, groups in by.items()
    )


EXPLANATION = """Simulated jobs (tests/simulator), each fault at a random place, each with every kind of dump.
*exact*: the culprits, all of them and nobody else, with a fitting kind. *allowed*: another answer where the dumps
cannot decide (one against one in a group of two; all joined and no start events). *other-kind*: the culprits, but the
first root cause is of another kind. *unnamed*: not all culprits named. *accused*: somebody else was named, or something
critical said of a healthy job. *innocent named*: a rank is named that no acceptable answer names. *silent*: nothing
critical is said of a job that does not go on; its cases are in the columns before, too."""
BY_HOOK = """These dumps are by torch 2.15's FlightRecorderHook (tests/simulator/hook.py). A device that stopped cannot
be told from the others of its group there: nobody, or no more than the group, is *allowed*. *fallback*: a backend
without completion hook. *default*: only ranks that saw a time-out left a dump. *copied*: without the files' times.
*mixed*: NCCL's own recorder on even ranks. *two backends*: gloo beside nccl2, two files from each rank."""


def sections(cases: list[Case], size: str) -> dict[str, str]:
    """The tables of NCCL's own recorder and of the hook, each with its heading in the results."""
    parts = {
        f"Accuracy, {size} jobs": (EXPLANATION, [c for c in cases if not ALL_MODES[c.mode].by_hook]),
        f"Accuracy of dumps by the hook, {size} jobs": (
            f"{EXPLANATION}\n\n{BY_HOOK}",
            [c for c in cases if ALL_MODES[c.mode].by_hook],
        ),
    }
    return {name: f"{text}\n\n{{}}\n\n{summary(part)}" for name, (text, part) in parts.items() if part}


def _given(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=9000)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--faults", nargs="*", default=list(ALL_FAULTS), choices=ALL_FAULTS)
    parser.add_argument("--kinds", nargs="*", default=list(ALL_MODES), choices=ALL_MODES)
    parser.add_argument("--misses", type=Path, help="write every case that is not exact or allowed to this file")
    parser.add_argument("--wrong", action="store_true", help="print these cases, with the command to see each again")
    parser.add_argument("--keep", type=Path, help="write the dumps of all cases to folders in this one")
    parser.add_argument("--processes", type=int, default=2, help="1: in this process")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs all cases and writes the sections."""
    args = _given(arguments)
    jobs = [(fault, seed) for fault in args.faults for seed in range(args.first, args.first + args.seeds)]
    asked = Asked(args.size, tuple(args.kinds), args.keep)
    cases = [c for batch in mapped(partial(run_seed, asked=asked), jobs, args.processes) for c in batch]
    if args.wrong:
        print("".join(_again(c, args.size) for c in cases if c.wrong or c.innocent))
    if args.misses:
        args.misses.write_text("".join(f"{c.score}: {c.line}\n" for c in cases if c.wrong))
    for name, text in sections(cases, args.size).items():
        print(f"{name}\n")
        told = text.format(f"{args.seeds} seeds from {args.first}, {args.size} jobs. {machine()}")
        publish(name, f"{told}\n", write=args.write)


if __name__ == "__main__":
    run_program(main)
