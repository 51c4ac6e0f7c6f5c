"""How often a call too many or too few, of the same operation and size, is found, and its line: on simulated jobs.

Run from the root of the repository: `python -m benchmarks.shifted_calls [--seeds 100] [--wrong]`. Of each seed: a job
whose calls did not wait for each other (one too many, one too few), one that hangs (the same two), and one without a
fault whose ranks take lines of their own by design.
"""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tests.simulator.options import DumpOptions
from tests.simulator.record import Record
from tests.simulator.scenario import Scenario, make
from tests.simulator.shifted_calls import SHIFTED_CALLS, finished, with_roles
from tests.simulator.stacks import STACKS
from tests.simulator.truth import score

from benchmarks.child_processes import mapped, run_program
from benchmarks.results import machine, program_parser, publish, table
from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import load

FINISHED = ("one too many, all ended", "one too few, all ended")
HANGING = {"extra-alike": "one too many, the job hangs", "skipped-alike": "one too few, the job hangs"}
ROLES = "roles by design, no fault"
Score = tuple[str, str, str]
"""The kind of job, how the answer compares, and a line to read."""


def run_seed(seed: int) -> list[Score]:
    """The answers to all jobs of one seed."""
    out: list[Score] = []
    for extra, name in zip((True, False), FINISHED, strict=True):
        scenario = replace(make("healthy", seed), moment="ended")
        try:
            rank, call = finished(scenario.outcome, random.Random(seed), extra)
        except LookupError:
            continue
        members = len(scenario.outcome.topology.groups[call.group])
        answer = _answer(scenario)
        out.append((name, _compared(answer, rank, call, members), f"{scenario.name}: rank {rank}, {answer.verdict}"))
    for fault in SHIFTED_CALLS:
        scenario = make(fault, seed)
        answer = _answer(scenario)
        right = score([asdict(f) for f in answer.findings], scenario.truth(DumpOptions()))
        out.append((HANGING[fault], right, f"{scenario.name}: {answer.verdict}"))
    scenario = make("healthy", seed)
    role = with_roles(scenario.outcome, random.Random(seed))
    answer = _answer(scenario)
    silent = "exact" if not answer.is_critical else "accused"
    return [*out, (ROLES, silent, f"{scenario.name}: {role}, {answer.verdict}")]


def _answer(scenario: Scenario) -> Analysis:
    with tempfile.TemporaryDirectory() as folder:
        scenario.write(Path(folder), DumpOptions())
        return analyse(load([Path(folder)]))


def _compared(answer: Analysis, rank: int, call: Record, members: int) -> str:
    """Whether the answer names the rank and the line of the call; of two members, it may name both."""
    line = f":{STACKS[call.stack][2]['line']}"
    if answer.culprits == (rank,):
        return "exact" if answer.cause and line in answer.cause.title else "other line"
    if members == 2 and rank in answer.suspects:
        return "allowed"
    return "accused" if answer.culprits else f"unnamed, {answer.status}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table, and what is answered wrongly."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--wrong", action="store_true", help="print each wrong answer")
    parser.add_argument("--processes", type=int, default=2, help="1: in this process")
    args = parser.parse_args(arguments)
    seeds = range(args.first, args.first + args.seeds)
    scores = [answer for answers in mapped(run_seed, seeds, args.processes) for answer in answers]
    names, columns = (list(dict.fromkeys(answer[at] for answer in scores)) for at in (0, 1))
    counts = {name: Counter(right for kind, right, _ in scores if kind == name) for name in names}
    rows = [[name, counts[name].total(), *(counts[name][column] for column in columns)] for name in names]
    text = table(["job", "jobs", *columns], rows)
    print(text)
    publish(
        "Calls too many or too few", f"{args.seeds} seeds from {args.first}. {machine()}\n\n{text}\n", write=args.write
    )
    if args.wrong:
        print(
            "\n".join(f"{kind}: {right}: {line}" for kind, right, line in scores if right not in ("exact", "allowed"))
        )


if __name__ == "__main__":
    run_program(main)
