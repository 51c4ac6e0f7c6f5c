"""How often `rankscope diff` calls equal simulated runs different, and whether it finds one planted change.

Run from the root of the repository: `python -m benchmarks.run_pairs [--pairs 200]`. The runs of a pair have other
clocks, other names of groups, other lengths of rings and other moments of the dump.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.analysis.comparison.pairs import Edit, edited, halved, job_of, larger, left_out, one_run, renamed, twice
from tests.simulator.instructions import Collective
from tests.simulator.job import Plan
from tests.simulator.options import Moment
from tests.simulator.scenario import RINGS, SMALL
from tests.traces import MS, US, training

from benchmarks.results import table
from rankscope.analysis import analyse
from rankscope.analysis.comparison.model import ComparedRun
from rankscope.analysis.comparison.run_comparison import compare_runs
from rankscope.analysis.comparison.time_comparison import time_ratio

EDITS: dict[str, tuple[Edit, str]] = {
    "another size": (larger, "another size"), "one more": (twice, "more"), "one fewer": (left_out, "leaves out"),
    "another type": (halved, "another type"),
}  # fmt: skip
RING_LENGTHS = (40, 100, 400, 2000)
MOMENTS: tuple[Moment, ...] = ("ended", "live", "live-apart")
STEPS = 6
LEVELS = (0.0, 0.6)
COUNTS = (50, 200, 1000)


def shapes(pairs: int) -> Iterator[tuple[random.Random, Plan]]:
    """A source of random numbers and a plan for each pair."""
    for number in range(pairs):
        rng = random.Random(number)
        layout, style = rng.choice([*SMALL, *RINGS])
        yield rng, job_of(layout, style, STEPS, past=rng.choice([0, 4, 12]))


def equal_pairs(pairs: int) -> list[str]:
    """The headlines of pairs of equal runs that are called different."""
    wrong = []
    for number, (rng, job) in enumerate(shapes(pairs)):
        runs = [
            one_run(plan, rng.randrange(1 << 30), ring=rng.choice(RING_LENGTHS), moment=rng.choice(MOMENTS))
            for plan in (job, renamed(job))
        ]
        found = compare_runs(*runs)
        if not found.is_same:
            wrong.append(f"pair {number}: {found.headline}")
    return wrong


def planted(pairs: int) -> Counter[tuple[str, str]]:
    """How often each planted change is found: "exact" (ranks and respect), "found" (something else), "missed"."""
    counts: Counter[tuple[str, str]] = Counter()
    for rng, job in shapes(pairs):
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


def traced(pairs: int) -> Counter[str]:
    """How often equal traced jobs are called different, and whether a planted straggler is the first difference."""
    counts: Counter[str] = Counter()
    for number in range(pairs):
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
    dataset = training(size, steps, seed=seed, jitter_ns=jitter, **planted).build()
    return ComparedRun("traces", dataset, analyse(dataset))


def intervals(pairs: int) -> list[list[object]]:
    """How often the interval of equal series of times excludes equality, and how often they are called different."""
    rows: list[list[object]] = []
    for count in COUNTS:
        for level in LEVELS:
            found = [
                time_ratio("step", series(2 * n, count, level), series(2 * n + 1, count, level)) for n in range(pairs)
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


def main() -> None:
    """Prints all counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200)
    pairs = parser.parse_args().pairs
    wrong = equal_pairs(pairs)
    print(f"equal runs called different: {len(wrong)} of {pairs}", *wrong, sep="\n  ")
    print(*(f"traces, {name}: {count} of {pairs}" for name, count in traced(pairs).items()), sep="\n")
    counts = planted(pairs)
    rows = [[name, *(counts[name, how] for how in ("exact", "found", "missed"))] for name in EDITS]
    print(table(["planted change", "right place and kind", "another place or kind", "missed"], rows))
    print(table(["steps", "correlation", "interval excludes 1", "called different"], intervals(pairs)))


if __name__ == "__main__":
    main()
