"""How often the culprits are found: seeds x faults x kinds of dump, against a simulator that knows the truth.

Run from the root of the repository: `python -m benchmarks.accuracy [--seeds 20] [--size small]`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.simulator.faults import FAULTS
from tests.simulator.options import MODES
from tests.simulator.scenario import SIZES, Scenario, make
from tests.simulator.truth import Truth, innocents, score

from benchmarks.results import machine, put, table
from rankscope.analysis import analyse
from rankscope.parsers.load import load

SCORES = ("exact", "allowed", "other-kind", "unnamed", "accused")


@dataclass(frozen=True)
class Case:
    """What was said about one folder of dumps."""

    fault: str
    seed: int
    mode: str
    score: str
    innocent: bool
    line: str


def run_seed(job: tuple[str, int], size: str) -> list[Case]:
    """All kinds of dump of one scenario."""
    fault, seed = job
    scenario = make(fault, seed, size)
    return [_case(scenario, fault, seed, mode) for mode in MODES]


def _case(scenario: Scenario, fault: str, seed: int, mode: str) -> Case:
    with tempfile.TemporaryDirectory() as folder:
        truth = scenario.write(Path(folder), MODES[mode])
        try:
            findings = [asdict(f) for f in analyse(load([Path(folder)])).findings]
        except Exception as error:  # noqa: BLE001 - a crash is a result, too
            return Case(fault, seed, mode, "crashed", False, f"{scenario.name} {mode}: {error!r}")
    return Case(
        fault, seed, mode, score(findings, truth), bool(innocents(findings, truth)),
        _line(scenario, mode, truth, findings),
    )  # fmt: skip


def _line(scenario: Scenario, mode: str, truth: Truth, findings: Iterable[dict[str, Any]]) -> str:
    roots = [f for f in findings if f["root_cause"]]
    said = [(f["kind"], list(f["culprit_ranks"]), f["confidence"]) for f in roots] or "nobody"
    also = [sorted(a) for a in truth.also]
    return f"{scenario.name} {mode}: truth {sorted(truth.kinds)} {sorted(truth.culprits)} or {also}, said {said}"


def _row(name: str, cases: list[Case]) -> list[object]:
    counts = Counter(c.score for c in cases)
    shares = [f"{100 * counts[s] / len(cases):.1f}" for s in (*SCORES, "crashed")]
    return [name, len(cases), *shares, f"{100 * sum(c.innocent for c in cases) / len(cases):.1f}"]


def summary(cases: list[Case]) -> str:
    """The tables by fault and by kind of dump, in percent."""
    header = ["", "cases", *(f"{s} %" for s in SCORES), "crashed %", "innocent named %"]
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
critical said of a healthy job. *innocent named*: a rank is named that no acceptable answer names."""


def main() -> None:
    """Runs all cases on two cores and writes the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=9000)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--faults", nargs="*", default=list(FAULTS))
    parser.add_argument("--misses", type=Path, help="write every case that is not exact or allowed to this file")
    parser.add_argument("--dry", action="store_true", help="print only, leave results.md alone")
    args = parser.parse_args()
    jobs = [(fault, seed) for fault in args.faults for seed in range(args.first, args.first + args.seeds)]
    with ProcessPoolExecutor(2) as pool:
        cases = [c for batch in pool.map(partial(run_seed, size=args.size), jobs, chunksize=2) for c in batch]
    text = f"{EXPLANATION}\n\n{args.seeds} seeds from {args.first}, {args.size} jobs. {machine()}\n\n{summary(cases)}"
    print(text)
    if args.misses:
        args.misses.write_text("".join(f"{c.score}: {c.line}\n" for c in cases if c.score not in ("exact", "allowed")))
    if not args.dry:
        put(f"Accuracy, {args.size} jobs", text)


if __name__ == "__main__":
    main()
