"""How often a replay stops where the job stopped, with the verdict of the job: simulated jobs with planted faults.

python -m benchmarks.replays [--first SEED] [--seeds N] [--modes full,hook] [--faults ...] [--run] [--write]

Each job is replayed whole and with the ranks that matter: in memory, and with --run over gloo as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.simulator.options import ALL_MODES
from tests.simulator.scenario import ALL_FAULTS, ONLY_MODES, make

from benchmarks.child_processes import run_program
from benchmarks.results import machine, program_parser, publish, table
from rankscope.analysis import analyse
from rankscope.analysis.model import Analysis
from rankscope.assemble.load import InputError, load
from rankscope.commands.rehearsal import Rehearsal, chosen, same_verdict
from rankscope.features.replay.replay_sizes import small_sizes
from rankscope.features.replay.repro_script import repro_script
from rankscope.features.replay.schedule_fit import MOVING
from rankscope.schema import Dataset

LIMIT_S = 300


@dataclass(frozen=True)
class Outcome:
    """What became of one job."""

    fault: str
    seed: int
    mode: str
    small: bool
    moving: bool
    agrees: bool
    """Whether each rank stops as in the dumps, simulated."""
    same: bool
    """Whether the verdict on the simulated replay is the original's."""
    ranks: int
    size: int
    """Bytes of the script."""
    stops: bool | None = None
    """Whether each rank stops as expected over gloo."""
    verdict: bool | None = None
    """Whether the verdict on the replay over gloo is the original's."""


def jobs(seeds: range, modes: list[str], faults: list[str]) -> Iterator[tuple[str, int, str, Dataset, Analysis]]:
    """The simulated jobs, as their dumps show them."""
    for fault in faults:
        # a kind of dump that cannot show the fault is measured in that which can
        able = dict.fromkeys(mode if mode in ONLY_MODES.get(fault, modes) else ONLY_MODES[fault][0] for mode in modes)
        for seed in seeds:
            for mode in able:
                try:
                    scenario = make(fault, seed, job=ALL_MODES[mode].job)
                except LookupError:
                    continue
                with TemporaryDirectory() as folder:
                    scenario.write(Path(folder), ALL_MODES[mode])
                    dataset = load([Path(folder)])
                yield fault, seed, mode, dataset, analyse(dataset)


def played(script: str, analysis: Analysis) -> tuple[bool, bool]:
    """Whether all ranks stop as expected over gloo, and whether the verdict is the original's."""
    with TemporaryDirectory() as folder:
        path, out = Path(folder) / "repro.py", Path(folder) / "run"
        path.write_text(script)
        environment = {**os.environ, "REPRO_OUT": str(out)}
        done = subprocess.run(
            [sys.executable, str(path)], env=environment, capture_output=True, check=False, timeout=LIMIT_S
        )
        try:
            return done.returncode == 0, same_verdict(analysis, analyse(load([out / "dumps"])))
        except InputError:
            return done.returncode == 0, False


def outcomes(seeds: range, modes: list[str], faults: list[str], run: bool) -> Iterator[Outcome]:
    """One for each job whole, and one with the ranks that matter."""
    for fault, seed, mode, dataset, analysis in jobs(seeds, modes, faults):
        for small in (False, True):
            try:
                found = chosen(dataset, analysis, minimize=small)
            except ValueError as error:
                print(f"{fault} {seed} {mode}: refused: {error}", flush=True)
                continue
            one = _outcome((fault, seed, mode, small), dataset, analysis, found, run)
            print(one, "" if one.same else f"{analysis.verdict} / {found.analysis.verdict}", flush=True)
            yield one


def _outcome(
    key: tuple[str, int, str, bool], dataset: Dataset, analysis: Analysis, found: Rehearsal, run: bool
) -> Outcome:
    script = repro_script(dataset, analysis, found.fit, found.schedule, sizes=small_sizes(found.schedule))
    stops, verdict = played(script, analysis) if run else (None, None)
    agrees = found.fit.equal == found.fit.told
    return Outcome(
        *key, analysis.status in MOVING, agrees, found.same, len(found.schedule.steps), len(script), stops, verdict
    )


def share(found: list[bool | None]) -> str:
    """How many of how many; "" if none was tried."""
    tried = [one for one in found if one is not None]
    return f"{sum(map(bool, tried))} of {len(tried)}" if tried else ""


def rows(found: list[Outcome]) -> Iterator[list[object]]:
    """A row for each fault, and one for all."""
    for fault in [*dict.fromkeys(one.fault for one in found), "all"]:
        mine = [one for one in found if fault in (one.fault, "all")]
        small = [one for one in mine if one.small]
        hangs = [one.ranks for one in small if not one.moving]
        yield [
            fault, share([one.agrees for one in mine]), share([one.same for one in mine]),
            share([one.stops for one in mine]), share([one.verdict for one in mine]),
            f"{median(hangs):g}, {share([ranks <= 4 for ranks in hangs])} at most 4" if hangs else "",
            f"{max(one.size for one in mine) / 1e3:.0f}",
        ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the section of the results."""
    parser = program_parser(__spec__.name, __doc__, writes=True)
    parser.add_argument("--first", type=int, default=900)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--modes", default="full,hook")
    parser.add_argument("--faults", nargs="*", default=list(ALL_FAULTS), choices=list(ALL_FAULTS))
    parser.add_argument("--run", action="store_true")
    given = parser.parse_args(arguments)
    modes = given.modes.split(",")
    found = list(outcomes(range(given.first, given.first + given.seeds), modes, given.faults, given.run))
    header = ["fault", "stops", "verdict", "stops over gloo", "verdict over gloo", "ranks that matter", "kB at most"]
    seeds = f"Seeds {given.first} to {given.first + given.seeds - 1}, dumps of {' and '.join(modes)}"
    text = f"{seeds}; {machine()}\n\n{table(header, list(rows(found)))}"
    publish("Replays of simulated jobs", text, write=given.write)


if __name__ == "__main__":
    run_program(main)
