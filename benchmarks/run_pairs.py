"""How often `rankscope diff` calls equal simulated runs different, and whether it finds one planted change.

Run from the root of the repository: `python -m benchmarks.run_pairs [--pairs 200] [--seed 70000] [--only sides]`. The
runs of a pair have other clocks, other names of groups, other lengths of rings and other moments of the dump; of
several runs a side, the training series and the speed differ from run to run besides.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.features.comparison.rules.pairs import (
    NOISES,
    Edit,
    edited,
    halved,
    job_of,
    larger,
    left_out,
    one_run,
    renamed,
    trained_run,
    training,
    twice,
)  # fmt: skip
from tests.simulator.instructions import Collective
from tests.simulator.job import Plan
from tests.simulator.options import Moment
from tests.simulator.scenario import RINGS, SMALL
from tests.traces import MS, US
from tests.traces import training as traced_training

from benchmarks.child_processes import run_program
from benchmarks.results import program_parser, table
from rankscope.analysis import analyse
from rankscope.features.comparison.rules.model import ComparedRun, RunComparison
from rankscope.features.comparison.rules.run_comparison import compare_runs
from rankscope.features.comparison.rules.run_sides import compare_sides
from rankscope.features.comparison.rules.run_statistics import RunMetric, Sides, metric_effects
from rankscope.features.comparison.rules.time_comparison import time_ratio

EDITS: dict[str, tuple[Edit, str]] = {
    "another size": (larger, "another size"), "one more": (twice, "more"), "one fewer": (left_out, "leaves out"),
    "another type": (halved, "another type"),
}  # fmt: skip
RING_LENGTHS = (40, 100, 400, 2000)
MOMENTS: tuple[Moment, ...] = ("ended", "live", "live-apart")
STEPS = 6
LEVELS = (0.0, 0.6)
COUNTS = (50, 200, 1000)
SIZES = ((2, 1), (3, 3), (5, 5))
"""Runs of both sides."""
OFFSETS = (0.005, 0.02, 0.05)
"""Standard deviations of the speed from run to run."""


def shapes(pairs: int, seed: int = 0) -> Iterator[tuple[random.Random, Plan]]:
    """A source of random numbers and a plan for each pair."""
    for number in range(seed, seed + pairs):
        rng = random.Random(number)
        layout, style = rng.choice([*SMALL, *RINGS])
        yield rng, job_of(layout, style, STEPS, past=rng.choice([0, 4, 12]))


def equal_pairs(pairs: int, seed: int = 0) -> list[str]:
    """The headlines of pairs of equal runs that are called different."""
    wrong = []
    for number, (rng, job) in enumerate(shapes(pairs, seed)):
        runs = [
            one_run(plan, rng.randrange(1 << 30), ring=rng.choice(RING_LENGTHS), moment=rng.choice(MOMENTS))
            for plan in (job, renamed(job))
        ]
        found = compare_runs(*runs)
        if not found.is_same:
            wrong.append(f"pair {seed + number}: {found.headline}")
        _tell(number + 1, len(wrong))
    return wrong


def planted(pairs: int, seed: int = 0) -> Counter[tuple[str, str]]:
    """How often each planted change is found: "exact" (ranks and respect), "found" (something else), "missed"."""
    counts: Counter[tuple[str, str]] = Counter()
    for rng, job in shapes(pairs, seed):
        name = rng.choice(list(EDITS))
        edit, words = EDITS[name]
        places = [one.group for one in job.steps[0][0] if isinstance(one, Collective) and not one.inner]
        group = rng.choice(places)
        other = edited(job, group, rng.randrange(places.count(group)), edit, steps=[rng.randrange(1, STEPS)])
        found = compare_runs(one_run(job, rng.randrange(1 << 30)), one_run(renamed(other), rng.randrange(1 << 30)))
        first = next((one for one in found.differences if one.kind == "schedule-differs"), None)
        exact = first is not None and words in first.title and set(first.ranks) == set(job.topology.groups[group])
        counts[name, "exact" if exact else "found" if first is not None else "missed"] += 1
    return counts


def traced(pairs: int, seed: int = 0) -> Counter[str]:
    """How often equal traced jobs are called different, and whether a planted straggler is the first difference."""
    counts: Counter[str] = Counter()
    for number in range(seed, seed + pairs):
        rng = random.Random(number)
        size, steps, jitter = rng.choice([2, 4, 8]), rng.choice([4, 6, 10, 20]), rng.choice([200 * US, MS, 2 * MS])
        rank, kind = rng.randrange(size), rng.choice(["slow_host", "slow_kernel", "slow_launch"])
        late: dict[str, Any] = {kind: {rank: rng.choice([6, 12]) * MS}}
        a, b, slow = (
            _traced_run(size, steps, 3 * number + at, jitter, planted) for at, planted in enumerate(({}, {}, late))
        )
        counts["equal runs called different"] += not compare_runs(a, b).is_same
        differences = compare_runs(a, slow).differences
        counts["stragglers named"] += bool(differences) and differences[0].ranks == (rank,)
    return counts


def _traced_run(size: int, steps: int, seed: int, jitter: int, planted: dict[str, Any]) -> ComparedRun:
    dataset = traced_training(size, steps, seed=seed, jitter_ns=jitter, **planted).build()
    return ComparedRun("traces", dataset, analyse(dataset))


def intervals(pairs: int, seed: int = 0) -> list[list[object]]:
    """How often the interval of equal series of times excludes equality, and how often they are called different."""
    rows: list[list[object]] = []
    for count in COUNTS:
        for level in LEVELS:
            found = [
                time_ratio("step", *(series(2 * n + side, count, level) for side in (0, 1)))
                for n in range(seed, seed + pairs)
            ]
            outside = sum(not (one.low or 0) <= 1 <= (one.high or 0) for one in found)
            named = sum(one.stands_out for one in found)
            rows.append([count, level, f"{100 * outside / pairs:.1f} %", f"{100 * named / pairs:.1f} %"])
    return rows


def series(seed: int, count: int, correlation: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Times with noise of 3 % that is correlated over neighbours."""
    rng = np.random.default_rng(seed)
    shocks = rng.normal(0, 0.03 * np.sqrt(1 - correlation**2), count + 50)
    noise = np.zeros(count + 50)
    for i in range(1, count + 50):
        noise[i] = correlation * noise[i - 1] + shocks[i]
    return np.exp(noise[50:])


