"""Every fault at every moment, by every recorder: before it, in the middle of its step, in the hang, after the end.

Run from the root of the repository: `python -m benchmarks.moments [--seeds 2]`; `--wrong` prints each wrong case with
the command that makes it again and writes its dumps to a folder (`--keep DIR`). `--write` puts the table into
docs/accuracy.md.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.simulator.moments import When
from tests.simulator.options import ALL_MODES, Job
from tests.simulator.scenario import ALL_FAULTS, ONLY_MODES, make, modes_of, whens_of

from benchmarks.accuracy import Case, judged
from benchmarks.child_processes import mapped, run_program
from benchmarks.results import program_parser, table

ACCURACY = Path(__file__).parent.parent / "docs" / "accuracy.md"
HEADING = "## Every fault at every moment"
RECORDERS: dict[Job, str] = {
    "legacy": "NCCL's own",
    "hook": "hook",
    "mixed": "both, by rank",
    "two": "hook beside gloo",
}
"""What writes the dumps, by what the job communicates through."""
WHENS: dict[When, str] = {
    "before": "before",
    "mid-step": "in its step",
    "hang": "in the hang",
    "after": "after the end",
}


@dataclass(frozen=True)
class Grid:
    """The moments and kinds of dump to run, and where the dumps of each case are kept; None: nowhere."""

    whens: tuple[When, ...]
    kinds: tuple[str, ...]
    keep: Path | None = None


def run_cell(which: tuple[str, int, When, Job], grid: Grid) -> list[tuple[When, Case]]:
    """All kinds of dump of one job at one moment; none where no small job has a place for the fault."""
    fault, seed, when, job = which
    try:
        scenario = make(fault, seed, "small", job, when)
    except LookupError:
        return []
    return [
        (when, judged(scenario, fault, seed, mode, grid.keep / when if grid.keep else None))
        for mode in modes_of(fault, scenario, job)
        if mode in grid.kinds
    ]


def cell(cases: Sequence[Case]) -> str:
    """Shares in percent: exact, fairly open, not named, somebody innocent named; the number of cases."""
    if not cases:
        return ""
    scores = Counter("accused" if case.innocent else case.score for case in cases)
    wrong = scores["accused"] + scores["crashed"]
    counts = scores["exact"], scores["allowed"], len(cases) - scores["exact"] - scores["allowed"] - wrong, wrong
    return " · ".join(f"{100 * count / len(cases):.0f}" for count in counts)


def grid_table(cases: Sequence[tuple[When, Case]]) -> str:
    """The table by fault and moment, with a column for each recorder."""

    def row(fault: str, when: When | None) -> list[str]:
        here = [c for at, c in cases if fault in (c.fault, "all") and when in (at, None)]
        by_job = [cell([c for c in here if ALL_MODES[c.mode].job == job]) for job in RECORDERS]
        return [fault, WHENS[when] if when else "all", str(len(here)), *by_job, cell(here)]

    rows = [row(fault, when) for fault in ALL_FAULTS for when in whens_of(fault)]
    totals = [*(row("all", when) for when in WHENS), row("all", None)]
    header = ["fault", "dumps from", "cases", *RECORDERS.values(), "all"]
    return table(header, [line for line in [*rows, *totals] if line[2] != "0"])


EXPLANATION = """`python -m benchmarks.moments --write` makes this table: each fault of the simulator, in small jobs
(4 to 16 ranks), with dumps from four moments. *Before*: it has not struck yet, so nobody may be accused. *In its step*:
it has struck, and some ranks still move. *In the hang*: when the first watchdog gives up. *After the end*: when every
watchdog has given up, or the job has ended. A straggler or a late device in the hang: another rank's host stops, which
is the cause, and who is late must stand beside it. Each cell gives four shares in percent: **exactly the culprits · an
answer the dumps leave open · somebody not named · somebody else named.** Fewer than six steps of a late rank leave it
open, and fewer than 13 in groups of two."""


def write_down(text: str) -> None:
    """Writes the table into docs/accuracy.md, in the place of what it was."""
    known = ACCURACY.read_text()
    ACCURACY.write_text(re.sub(rf"{HEADING}\n.*?(?=^## )", f"{HEADING}\n\n{text}\n\n", known, flags=re.M | re.S))


def _given(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = program_parser(__spec__.name, __doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=7000)
    parser.add_argument("--faults", nargs="*", default=list(ALL_FAULTS), choices=ALL_FAULTS)
    parser.add_argument("--kinds", nargs="*", default=list(ALL_MODES), choices=ALL_MODES)
    parser.add_argument("--whens", nargs="*", default=list(WHENS), choices=WHENS)
    parser.add_argument("--wrong", action="store_true", help="print wrong cases, with the command to see each again")
    parser.add_argument("--keep", type=Path, help="write the dumps of all cases to folders in this one")
    parser.add_argument("--write", action="store_true", help="write the table to docs/accuracy.md, too")
    parser.add_argument("--processes", type=int, default=2, help="1: in this process")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs all cases and prints the table."""
    args = _given(arguments)
    seeds = range(args.first, args.first + args.seeds)
    jobs = [
        (fault, seed, when, job)
        for fault in args.faults
        for seed in seeds
        for when in whens_of(fault)
        if when in args.whens
        for job in RECORDERS
        if any(ALL_MODES[k].job == job for k in ONLY_MODES.get(fault, args.kinds) if k in args.kinds)
    ]
    grid = Grid(tuple(args.whens), tuple(args.kinds), args.keep)
    cases: list[tuple[When, Case]] = []
    for batch in mapped(partial(run_cell, grid=grid), jobs, args.processes):
        cases += batch
        for when, case in batch if args.wrong else []:
            if case.wrong or case.innocent:
                again = f"--faults {case.fault} --first {case.seed} --seeds 1 --whens {when} --kinds '{case.mode}'"
                print(
                    f"{when}: {case.score}: {case.line}\n    python -m benchmarks.moments --wrong {again} --keep cases"
                )
    made = grid_table(cases)
    print(made)
    if args.write:
        write_down(f"{EXPLANATION}\n\n{made}\n\n{len(cases):,} folders of dumps, seeds {seeds[0]} to {seeds[-1]}.")


if __name__ == "__main__":
    run_program(main)
