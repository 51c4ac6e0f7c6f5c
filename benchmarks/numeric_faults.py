"""Faults in the numbers of small real jobs over gloo, and what `rankscope numbers` says, alone and with a reference.

Run from the root of the repository: `python -m benchmarks.numeric_faults [--seed 0] [--dtypes f32 bf16]
[--faults NAME ..] [--level collectives|modules] [--keep FOLDER] [--healthy N]`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.numeric_model import LAYOUTS
from benchmarks.results import table

LONGEST_S = 600.0


@dataclass(frozen=True)
class Fault:
    """A planted fault."""

    layouts: tuple[str, ...]
    """Layouts in which it can be planted."""
    ranks: frozenset[int]
    """Ranks that may be named; a member of a group stands for it where only the group can be known."""
    alone: bool = True
    """Whether it breaks a law that needs no trusted run."""


EVERYBODY = frozenset(range(4))
ONE = frozenset({1})
FAULTS = {
    "dropout-seed": Fault(("tp",), frozenset({0, 1})),
    "missing-tp-sync": Fault(("tp",), EVERYBODY),
    "early-read": Fault(("tp",), ONE),
    "wrong-group": Fault(("tp", "sp"), EVERYBODY),
    "unsynced-parameter": Fault(("tp", "sp", "pp"), EVERYBODY),
    "stale-buffer": Fault(("tp", "sp", "pp"), ONE),
    "norm-scale": Fault(("tp", "sp"), frozenset({1, 3})),
    "weight-bit-flip": Fault(("tp", "ddp", "fsdp", "pp"), frozenset({1, 3})),
    "output-bit-flip": Fault(("tp", "sp"), ONE),
    "wire-bit-flip": Fault(("tp",), frozenset({1, 3})),
    "dropped-contribution": Fault(("tp", "sp"), frozenset({1, 3})),
    "same-data": Fault(("tp", "ddp", "fsdp"), EVERYBODY),
    "received-wrong": Fault(("pp",), frozenset({3})),
    "kernel-noise": Fault(("tp", "ddp"), ONE, alone=False),
    "bias-on-every-rank": Fault(("tp", "sp"), EVERYBODY, alone=False),
    "no-averaging": Fault(("tp", "pp"), EVERYBODY, alone=False),
    "loss-denominator": Fault(("tp", "ddp"), EVERYBODY, alone=False),
    "optimizer-lost": Fault(("tp", "ddp"), EVERYBODY, alone=False),
    "decay-on-norm": Fault(("tp", "fsdp"), EVERYBODY, alone=False),
    "data-order": Fault(("tp", "ddp"), EVERYBODY, alone=False),
}
"""Faults by name. Rank 1 is the faulty one where one is; in a group of two either member may be meant."""


@dataclass(frozen=True)
class NumericJob:
    """One job."""

    layout: str
    fault: str = ""
    dtype: str = "f32"
    seed: int = 0
    level: str = "collectives"
    steps: int = 5

    def run(self, folder: Path) -> None:
        """Trains, and leaves the numbers in the folder; raises CalledProcessError."""
        ranks = LAYOUTS[self.layout].ranks
        command = [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--rdzv-backend", "c10d",
            "--rdzv-endpoint", "localhost:0", "-m", "benchmarks.numeric_job", "--layout", self.layout, "--fault",
            self.fault, "--dtype", self.dtype, "--seed", str(self.seed), "--level", self.level, "--steps",
            str(self.steps), "--output", str(folder),
        ]  # fmt: skip
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        subprocess.run(command, check=True, capture_output=True, timeout=LONGEST_S, env=environment)


def jobs(dtypes: Sequence[str], seed: int, level: str, faults: Sequence[str]) -> Iterator[NumericJob]:
    """A job for each fault, layout and type."""
    for name in faults:
        for layout in FAULTS[name].layouts:
            yield from (NumericJob(layout, name, dtype, seed, level) for dtype in dtypes)


@dataclass(frozen=True)
class Answer:
    """The first root cause that `rankscope numbers` names in a run; empty if it names none."""

    title: str = ""
    culprits: frozenset[int] = frozenset()
    group: frozenset[int] = frozenset()

    def score(self, truth: frozenset[int]) -> str:
        """Whether it names ranks of the truth, only a group with one of them, somebody else, or nothing."""
        if not self.title:
            return "silent"
        if self.culprits:
            return "right" if self.culprits <= truth else "wrong"
        return "group" if not self.group or self.group & truth else "wrong"


def answer(folder: Path, reference: Path | None = None, perturbed: Sequence[Path] = ()) -> Answer:
    """What is said of a run, alone or beside a trusted one."""
    beside = ["--reference", str(reference)] if reference is not None else []
    beside += [text for path in perturbed for text in ("--perturbed", str(path))]
    command = [sys.executable, "-m", "rankscope", "numbers", str(folder), *beside, "-f", "json"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=LONGEST_S)
    found = json.loads(done.stdout)["findings"]
    roots = [one for one in found if one["kind"] == "numeric-divergence" and one["root_cause"]]
    if not roots:
        return Answer()
    first = roots[0]
    members = frozenset(first["group"]["ranks"]) if first["group"] else frozenset()
    return Answer(first["title"], frozenset(first["culprit_ranks"]), members)


def judged(job: NumericJob, folder: Path, references: Path) -> list[object]:
    """A row of the table of one faulty job."""
    fault, same = FAULTS[job.fault], NumericJob(job.layout, "", job.dtype, job.seed, job.level, job.steps)
    trusted = references / f"{job.layout}-{job.dtype}-{job.seed}-{job.level}"
    if not trusted.exists():
        trusted.mkdir(parents=True)
        same.run(trusted)
    alone, beside = answer(folder), answer(folder, trusted)
    law = "yes" if fault.alone else "no"
    return [job.fault, job.layout, job.dtype, law, alone.score(fault.ranks), beside.score(fault.ranks), alone.title,
            beside.title]  # fmt: skip


def healthy(count: int, dtypes: Sequence[str], scratch: Path) -> list[str]:
    """The titles of what is said of healthy jobs with other seeds, over all layouts."""
    layouts = [name for name in LAYOUTS if name != "one"]
    said = []
    for number in range(count):
        job = NumericJob(layouts[number % len(layouts)], "", dtypes[number % len(dtypes)], 1000 + number)
        folder = scratch / f"healthy-{number}"
        folder.mkdir(parents=True)
        job.run(folder)
        found = answer(folder)
        said += [f"{job}: {found.title}"] if found.title else []
    return said


def main() -> None:
    """Prints the table, and what is said of healthy jobs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtypes", nargs="+", default=["f32"])
    parser.add_argument("--faults", nargs="*", default=list(FAULTS), choices=FAULTS)
    parser.add_argument("--level", default="collectives", choices=("collectives", "modules"))
    parser.add_argument("--healthy", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="Keep the runs here; runs that lie here are not made again.")
    arguments = parser.parse_args()
    rows: list[list[object]] = []
    with TemporaryDirectory() as scratch:
        base = (arguments.keep or Path(scratch)).resolve()
        for job in jobs(arguments.dtypes, arguments.seed, arguments.level, arguments.faults):
            folder = base / f"{job.layout}-{job.fault}-{job.dtype}-{job.level}"
            if not folder.exists():
                folder.mkdir(parents=True)
                job.run(folder)
            rows.append(judged(job, folder, base / "references"))
            print(*rows[-1], sep=" | ", flush=True)
        said = healthy(arguments.healthy, arguments.dtypes, Path(scratch))
    print(table(["fault", "layout", "type", "breaks a law", "alone", "beside a trusted run"], [r[:6] for r in rows]))
    if arguments.healthy:
        print(f"healthy jobs of which something is said: {len(said)} of {arguments.healthy}", *said, sep="\n  ")


if __name__ == "__main__":
    main()
