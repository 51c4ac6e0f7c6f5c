"""Real jobs over gloo in five layouts, healthy and with a fault, against the same job on one rank.

Run from the root of the repository: `python -m benchmarks.numeric_layouts [--seeds 0 1] [--dtypes f32 bf16]
[--layouts tp ..] [--healthy] [--keep FOLDER]`. A run on one rank, perturbed three times, gives the limits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.child_processes import run_program
from benchmarks.numeric_plan import NumericJob
from benchmarks.numeric_runs import LONGEST_S, run_missing
from benchmarks.results import program_parser, table

PERTURBED = (1, 2, 3)
FAULTS = {
    "tp": ("early-read", "bias-on-every-rank", "missing-tp-sync", "norm-scale", "stale-buffer", "dropped-contribution",
           "optimizer-lost", "dropout-seed"),
    "sp": ("wrong-group", "unsynced-parameter", "stale-buffer", "norm-scale", "output-bit-flip", "dropped-contribution",
           "bias-on-every-rank"),
    "pp": ("received-wrong", "unsynced-parameter", "stale-buffer", "weight-bit-flip", "no-averaging",
           "loss-denominator", "data-order"),
    "ddp": ("weight-bit-flip", "same-data", "kernel-noise", "loss-denominator", "optimizer-lost", "data-order",
            "dropout-seed"),
    "fsdp": ("weight-bit-flip", "same-data", "decay-on-norm", "dropout-seed", "loss-denominator", "data-order",
             "optimizer-lost"),
}  # fmt: skip
"""Faults by layout."""
_RULES = ("RX", "RP")


def planned(arguments: argparse.Namespace) -> Iterator[NumericJob]:
    """The jobs under test."""
    for dtype in arguments.dtypes:
        for seed in arguments.seeds:
            for layout in arguments.layouts:
                for fault in ("",) if arguments.healthy else FAULTS[layout]:
                    yield NumericJob(layout, fault, dtype, "modules", seed, declares=True)


def references(job: NumericJob) -> list[NumericJob]:
    """The run on one rank, and the perturbed ones."""
    one = NumericJob("one-tied" if job.shape.tied else "one", "", job.dtype, "modules", job.seed, declares=True)
    return [one, *(replace(one, perturb=number) for number in PERTURBED)]


def answers(job: NumericJob, base: Path) -> list[str]:
    """Titles of what the comparison with the run on one rank says."""
    one, *perturbed = (str(base / other.name) for other in references(job))
    beside = ["--reference", one, *(word for path in perturbed for word in ("--perturbed", path))]
    command = [
        sys.executable,
        "-m",
        "rankscope",
        "report",
        "--only",
        "numbers",
        str(base / job.name),
        *beside,
        "-f",
        "json",
    ]
    done = subprocess.run(command, capture_output=True, check=False, timeout=LONGEST_S)
    found = json.loads(done.stdout)["findings"]
    return [one["title"] for one in found if one["limits"] and one["limits"][0]["rule"] in _RULES]


def rows(jobs: Sequence[NumericJob], base: Path) -> Iterator[tuple[str, ...]]:
    """Layout, fault, type, seed and answer of each run."""
    run_missing(dict.fromkeys(one for job in jobs for one in (job, *references(job))), base)
    for job in jobs:
        yield job.layout, job.fault or "none", job.dtype, str(job.seed), "; ".join(answers(job, base)) or "-"


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = program_parser(__spec__.name, __doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--dtypes", nargs="+", default=["f32"])
    parser.add_argument("--layouts", nargs="+", default=list(FAULTS), choices=FAULTS)
    parser.add_argument("--healthy", action="store_true", help="Only jobs without a fault.")
    parser.add_argument("--keep", type=Path, help="Keep the runs here; runs that lie here are not made again.")
    given = parser.parse_args(arguments)
    with TemporaryDirectory() as scratch:
        found = list(rows(list(planned(given)), (given.keep or Path(scratch)).resolve()))
    print(table(["layout", "fault", "type", "seed", "first wrong against one rank"], found))


if __name__ == "__main__":
    run_program(main)