# Several runs a side.


def equal_sides(pairs: int, seed: int) -> tuple[list[list[object]], list[str]]:
    """How often equal sides are called different, by their size and the noise of series, and the headlines of those.

    Twenty pairs share the dumps of one plan, mixed anew; series and speed are drawn for each. The runs of the smaller
    sizes are the first ones of the largest.
    """
    called, wrong = Counter[tuple[str, tuple[int, int]]](), list[str]()
    runs = list[ComparedRun]()
    source = shapes(-(-pairs // SHARED), seed)
    for number in range(pairs):
        if number % SHARED == 0:
            rng, job = next(source)
            runs = [
                one_run(plan, rng.randrange(1 << 30), ring=rng.choice(RING_LENGTHS), moment=rng.choice(MOMENTS))
                for plan in (job, renamed(job)) for _ in range(max(map(sum, SIZES)) // 2)
            ]  # fmt: skip
        rng.shuffle(runs)
        noise = NOISES[number % len(NOISES)]
        logged = [replace(run, series=training(rng.randrange(1 << 30), noise)) for run in runs]
        for size in SIZES:
            found = compare_sides(logged[: size[0]], logged[size[0] : sum(size)])
            called[noise, size] += not found.is_same
            if not found.is_same:
                wrong.append(f"pair {seed + number}, {noise}, {size}: {found.headline}")
        _tell(number + 1, dict(called))
    rows: list[list[object]] = [[f"{a} x {b}", *(called[noise, (a, b)] for noise in NOISES), pairs] for a, b in SIZES]
    return rows, wrong


SHARED = 20
"""Pairs that share the dumps of one plan."""


def _tell(done: int, counts: object) -> None:
    """Shows the counts so far on stderr, every ten pairs."""
    if done % 10 == 0:
        print(f"{done} pairs: {counts}", file=sys.stderr, flush=True)


def found_changes(pairs: int, seed: int) -> list[list[object]]:
    """How often a slower step and a higher loss are found, and called significant, by the number of runs."""
    rows = list[list[object]]()
    for name, slower, loss in (("step +5 %", 1.05, 0.0), ("step +10 %", 1.1, 0.0), ("loss +0.05", 1.0, 0.05)):
        for a, b in SIZES:
            pool = iter(range(seed * 100, seed * 100 + pairs * (a + b)))
            results = [
                compare_sides(
                    [trained_run(next(pool)) for _ in range(a)],
                    [trained_run(next(pool), slower=slower, loss=loss) for _ in range(b)],
                )
                for _ in range(pairs)
            ]
            sure = sum(any(one.verdict == "differs" for one in result.metrics) for result in results)
            right = sum(_finds(result, "loss" if loss else "step") for result in results)
            rows.append([name, f"{a} x {b}", f"{100 * right / pairs:.0f} %", f"{100 * sure / pairs:.0f} %"])
    return rows


def _finds(found: RunComparison, word: str) -> bool:
    return any(word in one.title for one in found.differences)


def coverage(pairs: int, seed: int) -> list[list[object]]:
    """How often the interval over equal runs holds equality, and how often a metric of twenty is called significant."""
    rows = list[list[object]]()
    for a, b in SIZES:
        for offset in OFFSETS:
            rng = np.random.default_rng([seed, a, round(offset * 1000)])
            sides, held, significant = Sides(tuple(range(a)), tuple(range(a, a + b))), 0, 0
            for _ in range(pairs):
                values = np.exp(rng.normal(0, offset, (20, a + b)))
                metrics = [RunMetric(f"m{n}", "s", "step", tuple(one.tolist())) for n, one in enumerate(values)]
                found = metric_effects(metrics, sides)
                held += sum((one.low or 0) <= 0 <= (one.high or 0) for one in found)
                significant += any(one.verdict == "differs" for one in found)
            shown = f"{100 * held / pairs / 20:.1f} %", f"{100 * significant / pairs:.1f} %"
            rows.append([f"{a} x {b}", f"{100 * offset:g} %", *shown])
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints all counts."""
    parser = program_parser(__spec__.name, __doc__)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=70_000, help="the first seed")
    parser.add_argument("--only", choices=PARTS, help="one of the parts")
    args = parser.parse_args(arguments)
    for name, part in PARTS.items():
        if args.only in (None, name):
            print(*part(args.pairs, args.seed), sep="\n", flush=True)


def _print_pairs(pairs: int, seed: int) -> Iterator[str]:
    wrong = equal_pairs(pairs, seed)
    yield f"equal runs called different: {len(wrong)} of {pairs}"
    yield from wrong


def _print_traces(pairs: int, seed: int) -> Iterator[str]:
    yield from (f"traces, {name}: {count} of {pairs}" for name, count in traced(pairs, seed).items())


def _print_planted(pairs: int, seed: int) -> Iterator[str]:
    counts = planted(pairs, seed)
    rows: list[list[object]] = [[name, *(counts[name, how] for how in ("exact", "found", "missed"))] for name in EDITS]
    yield table(["planted change", "right place and kind", "another place or kind", "missed"], rows)


def _print_times(pairs: int, seed: int) -> Iterator[str]:
    yield table(["steps", "correlation", "interval excludes 1", "called different"], intervals(pairs, seed))


def _print_sides(pairs: int, seed: int) -> Iterator[str]:
    called, wrong = equal_sides(pairs, seed)
    yield table(["equal runs called different", *(f"losses: {noise}" for noise in NOISES), "pairs"], called)
    yield from wrong


def _print_changes(pairs: int, seed: int) -> Iterator[str]:
    yield table(["change", "runs", "found", "called significant"], found_changes(pairs, seed))


def _print_coverage(pairs: int, seed: int) -> Iterator[str]:
    heads = ["runs", "noise of runs", "interval holds equality", "one of 20 significant"]
    yield table(heads, coverage(pairs, seed))


PARTS = {
    "pairs": _print_pairs, "traces": _print_traces, "planted": _print_planted, "times": _print_times,
    "sides": _print_sides, "changes": _print_changes, "coverage": _print_coverage,
}  # fmt: skip


if __name__ == "__main__":
    run_program(main)
