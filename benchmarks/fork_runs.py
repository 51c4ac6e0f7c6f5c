"""Forks that are played by real processes over gloo: a change that repairs a planted fault, and changes that do not.

For each fault a simulated job of eight ranks at most with dumps of NCCL's recorder, and one with those of the hook of
torch 2.15: the ranks that matter, or all of them. Three runs each: the first change of the sweep that lets all ranks
come to the end in memory; the change of a rank that is not to blame that comes nearest to it; and no change but a
setting and a rank that sleeps.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from tests.simulator.loaded import simulated
from tests.simulator.scenario import ONLY_MODES

from rankscope.analysis.model import Analysis
from rankscope.commands.fork import changed_fit, fork_base
from rankscope.commands.fork_run import ForkOutcome, fork_outcome
from rankscope.features.replay.edits import LAST_KINDS, Trial, sweep
from rankscope.features.replay.repro_script import repro_script
from rankscope.features.replay.schedule_fit import PLAIN, Delay, Fit, ReplayConditions
from rankscope.schema import Dataset

MODES = ("full", "hook")
MOST_RANKS = 8
SEEDS = 10
"""Seeds that are tried until a job is small enough and waits."""
AT_A_TIME = 3
GRACE_S = "6"
"""Seconds without progress after which a rank says where it is."""
HEADER = ("fault", "dumps", "ranks", "repaired by", "the repair", "another rank's change", "a setting and a delay")


@dataclass(frozen=True)
class ForkedJob:
    """A simulated job with the schedule that is changed."""

    fault: str
    seed: int
    mode: str
    dataset: Dataset
    analysis: Analysis
    best: Fit

    @property
    def suspects(self) -> tuple[int, ...]:
        """Ranks to blame, or those of whom one is."""
        return tuple(rank for rank in self.analysis.suspects if rank in self.best.schedule.steps)

    def change(self, rank: int | None) -> Trial | None:
        """The best single change of a rank, or of the suspects, if it repairs, and of a rank only if it does not."""
        found = sweep(self.best.schedule, self.best.setting, self.suspects, None if rank is None else (rank,))
        fitting = (t for t in found if t.edit.kind not in LAST_KINDS and bool(t.waiting) == (rank is not None))
        return next(fitting, None)

    def run(self, trial: Trial | None, conditions: ReplayConditions = PLAIN) -> ForkOutcome | str:
        """What becomes of the job over gloo; a sentence if it does not come to an end."""
        best = changed_fit(self.best, trial) if trial else self.best
        script = repro_script(self.dataset, self.analysis, best, best.schedule, conditions=conditions)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "fork.py"
            path.write_text(script)
            try:
                return fork_outcome(path, sys.executable, len(best.schedule.steps))
            except click.ClickException as error:
                return error.message


def job_of(fault: str, mode: str, first: int, minimize: bool) -> ForkedJob | None:
    """The first job with a fault that is small enough and waits; None if no dump of that kind shows it."""
    if mode not in ONLY_MODES.get(fault, (mode,)) and mode != MODES[0]:
        return None
    for seed in range(first, first + SEEDS):
        try:
            dataset, analysis = simulated(fault, seed, mode=mode)
            best = fork_base(dataset, analysis, start=True, minimize=minimize)
        except (LookupError, ValueError):
            continue
        if len(dataset.seen_ranks) <= MOST_RANKS and best.outcome.waiting:
            return ForkedJob(fault, seed, ONLY_MODES.get(fault, (mode,))[0], dataset, analysis, best)
    return None


def row(job: ForkedJob) -> list[object]:
    """The three runs of a job, as a row of the table."""
    repair = job.change(None)
    innocent = next((rank for rank in sorted(job.best.schedule.steps) if rank not in job.suspects), None)
    other = job.change(innocent) if innocent is not None else None
    slept = innocent if innocent is not None else min(job.best.schedule.steps)
    conditions = ReplayConditions((("NCCL_ALGO", "Ring"),), (Delay(slept, (), 1.0),))
    cells = [
        _through(job.run(repair)) if repair else "-",
        _stopped(job.run(other)) if other else "-",
        _stopped(job.run(None, conditions)),
    ]
    kind = repair.edit.kind if repair else "nobody is named" if not job.suspects else "no single change"
    found = [job.fault, f"{job.mode}, seed {job.seed}", len(job.best.schedule.steps), kind, *cells]
    print(*found, sep=" | ", flush=True)
    return found


def _through(found: ForkOutcome | str) -> str:
    if isinstance(found, str):
        return found
    return "all end" if found.is_through else f"{found.state}; {found.error or found.verdict}"


def _stopped(found: ForkOutcome | str) -> str:
    """Whether somebody waits, and all ranks stop where the simulation has them."""
    if isinstance(found, str):
        return found
    if found.waiting and not found.astray and not found.lost:
        return f"{found.waiting} wait as simulated"
    return f"{found.state}, {found.astray} elsewhere; {found.error or found.verdict}"


def fork_rows(faults: Iterable[str], first: int, *, minimize: bool) -> list[list[object]]:
    """A row for each fault and kind of dump, and one that counts them."""
    os.environ["GRACE"] = GRACE_S
    tasks = [(fault, mode) for fault in faults for mode in MODES]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        found = list(pool.map(partial(_row_of, first=first, minimize=minimize), tasks))
    rows = [one for one in found if one]
    return [*rows, ["all", "", "", "", *_counts(rows)]]


def _row_of(task: tuple[str, str], first: int, minimize: bool) -> list[object] | None:
    job = job_of(*task, first, minimize)
    return row(job) if job else None


def _counts(rows: Sequence[list[object]]) -> Iterator[str]:
    """How many of how many runs went as they should, by column."""
    for column, right in ((4, "all end"), (5, "wait as simulated"), (6, "wait as simulated")):
        told = [str(one[column]) for one in rows if one[column] != "-"]
        yield f"{sum(text == right or text.endswith(f' {right}') for text in told)} of {len(told)}"
