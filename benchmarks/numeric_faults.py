"""Faults in the numbers of small real jobs over gloo, and what the report on numbers says, alone and with a reference.

Run from the root of the repository: `python -m benchmarks.numeric_faults [--keep FOLDER] [--faults NAME ..] [--dtypes
f32 bf16] [--levels collectives modules] [--begin 2] [--healthy 50] [--flips]`. The whole takes a quarter of an
hour on two cores, and half a minute again with the runs that `--keep` has kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.child_processes import run_program
from benchmarks.numeric_plan import BEGIN, DTYPES, FAULTS, LEVELS, NumericJob, healthy_jobs, planned
from benchmarks.numeric_positions import flip_table
from benchmarks.numeric_runs import recorded, run_missing
from benchmarks.numeric_scores import PLACED, Score, score, verdict
from benchmarks.results import program_parser, publish, table
from rankscope.features.numbers.rules.number_findings import judge_numbers

SECTION = "Faults in numbers"
HEADER = ("fault", "made by", "layouts", "alone", "rules", *(f"with a trusted run, {level}" for level in LEVELS))


def scored(jobs: Sequence[NumericJob], base: Path) -> Iterator[Score]:
    """The scores of jobs, which are run where they were not."""
    run_missing(list(dict.fromkeys([*(job.trusted for job in jobs), *jobs])), base)
    for trusted in dict.fromkeys(job.trusted for job in jobs):
        numbers = recorded(base / trusted.name)
        yield from (score(job, base, numbers) for job in jobs if job.trusted == trusted)


def fault_rows(scores: Sequence[Score]) -> list[list[object]]:
    """A row for each fault, over layouts and types: how many are found alone, and how many are placed."""
    sets: defaultdict[str, list[Score]] = defaultdict(list)
    for one in scores:
        sets[one.job.fault].append(one)
    return [_fault_row(name, sets[name]) for name in FAULTS if name in sets]


def _fault_row(name: str, own: Sequence[Score]) -> list[object]:
    rules = Counter(rule for one in own for rule in one.rules.split("+") if rule)
    layouts = dict.fromkeys(one.job.layout for one in own)
    return [
        name, FAULTS[name].kind, ", ".join(layouts), _share(own, [one.alone for one in own], ("rank", "group")),
        ", ".join(rules) or "none",
        *(_share(here, [one.beside for one in here], PLACED) for here in
          ([one for one in own if one.job.level == level] for level in LEVELS)),
    ]  # fmt: skip


def _share(own: Sequence[Score], said: Sequence[str], good: Sequence[str]) -> str:
    """Such as "3 of 4: operation, bracket", and what else was said."""
    visible = [text for text, one in zip(said, own, strict=True) if one.beside != "same"]
    hits = Counter(text for text in visible if text in good)
    rest = Counter(text for text in visible if text not in good)
    same = len(said) - len(visible)
    told = [f"{hits.total()} of {len(visible)}{': ' if hits else ''}{', '.join(hits)}"] if visible else []
    told += [f"{count} {text}" for text, count in rest.items()]
    told += [f"{same} without any other bit"] if same else []
    return "; ".join(told)


def summary(scores: Sequence[Score]) -> str:
    """Shares over all runs in which any number differs."""
    seen = [one for one in scores if one.beside != "same"]
    if not seen:
        return "no run differs from its trusted one"
    found = sum(one.alone in ("rank", "group") for one in seen)
    placed = sum(one.beside in PLACED for one in seen)
    wrong = [one for one in scores if "wrong" in (one.alone, one.beside)]
    lines = [
        f"{len(seen)} of {len(scores)} runs differ from the trusted one in any bit. Of those "
        f"{100 * found / len(seen):.0f} % are found alone, {100 * placed / len(seen):.0f} % are placed with a trusted "
        f"run; somebody who did nothing is named in {len(wrong)}."
    ]
    missed = [one for one in seen if one.beside not in PLACED]
    lines += [f"- {one.job.name}: {one.alone}, {one.beside}. {'; '.join(one.titles)}" for one in [*wrong, *missed]]
    return "\n".join(lines)


def accused(jobs: Sequence[NumericJob], base: Path) -> list[str]:
    """What is said of healthy jobs, of those of which anything is."""
    run_missing(jobs, base)
    said = []
    for job in jobs:
        numbers = recorded(base / job.name)
        judged = judge_numbers(numbers)
        said += [f"{job.name}: {verdict(numbers, judged)}"] if judged.causes else []
    return said


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the tables."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--dtypes", nargs="+", default=DTYPES, choices=DTYPES)
    parser.add_argument("--levels", nargs="+", default=LEVELS, choices=LEVELS)
    parser.add_argument("--faults", nargs="*", default=list(FAULTS), choices=FAULTS)
    parser.add_argument("--begin", type=int, default=BEGIN, help="Step of the first wrong number.")
    parser.add_argument("--healthy", type=int, default=0, help="Number of healthy jobs.")
    parser.add_argument("--flips", action="store_true", help="Flip single bits, by position.")
    parser.add_argument("--keep", type=Path, help="Keep the runs here; runs that lie here are not made again.")
    given = parser.parse_args(arguments)
    with TemporaryDirectory() as scratch:
        base = (given.keep or Path(scratch)).resolve()
        jobs = list(planned(given.dtypes, given.levels, given.faults, given.begin))
        scores = list(scored(jobs, base))
        parts = [table(HEADER, fault_rows(scores)), summary(scores)]
        if given.healthy:
            said = accused(healthy_jobs(given.healthy), base)
            parts.append("\n".join([f"Healthy jobs of which anything is said: {len(said)} of {given.healthy}.", *said]))
        if given.flips:
            parts.append(flip_table(base))
    section = SECTION if given.begin == BEGIN else f"{SECTION}, there from step {given.begin}"
    publish(section, "\n\n".join(parts), write=given.write)


if __name__ == "__main__":
    run_program(main)
